"""Confidence intervals that resample documents, since questions share them.

Questions about one document succeed and fail together, so whole documents are resampled, never single
questions. Values are arrays with one row per question, aligned with the questions' document ids. Two
methods on the same questions are compared by their differences: those are again values of that form.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict

RESAMPLES = 2000
"""Default number of bootstrap resamples.  # our choice"""
LEVEL = 0.95
"""Nominal coverage of every interval."""

_BLOCK = 1 << 18
"""Most document draws held in memory at a time."""


class Interval(BaseModel):
    """An estimate with its 95 % interval, documents resampled; files keep the fields that are set."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    mean: float
    """The estimate from the data themselves: a mean, or the value of a corpus-level metric."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Why there is no interval; empty if there is one."""
    n: int | None = None
    """Questions for which a measure of the contexts is defined; None for a score."""

    def scaled(self, factor: float) -> Interval:
        """All three values times ``factor``."""
        low, high = (None if bound is None else factor * bound for bound in (self.low, self.high))
        return Interval(mean=factor * self.mean, low=low, high=high, reason=self.reason)


def clustered_bootstrap(
    values: ArrayLike, clusters: Sequence[str], *, rng: np.random.Generator, n_resamples: int = RESAMPLES
) -> Interval:
    """The mean of ``values`` over questions, with its interval under resampling of documents.

    values: one finite number per question, shape (n,); for two methods on the same questions, their
    differences. clusters: the document id of each question, length n.
    The result does not depend on the order of the questions beyond rounding.
    Raises ValueError for no question, lengths that differ, or values that are not finite.
    Source: cluster bootstrap, Davison and Hinkley 1997, Sec. 3.8; percentile interval, Efron 1979.
    """
    column = np.asarray(values, dtype=np.float64)
    rows = np.stack([column, np.ones_like(column)], axis=1)
    return clustered_bootstrap_of(rows, clusters, ratio_of_sums, rng=rng, n_resamples=n_resamples)


def clustered_bootstrap_of(
    statistics: ArrayLike,
    clusters: Sequence[str],
    value: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    rng: np.random.Generator,
    n_resamples: int = RESAMPLES,
) -> Interval:
    """A value of summed statistics (a corpus metric), with its interval under resampling of documents.

    statistics: finite numbers that add up over questions, shape (n, k). clusters: the document id of
    each question, length n. value: sums, shape (..., k), to the estimate, shape (...), for example
    ``corpus_bleu_4``; no interval if resamples have none, as a ratio over 0. Otherwise as
    :func:`clustered_bootstrap`.
    """
    rows = np.asarray(statistics, dtype=np.float64)
    _check(rows, clusters)
    sums = sums_by_cluster(rows, clusters)
    n, documents = len(rows), len(sums)
    estimate = float(value(sums.sum(axis=0)))
    if documents == 1:
        reason = f"all {n} questions share one document" if n > 1 else "there is one question only"
        return Interval(mean=estimate, low=None, high=None, reason=reason)
    from scipy import stats

    def estimates(*columns: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return value(np.stack([column.sum(axis=axis) for column in columns], axis=-1))

    with warnings.catch_warnings(action="ignore", category=stats.DegenerateDataWarning):
        low, high = stats.bootstrap(
            tuple(sums.T),
            estimates,
            paired=True,
            n_resamples=n_resamples,
            batch=max(1, _BLOCK // documents),
            confidence_level=LEVEL,
            method="percentile",
            rng=rng,
        ).confidence_interval
    if not np.isfinite([low, high]).all():
        reason = "resamples of these documents have no value"
        return Interval(mean=estimate, low=None, high=None, reason=reason)
    return Interval(mean=estimate, low=float(low), high=float(high), reason="")


def ratio_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first sum over the second, shape (..., 2) to (...); not finite over 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])


def sums_by_cluster(rows: NDArray[np.float64], clusters: Sequence[str]) -> NDArray[np.float64]:
    """Sums of the rows of each cluster, shape (documents, k), in the order of the sorted ids."""
    ids, position = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.zeros((len(ids), rows.shape[1]))
    np.add.at(sums, position, rows)
    return sums


def _check(rows: NDArray[np.float64], clusters: Sequence[str]) -> None:
    if len(rows) != len(clusters):
        raise ValueError(f"{len(rows)} questions but {len(clusters)} document ids; expected as many.")
    if not len(rows):
        raise ValueError("Cannot average zero questions.")
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise ValueError(f"The value of question {row} is not finite; a failed question counts 0.")
