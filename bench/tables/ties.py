"""The rows of each data set that share the first place by the table's first metric, and the ranks of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bench.results.finished import FinishedCell
from bench.results.standing import Standing, standings
from bench.tables.cells import TableData
from bench.tables.export import question_values

Ties: TypeAlias = Mapping[tuple[str, str], Standing]
"""(row id, data set) -> standing; without the data sets whose rows were asked different questions."""


def ties_of(table: TableData) -> Ties:
    """The standings on every data set whose scored rows were asked the same questions of several documents.

    Rows with the same cell, such as a Top-X that turned out to be Top-5, count once. Raises BenchError or
    DataError for records that cannot be read.
    """
    found: dict[tuple[str, str], Standing] = {}
    for dataset in table.definition.datasets:
        of_row = {cell.row.id: cell.finished for cell in table.of(dataset) if cell.finished is not None}
        cells = {cell.id: cell for cell in of_row.values() if cell.summary.n_scored}
        standing = dict(zip(cells, _standings(table, list(cells.values())), strict=False))
        found |= {(row, dataset): standing[cell.id] for row, cell in of_row.items() if cell.id in standing}
    return found


def _standings(table: TableData, cells: list[FinishedCell]) -> list[Standing]:
    """Of the cells in their order; none if they cannot be compared question by question."""
    metric = table.definition.metrics[0]
    asked = [
        {key: of for key, of in question_values(table.definition, cell).items() if metric in of.values}
        for cell in (cells if len(cells) > 1 else ())
    ]
    documents = [{key: of.documents for key, of in one.items()} for one in asked]
    if not asked or any(other != documents[0] for other in documents) or len({*documents[0].values()}) < 2:
        return []
    clusters = list(documents[0].values())
    values = np.array([[one[key].values[metric] for one in asked] for key in asked[0]])
    return standings(values, clusters, rng=np.random.default_rng(0))
