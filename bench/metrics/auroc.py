"""How well a confidence tells right from wrong: the area under the ROC curve, documents resampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bench.metrics.statistics import LEVEL, RESAMPLES, Interval


def auroc(
    confidences: ArrayLike, labels: Sequence[bool], clusters: Sequence[str], *, rng: np.random.Generator
) -> Interval | None:
    """The share of pairs of a true and a false case in which the true one has the higher confidence.

    confidences: finite, shape (n,); labels, clusters: whether each case is true, and its document, length n.
    Equal confidences count half (Mann and Whitney 1947). The interval resamples documents; resamples without
    a true or without a false case are left out. None if there is no pair. Time and memory grow with the
    square of the number of documents.
    """
    values, truth = np.asarray(confidences, dtype=np.float64), np.asarray(labels, dtype=bool)
    if not truth.any() or truth.all():
        return None
    names = {name: at for at, name in enumerate(dict.fromkeys(clusters))}
    document = np.array([names[name] for name in clusters])
    count = len(names)
    true, false = np.flatnonzero(truth), np.flatnonzero(~truth)
    higher = np.sign(values[true][:, None] - values[false][None]) / 2 + 0.5
    won = np.zeros((count, count))  # by true cases of one document over false cases of another
    np.add.at(won, (document[true][:, None], document[false][None]), higher)
    trues, falses = (np.bincount(document[of], minlength=count) for of in (true, false))
    estimate = float(higher.mean())
    if count == 1:
        reason = f"all {len(truth)} cases share one document"
        return Interval(estimate, None, None, len(truth), count, reason)
    times = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    pairs = (times @ trues) * (times @ falses)
    drawn = np.einsum("ri,ij,rj->r", times, won, times, optimize=True)[pairs > 0] / pairs[pairs > 0]
    if not len(drawn):
        return Interval(estimate, None, None, len(truth), count, "no resample has a pair")
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(estimate, float(low), float(high), len(truth), count)
