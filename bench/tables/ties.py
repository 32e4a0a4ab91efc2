"""The rows of each data set that share the first place by the table's first metric, and the ranks of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bench.results.finished import FinishedCell
from bench.results.standing import Standing, standings
from bench.tables.cells import TableData

Ties: TypeAlias = Mapping[tuple[str, str], Standing]
"""(row id, data set) -> standing; without the rows that were asked other questions than most."""


def ties_of(table: TableData) -> Ties:
    """The standings on every data set of the scored rows that share the questions, of several documents.

    Rows with the same cell, such as a Top-X that turned out to be Top-5, count once. Raises BenchError or
    DataError for records that cannot be read.
    """
    found: dict[tuple[str, str], Standing] = {}
    for dataset in table.definition.datasets:
        of_row = {cell.row.id: cell.finished for cell in table.of(dataset) if cell.finished is not None}
        cells = {cell.id: cell for cell in of_row.values() if cell.summary.n_scored}
        standing = _standings(table, list(cells.values()))
        found |= {(row, dataset): standing[cell.id] for row, cell in of_row.items() if cell.id in standing}
    return found


def _standings(table: TableData, cells: list[FinishedCell]) -> dict[str, Standing]:
    """Cell id -> standing, of the cells that share their questions with most others."""
    metric = table.definition.metrics[0]
    asked: list[dict[tuple[str, str], float]] = []
    for cell in cells:
        scored = (record for record in cell.read_records() if metric in record.scores)
        asked.append({(r.example_id, " ".join(r.document_ids)): r.scores[metric] for r in scored})
    same = max(asked, key=lambda one: sum(one.keys() == other.keys() for other in asked), default={})
    alike = [(cell, one) for cell, one in zip(cells, asked, strict=True) if one.keys() == same.keys()]
    clusters = [documents for _, documents in same]
    if len(alike) < 2 or len({*clusters}) < 2:
        return {}
    values = np.array([[one[question] for _, one in alike] for question in same])
    found = standings(values, clusters, rng=np.random.default_rng(0))
    return {cell.id: standing for (cell, _), standing in zip(alike, found, strict=True)}
