"""The parts of a row's cost: the reader, the other models, and probing.

PECAN's paper counts probes as free ("no additional computational resources", Sec. 3.2.1) and an encoder as
negligible. Here both are metered: a probe closes the turn and reads logits, and an encoder that is negligible
next to 8 B parameters is larger than a small reader. So a table states their shares, and ``--columns costs``
shows them separately (:mod:`bench.tables.costs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench.flops.meter import Meter
from bench.results.finished import FinishedCell
from bench.results.records import TFLOP, Record, index_costs
from bench.tables.cells import TableData

MIN_SHARE = 0.01
"""Smallest share of a cost that a table mentions.  # our choice"""


@dataclass(frozen=True)
class CostParts:
    """Mean TFLOPs of a cell and its parts, per question, or of its indexes, per document set."""

    total: float
    reader: float
    """Cost of the model that answers, probes included."""
    probes: float
    """Cost of probing (closing the turn and reading logits), whichever model is probed."""

    @property
    def others(self) -> float:
        """Cost of the models other than the reader: encoders, a compressor, another builder."""
        return self.total - self.reader

    @property
    def without_probes(self) -> float:
        """The cost as PECAN's paper counts it."""
        return self.total - self.probes

    def share(self, part: float) -> float:
        """A part as a share of the total, 0..1."""
        return part / self.total if self.total else 0.0


@dataclass(frozen=True)
class CellCosts:
    """The costs of questions and of indexes."""

    question: CostParts
    index: CostParts


AllCosts: TypeAlias = Mapping[tuple[str, str], CellCosts]
"""(row id, data set) -> the costs of a finished cell."""


def costs_of(table: TableData) -> dict[tuple[str, str], CellCosts]:
    """The parts of the cost of every finished cell, read from its records."""
    return {key: cell_costs(cell.finished) for key, cell in table.cells.items() if cell.finished is not None}


def cell_costs(cell: FinishedCell) -> CellCosts:
    """The parts of a cell's costs; the index of each document set counts once."""
    reader = str(cell.description.models["reader"]["name"])
    records: list[Record] = list(cell.read_records())
    questions = [Meter.from_json(record.flops.query_by_model) for record in records]
    indexes = [Meter.from_json(index.index_by_model) for index in index_costs(records)]
    return CellCosts(_parts(questions, reader), _parts(indexes, reader))


def _parts(meters: Sequence[Meter], reader: str) -> CostParts:
    """The mean over the meters."""
    usage = Meter.combined(meters).usage
    of_reader = sum(use.flops for (model, _), use in usage.items() if model == reader)
    probes = sum(use.flops for (_, phase), use in usage.items() if phase == "probe")
    total = sum(use.flops for use in usage.values())
    return CostParts(*(flops / len(meters) / TFLOP for flops in (total, of_reader, probes)))
