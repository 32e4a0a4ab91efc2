from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.flops.meter import Meter, metered
from bench.models.spec import resolve
from bench.schema import Chunk, Index, Question
from methods.gor.node2vec import SKIP_GRAM, Node2Vec, random_walks, skip_gram
from methods.gor.records import Node, Records
from methods.gor.retrieval import RecordsConfig
from tests.methods.writers import needs_gensim

GEOMETRY = resolve("tiny").geometry
# A square 0-1-2-3 with the diagonal 0-2, and 4 hanging on 3; 5 alone.
EDGES = np.array([[0, 1, 2, 3, 0, 3], [1, 2, 3, 0, 2, 4]])
NEAR = {0: {1, 2, 3}, 1: {0, 2}, 2: {0, 1, 3}, 3: {0, 2, 4}, 4: {3}, 5: set[int]()}


def walks(count: int = 5, length: int = 12, seed: int = 0) -> list[list[int]]:
    return random_walks(6, EDGES, walks=count, length=length, rng=np.random.default_rng(seed))


def test_walks_follow_edges_from_every_node() -> None:
    paths = walks()
    assert Counter(walk[0] for walk in paths) == dict.fromkeys(range(6), 5)
    for walk in paths:
        assert len(walk) == (12 if walk[0] != 5 else 1)
        assert all(b in NEAR[a] for a, b in zip(walk, walk[1:], strict=False))


def test_walks_are_those_of_their_seed() -> None:
    assert walks(seed=3) == walks(seed=3) != walks(seed=4)
    assert random_walks(0, EDGES[:, :0], walks=2, length=3, rng=np.random.default_rng(0)) == []


@needs_gensim
def test_nodes_that_meet_on_walks_get_similar_vectors() -> None:
    """Two cliques of six joined by one edge."""
    inside = [(a, b) for a in range(6) for b in range(a)]
    edges = np.array([*inside, *((a + 6, b + 6) for a, b in inside), (0, 6)]).T
    paths = random_walks(12, edges, walks=40, length=30, rng=np.random.default_rng(0))
    with metered(Meter()) as meter:
        vectors = skip_gram(paths, 12, dimensions=16, window=3, passes=5, seed=0)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = units @ units.T
    same = np.equal.outer(np.arange(12) < 6, np.arange(12) < 6) & ~np.eye(12, dtype=bool)
    assert likeness[same].mean() > likeness[~same & ~np.eye(12, dtype=bool)].mean() + 0.2
    met = [min(abs(a - b), 4) for n in map(len, paths) for a in range(n) for b in range(n)]
    pairs = 3 * met.count(1) + 2 * met.count(2) + met.count(3)  # thirds: a window is 1, 2 or 3
    assert meter.usage[SKIP_GRAM, "walk"].flops == pairs * 5 // 3 * 6 * 6 * 16
    np.testing.assert_array_equal(vectors, skip_gram(paths, 12, dimensions=16, window=3, passes=5, seed=0))


@needs_gensim
@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_graphs_without_edges_have_vectors_too(nodes: int) -> None:
    index = Index({"queries": []}, {"embeddings": np.ones((nodes, 4), np.float32)})
    vectors = Node2Vec(RecordsConfig(), GEOMETRY).finish(index, None).arrays["vectors"]
    assert vectors.shape == (nodes, 128) and np.isfinite(vectors).all()


@needs_gensim
def test_the_question_stands_where_its_record_would() -> None:
    texts = np.eye(4, dtype=np.float32)
    nodes = tuple(Node(f"t{i}", Chunk(0, i, i, i + 1, f"t{i}", 1)) for i in range(4))
    records = Records(nodes, (), texts, texts[:0], {})
    vectors = np.array([[1, 0], [0, 1], [1, 1], [-1, -1]], np.float32)
    asked = np.array([[0.9, 0.8, 0.0, 0.1]], np.float32)

    async def embed(texts: list[str], *, exact: bool = False) -> np.ndarray[Any, Any]:
        return asked

    method = Node2Vec(RecordsConfig(records_k=2), GEOMETRY)
    index = Index({}, {"vectors": vectors})
    models: Any = SimpleNamespace(
        embedder=lambda *_, **__: SimpleNamespace(embed=embed, truncated=lambda _: 0)
    )
    scores = asyncio.run(method.score(records, index, Question("?", None, 8), models))  # type: ignore[arg-type]
    half = np.sqrt(0.5)  # linked to t0 and t1: the mean of their vectors points to (1, 1)
    np.testing.assert_allclose(scores, [half, half, 1, -1], atol=1e-6)
