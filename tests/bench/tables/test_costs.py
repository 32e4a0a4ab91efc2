"""What a row's cost is made of: probes, the reader, and the models beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.results.records import Record
from bench.tables.amortised import amortised_table
from bench.tables.caption import about_shares
from bench.tables.cells import TableData
from bench.tables.cost_parts import cell_costs, costs_of
from bench.tables.costs import costs_table
from bench.tables.render import render
from tests import cells

TERA = 10**12


def spent(**phases: int) -> dict[str, object]:
    """Usage of a model by phase, in TFLOPs."""
    empty = {"calls": 1, "new_tokens": 1, "attended": 1, "logit_rows": 0}
    return {phase: {**empty, "flops": flops * TERA} for phase, flops in phases.items()}


def record(number: int, query: dict[str, object], index: dict[str, object]) -> Record:
    total = [sum(use["flops"] for m in side.values() for use in m.values()) for side in (query, index)]  # type: ignore[attr-defined]
    return cells.record(number, flops=cells.flops(*total, query_by_model=query, index_by_model=index))


def table(folder: Path, **rows: list[Record]) -> TableData:
    return cells.table_of_records(folder, rows, ratio_to="pecan")


@pytest.fixture
def two_rows(tmp_path: Path) -> TableData:
    graph = {"tiny": spent(prefill=4), "minilm": spent(embed=12)}
    search = {"tiny": spent(prefill=6, probe=1, decode=1), "minilm": spent(embed=2)}
    other = {"tiny": spent(prefill=2), "minilm": spent(embed=2)}
    return table(
        tmp_path,
        # two questions share d0, one has d1: an index counts once for each document
        pecan=[record(n, search, graph if n < 2 else {"tiny": spent(prefill=2)}) for n in range(3)],
        bm25=[record(0, {"tiny": spent(prefill=5)}, {}), record(1, {"tiny": spent(prefill=3)}, {})],
        sbert=[record(0, other, {"minilm": spent(embed=1)})],
    )


def test_the_parts_of_a_cost_are_means_and_an_index_counts_once_a_document(two_rows: TableData) -> None:
    costs = cell_costs(two_rows.cells["pecan", "qasper"].finished)
    q, index = costs.question, costs.index
    assert (q.total, q.reader, q.others, q.probes, q.without_probes) == (10, 8, 2, 1, 9)
    assert (index.total, index.reader, index.others) == (9, 3, 6)
    bm25 = two_rows.cells["bm25", "qasper"].finished
    assert bm25 is not None and cell_costs(bm25).question.total == 4 and cell_costs(bm25).index.total == 0


def test_shares_are_said_of_rows_that_have_them(two_rows: TableData) -> None:
    notes = about_shares(two_rows, costs_of(two_rows))
    assert notes == [
        "Of a question's TFLOPs, probes, which the papers count as free: PECAN 10 %.",
        "Of a question's TFLOPs, models other than the reader: PECAN 20 %, SBERT 50 %.",
        "Of the index's TFLOPs, models other than the reader: PECAN 67 %, SBERT 100 %.",
    ]
    for rendering in (render, amortised_table):
        assert notes[0] in rendering(two_rows, {}, costs_of(two_rows)).markdown()
    assert "probes" not in render(two_rows, {}).markdown()


def test_costs_by_part_are_a_view_of_a_table(two_rows: TableData) -> None:
    shown = costs_table(two_rows, costs_of(two_rows))
    by_row = {row[0].rpartition(": ")[2]: dict(zip(shown.columns, row, strict=True)) for row in shown.rows}
    assert by_row["PECAN"]["without probes"] == "9.00"
    assert by_row["BM25"]["reader × PECAN"] == "0.50" and by_row["SBERT"]["reader × PECAN"] == "0.25"
    assert by_row["SBERT"]["index: other models"] == "1.00" and by_row["BM25"]["index"] == "0"
