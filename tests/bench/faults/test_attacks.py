"""Data that swell, and text that would command a screen or a page: docs/attacks.md."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.cli.main import main
from bench.data import check
from bench.data.entries import MAX_LINE_BYTES, MAX_VALUES
from bench.report.content import collect_report
from bench.report.page import report_page
from bench.results.records import RecordStore
from bench.run.cell import CellRequest
from bench.tables.formats import plain_table
from bench.tracking.content import question_table, read_run
from tests import cells
from tests.bench.faults.hostile import PIECES
from tests.bench.faults.runs import REPOSITORY
from tests.bench.report.finished import bm25, finish

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ESCAPES = "\x1b]0;owned\x07\x9b2J<b>$\\frac{"
ONE = {"question": "Who?", "documents": "Ilse."}
LINE = json.dumps(ONE)
ZEROS = [0] * (MAX_VALUES // 2)
MANY = f"one entry of more than {MAX_VALUES:,} values; write a document as one text"


def with_zeros(before: str, after: str) -> Callable[[], str]:
    return lambda: before + "[" + "0," * MAX_VALUES + "0]" + after


ODD_DATA: dict[str, tuple[Callable[[], str], int, str]] = {
    "values on a line": (with_zeros(f'{LINE}\n{{"question": "w", "documents": ', "}"), 1, ":2: " + MANY),
    "values on the first line": (with_zeros('{"question": "w", "answers": ', f"}}\n{LINE}"), 1, MANY),
    "values of an element": (with_zeros(f'[{LINE}, {{"documents": ', "}]"), 1, ": item 2: " + MANY),
    "values of an entry": (with_zeros(f'{{"a": {LINE}, "b": {{"c": ', "}}"), 1, ": item 2: " + MANY),
    "values in columns": (lambda: "question,documents\nw,d\n" + "," * (MAX_VALUES + 1), 1, ":3: " + MANY),
    "a long row": (lambda: "question,documents\nw,d\n" + "x" * (MAX_LINE_BYTES + 1), 1, ":3: longer than 64"),
    "nothing but faults": (lambda: f"{LINE}\n" + "0\n" * 10_001, 1, "read no further after 10,000 problems"),
    "UTF-16 without a mark": (lambda: "\0".join(LINE), 0, "not JSON"),
    "a table as one text": (lambda: json.dumps({**ONE, "documents": "1,[" * MAX_VALUES}), 1, ""),
    "many values in all": (lambda: json.dumps({n: {**ONE, "id": n, "more": ZEROS} for n in "abc"}), 3, ""),
    "a zero byte in CSV": (lambda: "question,documents\nw,d\0\n", 1, ""),
}


@pytest.mark.parametrize("name", ODD_DATA)
def test_data_that_are_too_large_or_odd(tmp_path: Path, name: str) -> None:
    made, usable, message = ODD_DATA[name]
    (tmp_path / "data").write_text(made())
    report = check(tmp_path / "data")
    errors = [str(problem) for problem in report.problems if problem.severity == "error"]
    assert any(message in error for error in errors) if message else not errors, errors[:2]
    assert report.examples == usable


def test_names_and_fields_do_not_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for logger in ("bench", "methods"):
        monkeypatch.setattr(logging.getLogger(logger), "handlers", [])
    path = tmp_path / f"{ESCAPES}.jsonl"
    path.write_text(json.dumps({**ONE, "dataset": f"mine {ESCAPES}", "answers": ["Ilse."]}) + "\n")
    for k in (2, 5):
        cell = finish(tmp_path, CellRequest("bm25", "", data=str(path), options={"k": k}), [1])
    described = cell.folder(tmp_path) / "cell.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), "model_label": ESCAPES}))
    (tmp_path / "other").write_text(json.dumps({ESCAPES: 1}) + "\n")
    for arguments in (
        ["data", "check", str(path)],
        ["data", "check", str(tmp_path / "other")],
        ["ask", ESCAPES, str(tmp_path / ESCAPES)],
        ["list", "cells", "--results", str(tmp_path)],
        ["rm", "bm25", "--dry-run", "--results", str(tmp_path)],
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        shown = "".join(capsys.readouterr())
        assert "\ufffd]0;owned" in shown and not CONTROL.search(shown), (arguments, shown)
    assert "data:image/svg" in report_page(collect_report(tmp_path)), "its picture has the name as a title"


def test_text_in_a_markdown_table_is_no_markup() -> None:
    page = plain_table("t", "T <script>", ("a|b", "c"), [("<img src=x>", "|")], ["<b>"]).markdown()
    assert "<" not in page and "a\\|b" in page


def test_hostile_answers_are_rows_of_mlflows_table(tmp_path: Path) -> None:
    with RecordStore(tmp_path) as store:
        for number, piece in enumerate(PIECES):
            store.append(cells.record(number, question=piece, prediction=piece, answers=[piece]))
    table = json.loads(json.dumps(question_table(tmp_path), allow_nan=False))
    assert table["question"] == table["prediction"] == table["answers"] == list(PIECES)


def test_an_edited_description_is_shown(tmp_path: Path) -> None:
    path = finish(tmp_path, bm25(limit=2), [1, 0]).folder(tmp_path) / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "created_at": "yesterday", "metrics": []}))
    assert read_run(path.parent).metrics["f1"] == 0.5
    assert "hotpotqa" in report_page(collect_report(tmp_path))


def test_every_attack_names_a_test_that_exists() -> None:
    page = (REPOSITORY / "docs/attacks.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(lines) > 60 and len(named) >= len(lines) - 1
    for file, test in named:
        assert f"\ndef {test}(" in (REPOSITORY / "tests" / file).read_text("utf-8"), (file, test)
