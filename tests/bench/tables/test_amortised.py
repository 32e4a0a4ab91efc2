from __future__ import annotations

from bench.tables.amortised import amortised_table
from bench.tables.cells import TableCell
from bench.tables.definition import Row
from bench.tables.formats import TextTable
from tests import cells


def cell(row: str, index: float, query: float) -> TableCell:
    of = cells.summary(index_flops=1e12 * index, query_flops={"mean": 1e12 * query})
    about = cells.description(data_label="")
    return TableCell(Row(id=row, label=row.upper(), method=row), "qasper", cells.finished(of, about))


def table(*shown: TableCell) -> TextTable:
    return amortised_table(cells.table(*shown, kind="amortised"), {}, {})


def test_the_index_is_shared_by_the_questions() -> None:
    (row,) = table(cell("pecan", index=8, query=1)).rows
    assert row[1:7] == ("8.00", "1.00", "9.00", "5.00", "3.00", "2.00")


def test_an_index_pays_from_the_first_question_at_which_it_is_cheaper() -> None:
    costs = {"full_context": (0, 5), "pecan": (8, 1), "dear": (1, 6), "even": (8, 3), "free": (0, 1)}
    rows = table(*(cell(row, *cost) for row, cost in costs.items())).rows
    pays = {row[0].partition(": ")[2]: row[-1] for row in rows}
    # pecan: 8 + n < 5n from n = 3 (11 < 15); even: 8 + 3n = 5n at n = 4, so cheaper from 5
    assert pays == {"FULL_CONTEXT": "–", "PECAN": "3", "DEAR": "never", "EVEN": "5", "FREE": "1"}


def test_a_row_that_was_not_run_shows_dashes_and_why() -> None:
    missing = TableCell(Row(id="x", label="X", method="x"), "qasper", None, "not run yet")
    rendered = table(cell("full_context", 0, 5), missing)
    assert "| qasper: X" in rendered.markdown() and "Without values: X: not run yet." in rendered.markdown()
    assert rendered.latex().count(r"\\") == 3 and "qasper: X,," in rendered.csv
