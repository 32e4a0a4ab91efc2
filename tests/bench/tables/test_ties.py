"""The marks of a table's top groups, and its sentence of ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.results.power import power_of
from bench.results.records import Record
from bench.tables.cells import TableData
from bench.tables.render import render
from bench.tables.ties import ties_of
from tests import cells


def records(score: float, count: int = 12, **fields: Any) -> list[Record]:
    """One question for each document; every second one scores less, so that no row is constant."""
    return [cells.record(2 * i, scores={"f1": score - 0.1 * (i % 2)}, **fields) for i in range(count)]


def table(folder: Path, **rows: list[Record]) -> TableData:
    made = cells.table_of_records(folder, rows)
    return with_ids(made, {row: row for row in rows})


def with_ids(made: TableData, ids: dict[str, str]) -> TableData:
    """The table with these ids of its cells."""
    shown = {}
    for (row, dataset), cell in made.cells.items():
        about = cell.finished.description.model_copy(update={"cell_id": ids[row]})
        shown[row, dataset] = replace(cell, finished=replace(cell.finished, description=about))
    return replace(made, cells=shown)


def test_rows_that_are_not_told_from_the_best_are_marked(tmp_path: Path) -> None:
    close = records(0.9)
    close[0] = cells.record(scores={"f1": 1.0})
    made = table(tmp_path, best=records(0.9), close=close, worse=records(0.2))
    ties = ties_of(made)
    assert {row: (of.top, of.rank) for (row, _), of in ties.items()} == {
        "best": (True, 2), "close": (True, 1), "worse": (False, 3),
    }  # fmt: skip
    rendered = render(made, {}, ties=ties)
    marked, bare = "50.0* [40.0, 60.0]", "50.0 [40.0, 60.0]"
    scores = {row[0]: row[1] for row in rendered.rows}
    assert scores == {"BEST": marked, "CLOSE": marked, "WORSE": bare}
    text = rendered.markdown()
    assert "*: F1 is the highest, or not told from it" in text and "No marks on" not in text
    assert "- Ranks by F1 with 95 % intervals that resample documents: qasper: CLOSE 1 [1, 1], BEST 2" in text
    assert any(sentence.startswith("*: F1") for sentence in rendered.brief)
    points = f"{100 * power_of([0.1] + 11 * [0.0], list('abcdefghijkl')).detectable:.1f}"  # of one in twelve
    assert f"below the best row that an uncorrected test finds 4 in 5 times: qasper {points} (" in text


def test_rows_that_were_asked_different_questions_are_not_marked(tmp_path: Path) -> None:
    assert not ties_of(table(tmp_path, best=records(0.9), fewer=records(0.9, count=11)))
    other = [one.model_copy(update={"document_ids": ["other"]}) for one in records(0.9)]
    (tmp_path / "b").mkdir()
    three = table(tmp_path / "b", other=other, best=records(0.9), worse=records(0.2))
    ties = ties_of(three)
    assert {row for row, _ in ties} == {"best", "worse"}
    assert "Asked other questions, so without a mark: OTHER." in render(three, {}, ties=ties).markdown()


def test_one_document_ranks_nothing(tmp_path: Path) -> None:
    one: dict[str, Any] = {"document_ids": ["d"]}
    assert not ties_of(table(tmp_path, best=records(0.9, **one), worse=records(0.2, **one)))


def test_rows_with_the_same_cell_count_once(tmp_path: Path) -> None:
    made = table(tmp_path, best=records(0.9), again=records(0.9), worse=records(0.2))
    ties = ties_of(with_ids(made, {"best": "a", "again": "a", "worse": "b"}))
    assert [of.rank for of in ties.values()] == [1, 1, 2]


def test_data_sets_without_marks_are_named(tmp_path: Path) -> None:
    made = table(tmp_path, best=records(0.9), worse=records(0.2))
    definition = made.definition.model_copy(update={"datasets": ("qasper", "musique")})
    best = made.cells["best", "qasper"]
    more = {(row, "musique"): replace(best, dataset="musique", finished=None) for row in ("best", "worse")}
    both = TableData(definition, {**made.cells, **more})
    assert "No marks on musique: no references, other" in render(both, {}, ties=ties_of(both)).markdown()
