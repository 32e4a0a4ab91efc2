"""The cost of a question if 1, 2, 4 or 8 questions share its document's index (PECAN, Table A4)."""

from __future__ import annotations

from bench.results.records import TFLOP
from bench.tables.caption import about_amortised, about_shares, caption, without_values
from bench.tables.cells import TableCell, TableData
from bench.tables.cost_parts import AllCosts
from bench.tables.formats import DASH, TextTable, plain_table, three_digits
from bench.tables.price import QUESTIONS
from bench.tables.published import PublishedValues, as_printed


def amortised_table(table: TableData, published: PublishedValues, costs: AllCosts) -> TextTable:
    """One line per row and data set: index, question, and their total for each number of questions.

    published: the paper's values, for further columns. costs: of the cells, for the shares of their parts.
    """
    parts = {"_index": "index", "": "question", **{f"_total_{n}": f"total, {n} q." for n in QUESTIONS}}
    printed_parts = {
        part: name
        for part, name in parts.items()
        if any((row + part, dataset, "tflops") in published for row, dataset in table.cells)
    }
    columns = (
        "Data and method",
        *parts.values(),
        "pays from",
        *(f"{name} publ." for name in printed_parts.values()),
    )

    def values(cell: TableCell) -> list[str]:
        measured = [DASH] * (len(parts) + 1)
        if (summary := cell.summary) is not None:
            index, question = summary.index_flops, summary.query_flops.mean
            spent = (index, question, *(index / n + question for n in QUESTIONS))
            full = table.cells.get(("full_context", cell.dataset))
            measured = [*(three_digits(flops / TFLOP) for flops in spent), _break_even(cell, full)]
        places = ((cell.row.id + part, cell.dataset, "tflops") for part in printed_parts)
        return [*measured, *(as_printed(published, place) for place in places)]

    definition = table.definition
    return plain_table(
        definition.id,
        table.title,
        columns,
        table.lines(values),
        (*caption(table, amortised=True), about_amortised(published=bool(printed_parts))),
        (*about_shares(table, costs), *without_values(table)),
    )


def _break_even(cell: TableCell, full: TableCell | None) -> str:
    """Questions per document from which index and questions cost less than full context each time."""
    if cell.summary is None or full is None or full.summary is None or cell.row.id == full.row.id:
        return DASH
    saved = full.summary.query_flops.mean - cell.summary.query_flops.mean
    if saved <= 0:
        return "never"
    return f"{int(cell.summary.index_flops // saved) + 1:,}"
