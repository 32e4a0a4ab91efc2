"""A corpus of small graphs on which text embeddings mislead: the network has something to learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from methods.gor.model import Shape
from methods.gor.ranking import best_first
from methods.gor.training import Recipe, TrainingGraph

DIM, NODES, QUERIES = 16, 24, 12
RECIPE = Recipe(
    shape=Shape("gat", dim=DIM, layers=2, heads=2, dropout=0.1, attention_dropout=0.1),
    loss="both",
    alpha=0.9,
    tau=1.0,
    in_batch_negatives=True,
    undirected=True,
    epochs=6,
    batch_graphs=4,
    learning_rate=1e-3,
    seed=0,
)


def corpus(graphs: int = 6, seed: int = 0, queries: int = QUERIES) -> list[TrainingGraph]:
    """Texts turned by one rotation against the queries about them, and linked where they mean the same."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(DIM, DIM)))[0]
    return [_graph(rng, turn, queries) for _ in range(graphs)]


def _graph(rng: np.random.Generator, turn: NDArray[np.float64], queries: int) -> TrainingGraph:
    meaning = rng.normal(size=(NODES, DIM))
    meaning /= np.linalg.norm(meaning, axis=1, keepdims=True)
    asked = rng.integers(NODES, size=queries)
    likeness = meaning[asked] @ meaning.T
    near = np.argsort(-(meaning @ meaning.T), axis=1)[:, 1:3]
    arcs = np.stack([np.repeat(np.arange(NODES), 2), near.ravel()])
    vectors = meaning[asked] + 0.05 * rng.normal(size=(queries, DIM))
    return TrainingGraph(
        (meaning @ turn).astype(np.float32),
        arcs.astype(np.int64),
        vectors.astype(np.float32),
        best_first(likeness.astype(np.float32)),
    )


def split(graph: TrainingGraph, learned: int) -> tuple[TrainingGraph, TrainingGraph]:
    """The graph with its first queries, and with the others."""
    return (
        replace(graph, queries=graph.queries[:learned], order=graph.order[:learned]),
        replace(graph, queries=graph.queries[learned:], order=graph.order[learned:]),
    )


def hits(nodes: NDArray[np.float32], graph: TrainingGraph, k: int) -> float:
    """Share of the queries whose best node is among the k most similar."""
    units = nodes / np.linalg.norm(nodes, axis=1, keepdims=True)
    nearest = np.argsort(-(graph.queries @ units.T), axis=1)[:, :k]
    return float((nearest == graph.order[:, :1]).any(axis=1).mean())
