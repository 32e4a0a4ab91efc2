"""Two passes over cells: the first questions of all of them, then the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.results.finished import FinishedCell
from bench.run.cell import Cell
from tests.bench.faults.runs import records_of
from tests.stand_ins import Echo, StandInSession, WordModels, examples, stand_in_cell


class Counting(StandInSession):
    """A session that keeps what it read, pass by pass."""

    def __init__(self, results: Path, **options: Any) -> None:
        super().__init__(results, WordModels, **options)
        self.seen: list[dict[str, FinishedCell]] = []

    def in_passes(self, cells: Sequence[Cell], first: int) -> None:
        for _ in self.passes(first):
            self.seen.append(self.run_all([[cell] for cell in cells]))


def cells(n: int = 6) -> list[Any]:
    return [stand_in_cell(examples(n), {"suffix": suffix}) for suffix in ("", "!")]


def files(results: Path) -> dict[str, Any]:
    """Every record and summary below a folder, without times."""
    found: dict[str, Any] = {}
    for path in sorted(results.rglob("records.jsonl")):
        found[str(path.relative_to(results))] = records_of(path.parent)
    for path in sorted(results.rglob("summary.json")):
        summary = json.loads(path.read_bytes())
        times = ("wall_s", "records_sha256")
        found[str(path.relative_to(results))] = {k: v for k, v in summary.items() if k not in times}
    return found


def test_a_first_pass_asks_every_cells_first_questions_and_indexes_their_documents(tmp_path: Path) -> None:
    session, asked = Counting(tmp_path), cells()
    next(session.passes(2))
    found = session.run_all([[cell] for cell in asked])
    assert [one.asked for one in found.values()] == [("q0", "q1")] * 2
    assert [(one.summary.n, one.is_whole) for one in found.values()] == [(2, False)] * 2
    assert [record.example_id for one in found.values() for record in one.records] == ["q0", "q1"] * 2
    assert all(len(cell.method.indexed) == 1 for cell in asked[:1]), "the other two documents can wait"
    assert session.so_far == "2 of 6 questions a cell"


@pytest.mark.parametrize("first", [1, 4, 6, 100])
def test_in_two_passes_the_cells_are_those_of_one_and_no_question_is_asked_twice(
    tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Counting(tmp_path / "one").in_passes(cells(), 0)
    asked: list[str] = []
    answer = Echo.answer

    async def counted(self: Echo, index: Any, question: Any, models: Any) -> Any:
        asked.append(f"{question.text}{self.config.suffix}")
        return await answer(self, index, question, models)

    monkeypatch.setattr(Echo, "answer", counted)
    session = Counting(tmp_path / "two")
    session.in_passes(cells(), first)
    assert len(session.seen) == (2 if first < 6 else 1), "a pass that asked everything is the last"
    assert all(one.is_whole for one in session.seen[-1].values()) and not session.so_far
    assert len(asked) == len(set(asked)) == 12
    assert files(tmp_path / "two") == files(tmp_path / "one")


@pytest.mark.parametrize(("begun", "left"), [(0, []), (2, ["What is answer2"])])
def test_failed_questions_are_asked_again_once_in_passes(tmp_path: Path, begun: int, left: list[str]) -> None:
    first, *others, last = examples(4)
    failing = [replace(first, question="please fail"), *others, replace(last, question="please fail now")]
    before = Counting(tmp_path)
    next(before.passes(begun))
    before.run_all([[stand_in_cell(failing)]])
    again = stand_in_cell(failing)
    asked: list[str] = []
    method = again.method

    async def counted(index: Any, question: Any, models: Any) -> Any:
        asked.append(question.text)
        return await Echo.answer(method, index, question, models)

    method.answer = counted
    Counting(tmp_path, retry_failed=True).in_passes([again], 2)
    assert asked == ["please fail", *left, "please fail now"], "also one behind the first pass"


def test_a_session_that_runs_nothing_shows_what_there_is(tmp_path: Path) -> None:
    session = Counting(tmp_path)
    next(session.passes(3))
    session.run_all([[cell] for cell in cells()[:1]])
    looking = Counting(tmp_path, compute=False)
    found = looking.run_all([[cell] for cell in cells()])
    (only,) = found.values()
    assert only.summary.n == 3 and only.description.n_examples == 6
    records = next(tmp_path.rglob("records.jsonl"))
    with records.open("ab") as file:
        file.write(b'{"cut')  # another process is writing
    assert Counting(tmp_path, compute=False).finished(cells()[0]) is not None


def test_an_interrupted_first_pass_goes_on_where_it_was(tmp_path: Path) -> None:
    session = Counting(tmp_path)
    next(session.passes(2))
    session.run_all([[cells()[0]]])
    later = Counting(tmp_path)
    later.in_passes(cells(), 3)
    first, last = later.seen
    assert [one.summary.n for one in first.values()] == [3, 3]
    assert all(one.is_whole for one in last.values())


def test_a_damaged_description_is_written_again_in_a_first_pass(tmp_path: Path) -> None:
    """Whatever asked a first pass failed there, and said that the same command would mend the file."""
    session = Counting(tmp_path)
    next(session.passes(2))
    session.run_all([[cells()[0]]])
    (about,) = tmp_path.rglob("cell.json")
    whole = json.loads(about.read_text())
    about.write_text(json.dumps({"cell_id": whole["cell_id"]}))
    Counting(tmp_path).in_passes(cells()[:1], 2)
    assert json.loads(about.read_text())["method"] == whole["method"]
