"""Paired comparison of two cells: difference in score, its significance, and the ratio of their costs.

Questions about one document succeed and fail together, so intervals resample documents and the permutation
test swaps the two methods document by document (Good 2005, Sec. 3.6: paired comparisons).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.errors import ConfigError
from bench.metrics.statistics import (
    Interval,
    clustered_bootstrap,
    clustered_bootstrap_of,
    ratio_of_sums,
    sums_by_cluster,
)
from bench.results.power import Power, power_of
from bench.results.records import Record

EXACT_DOCUMENTS = 14
"""Up to this many documents, all 2^n swaps are tried; beyond, ``PERMUTATIONS`` random ones."""
PERMUTATIONS = 10_000
TOLERANCE = 1e-9
"""Sums that differ by less are equal: they differ in the order of addition alone."""
_BLOCK = 1 << 22
"""Most draws, times documents or pairs of rows, held in memory at a time."""


@dataclass(frozen=True)
class Pair:
    """The records of one question in both cells."""

    first: Record
    second: Record

    def difference(self, metric: str) -> float:
        """Score of the first cell minus score of the second, in -1..1."""
        return self.first.scores[metric] - self.second.scores[metric]


@dataclass(frozen=True)
class Comparison:
    """The first cell against the second, on the questions they share."""

    metric: str
    first: float
    second: float
    """Means of the metric, 0..1."""
    difference: Interval
    """First minus second."""
    p_value: float
    """Two-sided, of the permutation test: the share of random swaps that differ as much."""
    power: Power | None
    """How large a difference these questions could have shown; None if there is no telling."""
    flop_ratio: Interval | None
    """Sum of the first cell's query FLOPs over that of the second; None if that is 0."""
    better: int
    equal: int
    worse: int
    """Questions on which the first cell scores higher, the same, lower."""
    pairs: tuple[Pair, ...]
    """In the order of the first cell."""
    documents: int
    """That the pairs are about, or sets of documents."""
    only_first: int
    only_second: int
    """Questions that only one cell has; they are left out."""


def compare(first: Sequence[Record], second: Sequence[Record], metric: str) -> Comparison:
    """The paired comparison of two cells' records; failed questions score 0 and keep their cost.

    Raises ConfigError for a metric without a value per question, for cells without a common question, and
    for an example id that names different questions. Questions without a reference answer are left out.
    """
    scored = [[r for r in records if r.answers or r.scores] for records in (first, second)]
    for records, with_answers in zip((first, second), scored, strict=True):
        if records and not with_answers:
            raise ConfigError("none of these questions has a reference answer, so there are no scores.")
        if any(metric not in record.scores for record in with_answers):
            available = ", ".join(sorted(set.intersection(*(set(r.scores) for r in with_answers))))
            raise ConfigError(f"no value of {metric!r} per question; these records have: {available}.")
    pairs = paired(*scored)
    clusters = [" ".join(pair.first.document_ids) for pair in pairs]
    differences = np.array([pair.difference(metric) for pair in pairs])
    cost = np.array([[p.first.flops.query, p.second.flops.query] for p in pairs], dtype=np.float64)
    rng = np.random.default_rng([0, len(pairs)])
    return Comparison(
        metric=metric,
        first=float(np.mean([p.first.scores[metric] for p in pairs])),
        second=float(np.mean([p.second.scores[metric] for p in pairs])),
        difference=clustered_bootstrap(differences, clusters, rng=rng),
        p_value=permutation_p_value(differences, clusters, rng=rng),
        power=power_of(differences, clusters),
        flop_ratio=clustered_bootstrap_of(cost, clusters, ratio_of_sums, rng=rng) if any(cost.T[1]) else None,
        better=int((differences > TOLERANCE).sum()),
        equal=int((abs(differences) <= TOLERANCE).sum()),
        worse=int((differences < -TOLERANCE).sum()),
        pairs=pairs,
        documents=len(set(clusters)),
        only_first=len(scored[0]) - len(pairs),
        only_second=len(scored[1]) - len(pairs),
    )


def paired(first: Sequence[Record], second: Sequence[Record]) -> tuple[Pair, ...]:
    """The questions of both cells, in the order of the first.

    Raises ConfigError if there are none, or if an example id names different questions or references.
    """
    by_id = {record.example_id: record for record in second}
    pairs = tuple(Pair(record, by_id[record.example_id]) for record in first if record.example_id in by_id)
    if not pairs:
        raise ConfigError("the two cells have no question in common, so there is nothing to compare.")
    for pair in pairs:
        if pair.first.document_ids != pair.second.document_ids or pair.first.question != pair.second.question:
            raise ConfigError(f"question {pair.first.example_id} is not the same one in the two cells.")
        if pair.first.answers and pair.second.answers and pair.first.answers != pair.second.answers:
            raise ConfigError(
                f"question {pair.first.example_id} has other reference answers in the two cells: the data "
                "were changed in between. Run the earlier one again."
            )
    return pairs


def permutation_p_value(
    differences: ArrayLike, clusters: Sequence[str], *, rng: np.random.Generator
) -> float:
    """Two-sided p-value of a mean difference of 0; swaps the signs of all questions of a document at once.

    differences: one number per question, shape (n,); clusters: the document id of each. Exact up to
    ``EXACT_DOCUMENTS`` documents; else (hits + 1) / (``PERMUTATIONS`` + 1), which is never 0.
    """
    values = np.asarray(differences, dtype=np.float64)
    sums = sums_by_cluster(np.stack([values, np.zeros_like(values)], axis=1), clusters)
    (p_value,) = p_values_of_pairs(sums, np.array([0]), np.array([1]), rng=rng)
    return p_value


def p_values_of_pairs(
    sums: NDArray[np.float64],
    one: NDArray[np.intp],
    other: NDArray[np.intp],
    *,
    rng: np.random.Generator,
    draws: int = PERMUTATIONS,
) -> list[float]:
    """:func:`permutation_p_value` of pairs of rows, one[i] against other[i], all with the same swaps.

    sums: the scores of each document's questions added up, shape (documents, rows).
    """
    observed = np.abs(sums.sum(axis=0)[one] - sums.sum(axis=0)[other])[:, None] - TOLERANCE
    hits, exact, documents = np.zeros(len(one)), len(sums) <= EXACT_DOCUMENTS, np.arange(len(sums))
    draws = 2 ** len(sums) if exact else draws
    for block in blocks(draws, max(len(sums), len(one))):
        bits = (
            np.array(block)[:, None] >> documents & 1
            if exact
            else rng.integers(2, size=(len(block), len(sums)))
        )
        swapped = sums.T @ (2.0 * bits.T - 1)
        hits += (np.abs(swapped[one] - swapped[other]) >= observed).sum(axis=1)
    shares = hits / draws if exact else (hits + 1) / (draws + 1)
    return [float(share) for share in shares]


def blocks(draws: int, width: int) -> Iterator[range]:
    """The draws in parts whose arrays, ``width`` numbers a draw, fit into memory."""
    size = max(1, _BLOCK // width)
    yield from (range(start, min(start + size, draws)) for start in range(0, draws, size))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values in their order, corrected for their number (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted
