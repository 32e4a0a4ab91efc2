"""What a node that has not been read is worth: attention score plus similarity (PECAN, Sec. 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Norm = Literal["sum1", "sum1_all", "ranks", "none"]

RANK_OFFSET = 60
"""Of reciprocal rank fusion (Cormack et al. 2009): how little the first ranks stand out."""


@dataclass(frozen=True)
class Scoring:
    """How the two scores become one."""

    norm: Norm
    attention_weight: float
    """Share of the attention score in 0..1; similarity has the rest."""

    def combine(
        self, attention: Floats | None, similarity: Floats | None, candidates: NDArray[np.intp]
    ) -> Floats:
        """The score of every candidate, shape (candidates,).

        attention, similarity: of every node, shape (nodes,); None if not ranked by. The two are scaled to a
        weight of 2 in all, so that equal weights are a plain sum.
        """
        if attention is None or similarity is None:
            weights = (1.0, 1.0)
        else:
            weights = (2 * self.attention_weight, 2 * (1 - self.attention_weight))
        total = np.zeros(len(candidates))
        for weight, part in zip(weights, (attention, similarity), strict=True):
            if part is not None:
                total += weight * self._normalised(part, candidates)
        return total

    def _normalised(self, part: Floats, candidates: NDArray[np.intp]) -> Floats:
        if self.norm == "sum1_all":
            return _sum_to_one(part)[candidates]
        if self.norm == "sum1":
            return _sum_to_one(part[candidates])
        if self.norm == "ranks":
            higher = np.searchsorted(np.sort(-part[candidates]), -part[candidates])  # candidates before each
            return np.asarray(1 / (RANK_OFFSET + 1 + higher))
        return part[candidates]


def _sum_to_one(values: Floats) -> Floats:
    """Values over their sum, with negative ones as 0; all 0 if none is positive."""
    positive = np.maximum(values, 0)
    total = positive.sum()
    return positive / total if total > 0 else positive
