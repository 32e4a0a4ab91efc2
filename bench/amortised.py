"""What a question costs when its document's index is shared by 1, 2, 4 or 8 of them (PECAN, Table A4)."""

from __future__ import annotations

from bench.plain_tables import PlainTable
from bench.rendering import DASH, caption, three_digits, without_values
from bench.tables import TableCell, TableData

QUESTIONS = (1, 2, 4, 8)
"""Questions per document (PECAN, Table A4)."""


def amortised_cost(cell: TableCell, questions: int) -> float | None:
    """TFLOPs per question: the document's index shared by ``questions`` of them, and the question itself."""
    if cell.summary is None:
        return None
    index, query = float(cell.summary["index_flops"]), float(cell.summary["query_flops"]["mean"])
    return (index / questions + query) / 1e12


def amortised_table(table: TableData) -> PlainTable:
    """A line for each row and data set: index, question, and both together for each number of questions."""
    columns = ("Data and method", "index", "question", *(f"total, {n} q." for n in QUESTIONS), "pays from")
    rows = []
    for dataset in table.definition.datasets:
        for row in table.definition.rows:
            cell = table.cells[row.id, dataset]
            if cell.summary is None:
                rows.append((f"{dataset}: {row.label}", *[DASH] * (len(columns) - 1)))
                continue
            totals = [amortised_cost(cell, n) for n in QUESTIONS]
            rows.append(
                (
                    f"{_label(cell)}: {row.label}",
                    three_digits(float(cell.summary["index_flops"]) / 1e12),
                    three_digits(float(cell.summary["query_flops"]["mean"]) / 1e12),
                    *(DASH if total is None else three_digits(total) for total in totals),
                    _break_even(cell, table.cells.get(("full_context", dataset))),
                )
            )
    said = [
        s.replace("TFLOPs are query-dependent, mean per question", "Cost is in TFLOPs")
        for s in caption(table)
    ]
    about = (
        "Index: once per document, mean over documents. Question: what each question adds. Total, n q.: "
        "both, per question, when n questions share a document. Pays from: questions per document from "
        "which index and questions together cost less than full context.",
    )
    definition, missing = table.definition, tuple(without_values(table))
    return PlainTable(definition.id, definition.title, columns, tuple(rows), (*said, *about), missing)


def _label(cell: TableCell) -> str:
    return str((cell.description or {}).get("data_label", cell.dataset))


def _break_even(cell: TableCell, full: TableCell | None) -> str:
    """Questions per document from which index and questions cost less than reading everything each time."""
    if cell.summary is None or full is None or full.summary is None or cell.row.id == full.row.id:
        return DASH
    saved = float(full.summary["query_flops"]["mean"]) - float(cell.summary["query_flops"]["mean"])
    if saved <= 0:
        return "never"
    return f"{int(float(cell.summary['index_flops']) // saved) + 1:,}"
