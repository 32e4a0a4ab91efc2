from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.report.cells import grouped
from bench.results.finished import FinishedCell, find_finished
from bench.results.records import CELL_FILE, RECORDS_FILE, SUMMARY_FILE
from tests import cells
from tests.bench.report.finished import bm25, finish


def cell(cell_id: str, method: str = "bm25", **changes: Any) -> FinishedCell:
    options: Mapping[str, Any] = changes.pop("config", {})
    about = cells.description(cell_id=cell_id, method=method, config=options, n_examples=10, **changes)
    return FinishedCell(Path("x"), about, cells.summary())


def names(*shown: FinishedCell) -> list[str]:
    (group,) = grouped(shown)
    return [named.name for named in group.cells]


def test_a_cell_is_named_by_its_options_and_where_that_is_not_enough_by_what_else_differs() -> None:
    k_only = [cell(str(k), config={"k": k, "b": 0.75}, non_defaults=("k",)) for k in (10, 9, 2)]
    assert names(*k_only, cell("x", "pecan")) == ["bm25 k=2", "bm25 k=9", "bm25 k=10", "pecan"]
    reader = {"reader": {"name": "tiny", "revision": "ffffffffffff"}}
    assert names(cell("a"), cell("b", models=reader)) == ["bm25 weights=012345", "bm25 weights=ffffff"]
    longer = cell("c", config={"k": 2, "b": 0.75}, non_defaults=("k",)).description
    longer = longer.model_copy(update={"n_examples": 4})
    assert names(*k_only, FinishedCell(Path("x"), longer, cells.summary())) == [
        *("bm25 k=2 questions=4", "bm25 k=2 questions=10", "bm25 k=9", "bm25 k=10")
    ]
    assert names(cell("aaaaaaaa"), cell("bbbbbbbb")) == ["bm25 [aaaaaa]", "bm25 [bbbbbb]"]


def test_a_model_is_named_once() -> None:
    follows = {"reader": {"name": "large"}, "builder": {"name": "large"}}
    mixed = {"reader": {"name": "large"}, "builder": {"name": "small"}}
    finished = [
        cell("a", "pecan", model="large", models=follows, config={"graph_model": ""}),
        cell("b", "pecan", model="large", models=mixed, config={"graph_model": "small"}),
    ]
    assert names(*finished) == ["pecan", "pecan graph_model=small"]


def test_changed_data_are_another_group_told_by_their_revision() -> None:
    groups = grouped([cell("a"), cell("b", data_revision="sha256:fedcba654321")])
    assert [group.label[-17:] for group in groups] == ["revision abcdef12", "revision fedcba65"]


def test_only_cells_whose_records_are_those_of_their_summary_are_finished(tmp_path: Path) -> None:
    whole = finish(tmp_path, bm25(), [1, 0])
    for k, spoil in ((6, SUMMARY_FILE), (7, CELL_FILE), (8, RECORDS_FILE)):
        path = finish(tmp_path, bm25(k=k), [1, 0]).folder(tmp_path) / spoil
        if spoil == RECORDS_FILE:
            path.write_bytes(path.read_bytes() + b"\n")
        else:
            path.write_text("{" if spoil == SUMMARY_FILE else json.dumps({"cell_id": "another"}))
    finished, unfinished = find_finished(tmp_path)
    assert [done.id for done in finished] == [whole.identity.cell_id]
    assert unfinished == 3
