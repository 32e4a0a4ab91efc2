"""The cost of a sweep before it starts, counted and estimated from the records that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.method.options import as_typed
from bench.results.finished import records_so_far
from bench.results.index_store import index_key
from bench.results.records import TFLOP, Record
from bench.run.cell import Cell
from bench.run.cell_folder import other_cell_in
from bench.run.session import Session
from bench.sweeps.grid import GridCell


@dataclass(frozen=True)
class GroupCost:
    """Cells that share one run per question: how much is done, and the cost of the rest."""

    cells: tuple[GridCell, ...]
    finished: int
    """Cells that are finished."""
    to_ask: int
    """Questions without a record in at least one cell; each is asked once for all cells."""
    to_index: int
    """Document sets without an index; an index that several groups share counts for the first."""
    flops: float | None
    """Estimated FLOPs of the rest, from the records of this group; None: there are none to tell."""


COLUMNS = ("cells", "data", "model", "cells in all", "finished", "to ask", "to index", "TFLOPs left")


def cost_rows(costs: Sequence[GroupCost]) -> list[tuple[str, ...]]:
    """The groups as rows of text below ``COLUMNS``, with a line of totals."""
    counts = [(len(cost.cells), cost.finished, cost.to_ask, cost.to_index) for cost in costs]
    rows = [
        (
            group_title(cost.cells),
            cost.cells[0].cell.data.label,
            cost.cells[0].cell.reader.label,
            *map(str, of_group),
            "?" if cost.flops is None else f"{cost.flops / TFLOP:.3g}",
        )
        for cost, of_group in zip(costs, counts, strict=True)
    ]
    if len(rows) > 1:
        sums = map(sum, zip(*counts, strict=True))
        known = sum(cost.flops or 0.0 for cost in costs) / TFLOP
        unknown = " + ?" if any(cost.flops is None for cost in costs) else ""
        rows.append(("total", "", "", *map(str, sums), f"{known:.3g}{unknown}"))
    return rows


def survey(groups: Sequence[Sequence[GridCell]], session: Session) -> list[GroupCost]:
    """The status of each group; nothing is run."""
    counted: set[tuple[str, str]] = set()
    return [_group_status(tuple(group), session, counted) for group in groups]


def group_title(cells: Sequence[GridCell]) -> str:
    """The method with the options that all cells of the group share."""
    first = cells[0]
    request, own = first.cell.request, first.point.keys() & first.cell.method.replayed
    options = (f"{key}={as_typed(value)}" for key, value in request.options.items() if key not in own)
    return " ".join([request.method, *options])


def _group_status(cells: tuple[GridCell, ...], session: Session, counted: set[tuple[str, str]]) -> GroupCost:
    first = cells[0].cell
    examples = {example.id: example.documents.id for example in first.data.examples}
    finished = 0
    query_flops: list[float] = []
    index_flops: list[float] = []
    missing: set[str] = set()
    for member in cells:
        found = session.finished(member.cell)
        if found is not None and not (session.asking.retry_failed and found.summary.n_failed):
            finished += 1
            query_flops.append(found.summary.query_flops.mean)
            index_flops.append(found.summary.index_flops)
            continue
        records = _records(member.cell, session)
        missing |= examples.keys() - {record.example_id for record in records}
        if records:
            query_flops.append(fmean(record.flops.query for record in records))
            index_flops.append(fmean(record.flops.index for record in records))
    to_index = 0
    for documents in {examples[id_] for id_ in missing}:
        key = index_key({**first.index_key_parts(), "documents": documents})
        if (first.index_name, key) not in counted and not session.indexes.has(first.index_name, key):
            to_index += 1
        counted.add((first.index_name, key))
    flops = None
    if query_flops or not missing:  # the cell that reads most pays for those that replay it
        flops = len(missing) * max(query_flops, default=0.0) + to_index * max(index_flops, default=0.0)
    return GroupCost(cells, finished, len(missing), to_index, flops)


def _records(cell: Cell, session: Session) -> list[Record]:
    """The records of the cell's questions, from a file that may still be growing; takes no lock.

    Empty for a folder of another cell, which a run would refuse.
    """
    folder = cell.folder(session.results)
    if other_cell_in(cell, folder) is not None:
        return []
    expected, again = {example.id for example in cell.data.examples}, session.asking.retry_failed
    records = records_so_far(folder).values()
    return [r for r in records if r.example_id in expected and not (again and r.error)]
