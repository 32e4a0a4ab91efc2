"""node2vec on the graph of records: nodes are alike that random walks meet together (baseline of GoR).

Grover and Leskovec 2016: biased walks over a graph are read as sentences, and skip-gram with negative
sampling gives every node a vector. Here the graph is that of Graph of Records, undirected, one per
document; walks are ours, skip-gram is gensim's, as in the authors' code. With p = q = 1, the authors'
defaults, the next node of a walk is any neighbour, each as likely.

These vectors know nothing of words, and the GoR paper does not say how a question is compared with them.
Our choice: the question takes the place that its record would have in the graph. It is linked to the nodes
whose texts are most similar to it, as many as a simulated query is answered from, and its vector is the
mean of theirs; nodes are ranked by cosine to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.method import ModelSet, Usage, current_meter, question_vector
from bench.schema import Index, Question
from methods.gor.records import Records, arcs, cosines, most_similar, queries_of
from methods.gor.retrieval import RecordsConfig, RecordsMethod, Scores

SKIP_GRAM = "node2vec"
"""Under which the cost of the vectors is credited, in phase ``walk``."""
NEGATIVES = 5
"""Words drawn against each that was met (word2vec's default, which the authors' code keeps)."""
DIMENSIONS, WALKS, WALK_LENGTH, WINDOW, PASSES = 128, 10, 80, 10, 1
"""Length of a vector, walks from each node, nodes of a walk, how far apart two nodes meet (Sec. 4.2), and
passes over the walks (the authors' code)."""


class Node2Vec(RecordsMethod[RecordsConfig]):
    """Rank the nodes of the graph of records by where they are in it."""

    name = "node2vec"
    version = "4"
    summary = "rank the graph of records by node2vec vectors around the question's place in it"
    paper = "Grover and Leskovec 2016 (node2vec); baseline of Graph of Records, Table 1"
    Config = RecordsConfig
    own_models = frozenset({SKIP_GRAM})

    def packages(self) -> Mapping[str, str]:
        """Word2vec's."""
        return {"gensim": "longdoc-bench[gor]"}

    def finish(self, index: Index, learned: Index | None) -> Index:
        """The graph with a vector for every node, float32, shape (nodes, 128)."""
        nodes = len(index.arrays["embeddings"])
        rng = np.random.default_rng([self.seed, nodes])
        walks = random_walks(nodes, arcs(queries_of(index)), walks=WALKS, length=WALK_LENGTH, rng=rng)
        vectors = skip_gram(walks, nodes, dimensions=DIMENSIONS, window=WINDOW, passes=PASSES, seed=self.seed)
        return Index(index.data, {**index.arrays, "vectors": vectors})

    async def score(self, records: Records, index: Index, question: Question, models: ModelSet) -> Scores:
        """Cosine of every node's vector with the mean of the question's most similar nodes."""
        query = await question_vector(models.embedder(), question.query)
        linked = most_similar(records.embeddings, query, self.config.records_k)
        vectors = np.asarray(index.arrays["vectors"], dtype=np.float32)
        return cosines(vectors, vectors[linked].mean(axis=0))


def random_walks(
    nodes: int, edges: NDArray[np.int64], *, walks: int, length: int, rng: np.random.Generator
) -> list[list[int]]:
    """``walks`` walks from every node over the undirected graph, in random order of starts.

    edges: shape (2, edges). A node without neighbours is a walk by itself.
    """
    joined = np.zeros((nodes, nodes), dtype=bool)
    joined[edges[0], edges[1]] = joined[edges[1], edges[0]] = True
    np.fill_diagonal(joined, False)
    degree = joined.sum(axis=1)
    begin = np.concatenate([[0], np.cumsum(degree)])
    neighbour = np.nonzero(joined)[1]

    starts = np.concatenate([rng.permutation(nodes) for _ in range(walks)]) if nodes else np.zeros(0, int)
    path = np.full((len(starts), length), -1)
    path[:, 0] = starts
    moving = np.nonzero(degree[starts] > 0)[0]
    for step in range(1, length):
        here = path[moving, step - 1]
        path[moving, step] = neighbour[begin[here] + (rng.random(len(here)) * degree[here]).astype(int)]
    return [[int(node) for node in walk if node >= 0] for walk in path]


def skip_gram(
    walks: Sequence[Sequence[int]], nodes: int, *, dimensions: int, window: int, passes: int, seed: int
) -> NDArray[np.float32]:
    """A vector for every node from the walks as sentences, shape (nodes, dimensions).

    Cost (phase ``walk``): the expected pairs of a node and one met within the window, which word2vec draws
    evenly from 1 to ``window``; for each, a product and two updates with the one met and with 5 others.
    """
    from gensim.models import Word2Vec

    if not nodes:
        return np.zeros((0, dimensions), np.float32)
    model: Any = Word2Vec(
        [[str(node) for node in walk] for walk in walks],
        vector_size=dimensions,
        window=window,
        epochs=passes,
        seed=seed + 1,
        sg=1,
        hs=0,
        negative=NEGATIVES,
        min_count=1,
        sample=0,  # in a small graph every node is a frequent word
        workers=1,  # threads would make the vectors random
    )
    apart = np.arange(1, window + 1)  # met in window + 1 - apart of the window's sizes
    met = [2 * (np.maximum(len(walk) - apart, 0) * (window + 1 - apart)).sum() for walk in walks]
    pairs = int(sum(met)) * passes // window
    flops = pairs * (1 + NEGATIVES) * 6 * dimensions
    current_meter().credit(SKIP_GRAM, "walk", Usage(calls=passes, flops=flops))
    return np.asarray(model.wv[[str(node) for node in range(nodes)]])
