from __future__ import annotations

import numpy as np
import pytest

from bench.models.spec import resolve
from bench.schema import Chunk
from methods.gor.records import Node, Records
from methods.gor.thought_retriever import ThoughtRetriever, ThoughtRetrieverConfig

GEOMETRY = resolve("tiny").geometry


def records(vectors: list[list[float]], answers: int = 1) -> Records:
    nodes = [Node(f"t{i}", Chunk(0, i, i, i + 1, f"t{i}", 1)) for i in range(len(vectors) - answers)]
    nodes += [Node(f"thought {i}") for i in range(answers)]
    embeddings = np.array(vectors, np.float32)
    return Records(tuple(nodes), (), embeddings, embeddings[:0], {})


def picked(vectors: list[list[float]], query: list[float], **options: float) -> list[int]:
    config = ThoughtRetrieverConfig(**options)  # type: ignore[arg-type]
    graph = records(vectors)
    scores = np.array(vectors) @ np.array(query)
    return ThoughtRetriever(config, GEOMETRY).choose(graph, scores, config)


DISTINCT = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]


def test_texts_and_thoughts_are_ranked_together() -> None:
    assert picked(DISTINCT, [0.1, -1.0], k=2) == [3, 0], "the fourth is an earlier answer"


def test_what_says_the_same_as_one_already_taken_is_passed_over() -> None:
    near = [[1.0, 0.0], [1.0, 0.1], [0.6, 0.8], [0.0, 1.0]]
    assert picked(near, [1.0, 0.0], k=3) == [0, 2, 3]
    assert picked(near, [1.0, 0.0], k=3, redundant=1.0) == [0, 1, 2]
    assert picked(near, [1.0, 0.0], k=3, redundant=0.5) == [0, 3], "fewer where no others are left"


def test_five_times_as_many_as_wanted_are_looked_at() -> None:
    same = [[1.0, 0.01 * i] for i in range(5)] + [[0.0, 1.0]]
    assert picked(same, [1.0, 0.0], k=1) == [0]
    many = [[1.0, 0.001 * i] for i in range(10)] + [[0.0, 1.0]]
    assert picked(many, [1.0, 0.0], k=2) == [0], "the eleventh is not looked at for two"


@pytest.mark.parametrize("k", [1, 3, 9])
def test_a_smaller_k_reads_the_beginning_of_a_larger_one(k: int) -> None:
    vectors = np.random.default_rng(2).normal(size=(60, 3)).tolist()
    longer = picked(vectors, [1.0, 0.2, 0.1], k=12, redundant=0.97)
    assert picked(vectors, [1.0, 0.2, 0.1], k=k, redundant=0.97) == longer[:k]
