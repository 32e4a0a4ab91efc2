"""What a command says while it works, where there is no terminal."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from bench.run.hooks import HelperProgress, IndexProgress
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
    plan, first, second = capsys.readouterr().err.splitlines()
    assert plan == "3 cells to run, 12 answers to come"
    seconds = r"\d+ s, about \d+ s left"
    assert re.fullmatch(rf"\[1/3 cells, {seconds}\] echo on .*: F1 100\.0 %, 4 questions", first)
    assert re.fullmatch(rf"\[2/3 cells, {seconds}\] bm25 on a set: f1 12\.0, 4 questions", second)


def test_no_time_left_is_shown_before_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The first answers wait for models and indexes: Table 1 began with hours left.
    progress = Progress()
    progress.on_plan(2, 100)
    progress.on_helper_progress(HelperProgress(answered=4, line="bm25 on a set: 4 questions"))
    progress.on_helper_progress(HelperProgress(answered=1, line="sbert on a set: 1 question"))
    progress.close()
    _, early, later = capsys.readouterr().err.splitlines()
    assert " left" not in early and " left]" in later


def test_a_sign_of_life_says_how_many_indexes_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 24 graphs took 20 minutes of "question 0 of 24".
    monkeypatch.setattr("bench.run.progress.EVERY_S", 0.1)
    progress = Progress()
    progress.on_start([stand_in_cell(examples(4))], [{}])
    for built in (3, 4):
        progress.on_index(IndexProgress(built, 4, 51_234))
        time.sleep(0.25)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert any(line.endswith(", index 3 of 4 (51,234 tokens), question 0 of 4") for line in lines)
    assert lines[-1].endswith(", question 0 of 4") and ", index" not in lines[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_every_cell_leaves_a_line_and_the_bar_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(Session, "models", lambda self, cell: WordModels())
    session = Session(tmp_path, hooks=[progress := Progress()])
    progress.on_plan(12, 48)
    cell = stand_in_cell(examples(4))
    session.run(cell)
    session.close()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()
    assert lines[0] == "12 cells to run, 48 answers to come"
    assert f" 1/12  {cell.name}: F1 100.0 %, 4 questions" in lines
    assert any(line.startswith(f"1/12 {cell.name}") and "0/4 0:00 preparing" in line for line in lines)
    assert screen.getvalue().endswith("\x1b[2K\x1b[?25h\r"), "the bar is gone and the cursor is back"
