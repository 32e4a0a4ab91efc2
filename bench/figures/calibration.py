"""Whether a search knows when it has read enough: p_yes of its steps against what it had read by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.method.trace import SearchTrace
from bench.metrics.auroc import auroc
from bench.metrics.retrieval import retrieval_quality
from bench.metrics.statistics import Interval
from bench.results.finished import FinishedCell
from bench.results.records import Record
from bench.schema import Example

BINS = 8
"""Most groups of equally many steps."""


class Judged(NamedTuple):
    """A step of a search at which the model was asked whether it has read enough."""

    p_yes: float
    holds_answer: bool
    """Whether a reference answer stands in what was read so far (:mod:`bench.metrics.retrieval`)."""
    document: str


@dataclass(frozen=True)
class Calibration:
    """The judged steps of a cell."""

    steps: tuple[Judged, ...]
    questions: int

    @property
    def auroc(self) -> Interval | None:
        """How often p_yes is higher with the answer than without it; None without such pairs."""
        confidences, labels, documents = zip(*self.steps, strict=True)
        return auroc(confidences, labels, documents, rng=np.random.default_rng(0))

    def bins(self) -> list[tuple[float, float, int]]:
        """Groups of equally many steps, lowest first: (mean p_yes, share with the answer, steps)."""
        ordered = sorted(self.steps, key=lambda step: step.p_yes)
        values = np.array([(step.p_yes, step.holds_answer) for step in ordered])
        groups = np.array_split(values, min(BINS, len(values)))
        return [(float(group[:, 0].mean()), float(group[:, 1].mean()), len(group)) for group in groups]


def calibration_of(cell: FinishedCell, examples: Sequence[Example]) -> Calibration:
    """The judged steps of a finished cell; empty for a method that is not asked, or does not search."""
    by_id = {example.id: example for example in examples}
    steps: list[Judged] = []
    questions = 0
    for record in cell.read_records():
        judged = _judged(record, by_id[record.example_id]) if record.example_id in by_id else []
        questions += bool(judged)
        steps += judged
    return Calibration(tuple(steps), questions)


def _judged(record: Record, example: Example) -> list[Judged]:
    """The judged steps of a question; none if no text needs to contain its answer."""
    search = None if record.error else SearchTrace.read(record.trace)
    if search is None or len(search.read_nodes) != len(record.context):
        return []
    steps, read = [], 0
    for step in search.steps:
        read += len(step.nodes)
        holds = retrieval_quality(record.context[:read], example).get("answer_in_context")
        if step.p_yes is not None and holds is not None:
            steps.append(Judged(step.p_yes, bool(holds), " ".join(record.document_ids)))
    return steps
