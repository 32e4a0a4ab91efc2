"""How large a difference a paired comparison could have shown, and how many questions another would need.

The mean of paired differences d_i over n questions on G documents has the standard error

    se = sqrt(G / (G - 1) * sum_g (s_g - n_g * mean)^2) / n,    s_g = sum of d_i of document g,

which counts a document's questions as one draw (Liang and Zeger 1986, for a mean). A two-sided test at level
alpha finds a true difference of (t_{1 - alpha/2} + t_power) * se in a share ``power`` of such samples; t has
G - 1 degrees of freedom. More questions, as many a document, shrink se with the square root of their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

POWER, LEVEL = 0.8, 0.05
FEWEST = 6
"""Documents: with five, the smallest p-value is 2 / 2^5, above ``LEVEL``, so that nothing is ever found."""


@dataclass(frozen=True)
class Power:
    """What a comparison of these differences can show."""

    detectable: float
    """The smallest true difference that a share ``POWER`` of such samples finds, 0..1."""
    n: int
    documents: int
    """Questions, and the documents that they are about."""

    def questions_for(self, difference: float) -> int:
        """How many questions find a true difference of this size, above 0, as often, as many per document."""
        ratio, documents = (self.detectable / difference) ** 2, float(self.documents)
        for _ in range(50):  # t has the degrees of freedom of the documents that are asked
            documents = self.documents * ratio * (_quantiles(documents) / _quantiles(self.documents)) ** 2
        return math.ceil(max(FEWEST, documents) * self.n / self.documents)


def _quantiles(documents: float) -> float:
    """t_{1 - alpha/2} + t_power with the degrees of freedom of so many documents, ``FEWEST`` or more."""
    from scipy.stats import t

    return float(t.ppf((1 - LEVEL / 2, POWER), max(FEWEST, documents) - 1).sum())


def power_of(differences: ArrayLike, clusters: Sequence[str]) -> Power | None:
    """The power of the comparison; None below ``FEWEST`` documents, and where nothing varied.

    differences: one number per question, shape (n,); clusters: the document of each.
    """
    values = np.asarray(differences, dtype=np.float64)
    _, position, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    count, n = len(sizes), len(values)
    if count < FEWEST:
        return None
    off = np.bincount(position, weights=values) - sizes * values.mean()
    se = math.sqrt(count / (count - 1) * float((off**2).sum())) / n
    return Power(_quantiles(count) * se, n, count) if se > 1e-12 else None
