"""What a command says while it works, where there is no terminal."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from bench.run.hooks import HelperProgress
from bench.run.progress import Progress
from bench.run.session import Session
from tests.stand_ins import WordModels, examples, stand_in_cell


def test_a_line_for_every_finished_cell_whoever_finished_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Session, "models", lambda self, cell: WordModels())
    progress = Progress()
    session = Session(tmp_path, hooks=[progress])
    progress.on_plan(3, 12)
    session.run(stand_in_cell(examples(4)))
    progress.on_helper_progress(HelperProgress(answered=4, line="bm25 on a set: f1 12.0, 4 questions"))
    session.run(stand_in_cell(examples(4)))  # finished before: nothing to say
    session.close()
    first, second = capsys.readouterr().err.splitlines()
    seconds = r"\d+ s, about \d+ s left"
    assert re.fullmatch(rf"\[1/3 cells, {seconds}\] echo on .*: F1 100\.0 %, 4 questions", first)
    assert re.fullmatch(rf"\[2/3 cells, {seconds}\] bm25 on a set: f1 12\.0, 4 questions", second)


def test_a_sign_of_life_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(every_s=0.2)
    progress.on_plan(2, 8)
    progress.on_start([stand_in_cell(examples(4))], [{}])
    started = time.monotonic()
    time.sleep(0.5)
    progress.close()
    most = (time.monotonic() - started) / 0.2
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= most
    assert lines[0].startswith("[0/2 cells, ") and lines[0].endswith(", question 0 of 4")
