"""Which rows share the first place, and between which ranks each may stand: many methods, the same questions.

A row is in the top group unless the permutation test of :mod:`bench.results.comparison` tells it from the
row with the highest mean. The same questions choose that row, so Holm's correction is over all pairs of rows:
over the pairs with the best row alone, a level of .05 would tell some of 14 equal rows from it in 15 % of
tables of 48 documents; over all pairs, in 3 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.metrics.statistics import RESAMPLES, sums_by_cluster
from bench.results.comparison import PERMUTATIONS, TOLERANCE, blocks, holm, p_values_of_pairs
from bench.results.power import LEVEL, Power, power_of


@dataclass(frozen=True)
class Standing:
    """Where a row stands among the rows that were asked the same questions."""

    top: bool
    """Whether it is the best row, or not told from it; of no row if so few documents could tell none."""
    rank: int
    """1 + the number of rows with a higher mean."""
    low: int
    high: int
    """95 % interval of the rank, documents resampled."""
    power: Power | None
    """Of the best row's difference from this one; None for that row, and where there is no telling."""


def standings(values: ArrayLike, clusters: Sequence[str], *, rng: np.random.Generator) -> list[Standing]:
    """The standing of each row by its mean, in the order of the columns of ``values``.

    values: finite scores, shape (questions, rows), higher is better; clusters: the document of each question,
    of two or more documents. Tests are two-sided at ``LEVEL``, exact up to ``EXACT_DOCUMENTS`` documents.
    Source: Holm 1979; of the rank intervals, percentiles of the cluster bootstrap, Davison and Hinkley 1997,
    Sec. 3.8.
    """
    values = np.asarray(values, dtype=np.float64)
    sums = sums_by_cluster(values, clusters)
    totals = sums.sum(axis=0)
    one, other = np.triu_indices(len(totals), k=1)
    needed = int(2 * len(one) / LEVEL)  # the smallest p-value is then half of what Holm's correction asks
    p_values = p_values_of_pairs(sums, one, other, rng=rng, draws=max(PERMUTATIONS, needed))
    best = int(totals.argmax())
    decidable = 2.0 ** (1 - len(sums)) * len(p_values) < LEVEL
    told = {(int(i), int(j)) for i, j, p in zip(one, other, holm(p_values), strict=True) if p < LEVEL}
    low, high = np.quantile(
        np.concatenate([_ranks(drawn @ sums) for drawn in _resampled(len(sums), rng)]),
        (LEVEL / 2, 1 - LEVEL / 2),
        axis=0,
        method="inverted_cdf",
    )
    return [
        Standing(
            top=decidable and (min(row, best), max(row, best)) not in told,
            rank=int(rank),
            low=int(low[row]),
            high=int(high[row]),
            power=power_of(values[:, best] - values[:, row], clusters),
        )
        for row, rank in enumerate(_ranks(totals))
    ]


def _resampled(documents: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """How often each document is drawn, shape (resamples, documents) over all blocks."""
    for block in blocks(RESAMPLES, documents):
        yield rng.multinomial(documents, np.full(documents, 1 / documents), size=len(block))


def _ranks(totals: NDArray[np.float64]) -> NDArray[np.int64]:
    """1 + the number of higher ones, along the last axis."""
    higher = totals[..., None, :] > totals[..., :, None] + TOLERANCE
    return np.asarray(1 + higher.sum(axis=-1))
