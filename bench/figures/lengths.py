"""Scores and costs of finished cells by the length of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.data.lengths import LENGTH
from bench.results.finished import FinishedCell
from bench.schema import Example

GROUPS = 4
"""Groups of equally many questions, for data whose lengths nobody controlled."""


@dataclass(frozen=True)
class Grouped:
    """The questions of a data set by the length of their documents."""

    groups: tuple[tuple[float, frozenset[str]], ...]
    """Length and example ids of each group, shortest first."""
    unit: str


@dataclass(frozen=True)
class Point:
    """The means of a cell's questions at one length."""

    length: float
    questions: int
    score: float
    """0..100."""
    tflops: float


@dataclass(frozen=True)
class LengthPanel:
    """The rows of one data set."""

    dataset: str
    lines: Mapping[str, Sequence[Point]]
    """Label of the row -> its points."""
    unit: str


def grouped_by_length(examples: Sequence[Example]) -> Grouped:
    """The examples by the length that they were made for, else in quarters by words of their documents."""
    made = {example.id: example.metadata.get(LENGTH) for example in examples}
    if None not in made.values():
        lengths = sorted({float(length) for length in made.values() if length is not None})
        groups = ((one, frozenset(id_ for id_, length in made.items() if length == one)) for one in lengths)
        return Grouped(tuple(groups), "tokens")
    words = {e.id: sum(len(d.full_text.split()) for d in e.documents.documents) for e in examples}
    ordered = sorted(words, key=lambda id_: words[id_])
    size, more = divmod(len(ordered), min(GROUPS, len(ordered)) or 1)
    quarters, start = [], 0
    for group in range(min(GROUPS, len(ordered))):
        ids = ordered[start : start + size + (group < more)]
        start += len(ids)
        quarters.append((fmean(words[id_] for id_ in ids), frozenset(ids)))
    return Grouped(tuple(quarters), "words")


def at_length(cell: FinishedCell, grouped: Grouped, metric: str) -> list[Point]:
    """The points of a finished cell; questions without a reference are in no score."""
    records = list(cell.read_records())
    points = []
    for length, ids in grouped.groups:
        own = [record for record in records if record.example_id in ids]
        scored = [record.scores[metric] for record in own if record.answers]
        if scored:
            tflops = fmean(record.flops.query_tflops for record in own)
            points.append(Point(length, len(own), 100 * fmean(scored), tflops))
    return points
