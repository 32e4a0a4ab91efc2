"""How well a confidence tells right from wrong: the area under the ROC curve, documents resampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bench.metrics.statistics import LEVEL, RESAMPLES, Interval


def auroc(
    confidences: ArrayLike,
    labels: Sequence[bool],
    clusters: Sequence[str],
    strata: ArrayLike = 0,
    *,
    rng: np.random.Generator,
) -> Interval | None:
    """The share of pairs of a true and a false case in which the true one has the higher confidence.

    confidences: finite, shape (n,); labels, clusters: whether each case is true, and its document, length n.
    strata: shape (n,) or one for all; a pair has both cases of one. Equal confidences count half (Mann and
    Whitney 1947). The interval resamples documents; resamples without a pair are left out. None if there is
    no pair. Time and memory grow with the square of the number of documents.
    """
    values, truth = np.asarray(confidences, dtype=np.float64), np.asarray(labels, dtype=bool)
    names = {name: at for at, name in enumerate(dict.fromkeys(clusters))}
    document, stratum = np.array([names[name] for name in clusters]), np.broadcast_to(strata, values.shape)
    count = len(names)
    true, false = np.flatnonzero(truth)[:, None], np.flatnonzero(~truth)[None]
    paired = stratum[true] == stratum[false]
    if not paired.any():
        return None
    higher = np.where(paired, np.sign(values[true] - values[false]) / 2 + 0.5, 0)
    won, pairs = np.zeros((2, count, count))  # by true cases of one document over false cases of another
    for counts, of in ((won, higher), (pairs, paired)):
        np.add.at(counts, (document[true], document[false]), of)
    estimate = float(won.sum() / pairs.sum())
    if count == 1:
        reason = f"all {len(truth)} cases share one document"
        return Interval(mean=estimate, reason=reason)
    times = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    drawn_won, drawn = (np.einsum("ri,ij,rj->r", times, of, times, optimize=True) for of in (won, pairs))
    drawn = drawn_won[drawn > 0] / drawn[drawn > 0]
    if not len(drawn):
        return Interval(mean=estimate, reason="no resample has a pair")
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean=estimate, low=float(low), high=float(high))
