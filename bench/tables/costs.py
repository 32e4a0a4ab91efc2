"""A table's costs by part: with and without probes, of the reader and of the models beside it."""

from __future__ import annotations

from bench.tables.caption import COST_PARTS, about_shares, caption, without_values
from bench.tables.cells import TableCell, TableData
from bench.tables.cost_parts import AllCosts
from bench.tables.formats import DASH, TextTable, plain_table, three_digits


def costs_table(table: TableData, costs: AllCosts) -> TextTable:
    """One line per data set and row: cost of a question and of an index, total and by part."""
    definition = table.definition
    reference = definition.reference
    of_reference = () if reference is None else (f"reader × {reference.label}",)
    columns = (
        *("Data and method", "TFLOPs", "without probes", "reader", "other models", "probes", *of_reference),
        *("index", "index: reader", "index: other models", "n"),
    )

    def values(cell: TableCell) -> list[str]:
        cost = costs.get((cell.row.id, cell.dataset))
        if cost is None or cell.summary is None:
            return [DASH] * (len(columns) - 1)
        base = None if reference is None else costs.get((reference.id, cell.dataset))
        q, index = cost.question, cost.index
        ratio = f"{q.reader / base.question.reader:.2f}" if base and base.question.reader else DASH
        return [
            *map(three_digits, (q.total, q.without_probes, q.reader, q.others, q.probes)),
            *((ratio,) if of_reference else ()),
            *map(three_digits, (index.total, index.reader, index.others)),
            str(cell.summary.n),
        ]

    return plain_table(
        f"{definition.id}_costs",
        f"{table.title}: what the costs are made of",
        columns,
        table.lines(values),
        (*caption(table), COST_PARTS, *about_shares(table, costs)),
        without_values(table),
    )
