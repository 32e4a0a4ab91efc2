"""Personalised PageRank, by which LinearRAG and HippoRAG rank the passages of their graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEPS = 60
"""Steps of PageRank: what is left is at most the damping factor to that power."""


def page_rank(
    restart: NDArray[np.float64],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    weights: NDArray[np.float64],
    *,
    damping: float,
) -> NDArray[np.float64]:
    """Personalised PageRank of an undirected graph, shape (nodes,), sum 1.

    restart: weight of each node, negative counts as 0; first, second, weights: its edges. Nodes without an
    edge pass what they have to the restart, as in igraph.
    """
    start = np.maximum(np.nan_to_num(restart), 0)
    start = start / start.sum() if start.sum() else np.full(len(start), 1 / len(start))
    source, target, weight = (
        np.concatenate(pair) for pair in ((first, second), (second, first), (weights, weights))
    )
    leaving = np.bincount(source, weight, len(start))
    share = np.divide(weight, leaving[source], out=np.zeros_like(weight), where=leaving[source] > 0)
    rank = start
    for _ in range(STEPS):
        moved = np.bincount(target, share * rank[source], len(start)) + rank[leaving == 0].sum() * start
        rank = (1 - damping) * start + damping * moved
    return rank


def min_max(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values from 0 to 1; all 1 where they are equal."""
    span = values.max() - values.min()
    return np.asarray((values - values.min()) / span if span > 1e-6 else np.ones_like(values), np.float64)
