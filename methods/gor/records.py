"""The graph of records: chunks, simulated queries, their answers, and what each answer was written from.

For one simulated query after the other, the most similar nodes are retrieved among the chunks and the
answers to earlier queries, a model answers from them, and its answer becomes a node with an edge from
every node that it was given (Graph of Records, Sec. 2.2). Nodes are keyed by their text: what is said twice
is one node. Chunks that were never retrieved stay, without an edge.

What is kept here depends on no question and on no training, and is the same for every method that
uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.method import (
    Embedder,
    LanguageModel,
    chunk_documents,
    fits,
    join_passages,
    restored,
    stored,
    unit_rows,
)
from bench.schema import Chunk, DocumentSet, Index, JsonValue
from methods.gor.prompts import Wording, gor_answer_prompt
from methods.gor.simulation import Asked, simulate_queries


@dataclass(frozen=True)
class RecordsPlan:
    """How a graph of records is built; lengths in tokens of the model that writes it."""

    chunk_tokens: int
    overlap_tokens: int
    queries: int
    k: int
    temperature: float
    question_tokens: int
    answer_tokens: int
    seed: int
    wording: Wording = "ours"


@dataclass(frozen=True)
class Node:
    """A chunk of the source, or an answer of the model."""

    text: str
    chunk: Chunk | None = None
    """None for an answer; the first of the chunks with this text."""


@dataclass(frozen=True)
class Query:
    """A simulated query."""

    text: str
    source: int
    """The node that it was asked about."""
    retrieved: tuple[int, ...]
    """The nodes that it was answered from, best first."""
    answer: int | None
    """The node that the answer is; None where the model said nothing."""


@dataclass(frozen=True)
class Records:
    """A graph of records with the embeddings of its texts."""

    nodes: tuple[Node, ...]
    """Chunks first, in the order of the source, then answers in the order they were written."""
    queries: tuple[Query, ...]
    embeddings: NDArray[np.float32]
    """Of the nodes, as the encoder gives them, shape (nodes, dim)."""
    query_embeddings: NDArray[np.float32]
    """Of the queries, shape (queries, dim)."""
    notes: Mapping[str, JsonValue]
    """Counts of events while it was built, queries wanted, and the encoder's truncation."""

    @cached_property
    def chunks(self) -> int:
        """How many of the nodes are chunks."""
        return sum(node.chunk is not None for node in self.nodes)

    def id(self, node: int) -> str:
        """A readable name: ``c`` for a chunk, ``r`` for an answer, and its number among its kind from 1."""
        return f"c{node + 1}" if node < self.chunks else f"r{node - self.chunks + 1}"

    def to_index(self) -> Index:
        """The graph as it is stored; chunks as spans only."""
        chunks = [node.chunk for node in self.nodes if node.chunk is not None]
        return Index(
            {
                "chunks": [stored(chunk) for chunk in chunks],
                "answers": [node.text for node in self.nodes[len(chunks) :]],
                "queries": [[q.text, q.source, list(q.retrieved), q.answer] for q in self.queries],
                "notes": dict(self.notes),
            },
            {"embeddings": self.embeddings, "query_embeddings": self.query_embeddings},
        )

    @classmethod
    def from_index(cls, index: Index, documents: DocumentSet) -> Self:
        """The graph of a stored index, its chunks cut from the documents again."""
        nodes = [Node(chunk.text, chunk) for chunk in restored(index.data["chunks"], documents)]
        nodes += [Node(text) for text in index.data["answers"]]
        return cls(
            tuple(nodes),
            queries_of(index),
            np.asarray(index.arrays["embeddings"], dtype=np.float32),
            np.asarray(index.arrays["query_embeddings"], dtype=np.float32),
            index.data["notes"],
        )


def queries_of(index: Index) -> tuple[Query, ...]:
    """The simulated queries of a stored graph, in order."""
    return tuple(
        Query(text, source, tuple(retrieved), answer)
        for text, source, retrieved, answer in index.data["queries"]
    )


def arcs(queries: Sequence[Query]) -> NDArray[np.int64]:
    """The graph's arcs, from what an answer was written from to the answer, each once, shape (2, arcs)."""
    pairs = {
        (node, query.answer): None
        for query in queries
        for node in query.retrieved
        if query.answer is not None and node != query.answer
    }
    return np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T


async def build_records(
    documents: DocumentSet, lm: LanguageModel, embedder: Embedder, plan: RecordsPlan
) -> Records:
    """The graph of records of these documents; without any text in them, a graph without nodes.

    Queries are asked for together, answers one after the other, as each may be written from earlier ones.
    """
    building = _Building(lm, embedder, plan)
    await building.add_chunks(documents)
    asked = await simulate_queries(
        [node.text for node in building.nodes],
        lm,
        wanted=plan.queries,
        temperature=plan.temperature,
        max_new_tokens=plan.question_tokens,
        seed=(plan.seed, int(documents.id, 16)),
        events=building.events,
        wording=plan.wording,
    )
    return await building.answered(asked)


@dataclass
class _Building:
    """A graph of records as it grows."""

    lm: LanguageModel
    embedder: Embedder
    plan: RecordsPlan
    nodes: list[Node] = field(default_factory=list)
    of_text: dict[str, int] = field(default_factory=dict)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    async def add_chunks(self, documents: DocumentSet) -> None:
        """A node for every chunk with a text of its own."""
        cut = chunk_documents(documents, self.lm.tokenize, self.plan.chunk_tokens, self.plan.overlap_tokens)
        for chunk in cut:
            self.events["duplicate_chunk"] += chunk.text in self.of_text
            if chunk.text not in self.of_text:
                self._add(Node(chunk.text, chunk))
        self.vectors += await self._embed([node.text for node in self.nodes])

    async def answered(self, asked: Sequence[Asked]) -> Records:
        """The graph with a record for each of the queries, in order."""
        embedded = await self._embed([query.text for query in asked])
        queries = []
        for query, vector in zip(asked, embedded, strict=True):
            queries.append(await self._record(query, vector))
        empty = np.zeros((0, self.embedder.dim), np.float32)
        return Records(
            tuple(self.nodes),
            tuple(queries),
            np.stack(self.vectors) if self.vectors else empty,
            np.stack(embedded) if embedded else empty,
            {
                "queries_wanted": self.plan.queries,
                "events": {name: count for name, count in sorted(self.events.items()) if count},
                "writer": self.lm.name,
                "embedder": self.embedder.name,
                "embedder_max_tokens": self.embedder.max_tokens,
            },
        )

    async def _record(self, query: Asked, vector: NDArray[np.float32]) -> Query:
        """The query with what it is answered from, and the node of the answer.

        Should the nodes and the answer not fit the model's window, the least similar ones are left out.
        """
        retrieved = most_similar(np.stack(self.vectors), vector, self.plan.k)
        while True:
            context = join_passages([self.nodes[node].text for node in retrieved])
            prompt = gor_answer_prompt(context, query.text, self.plan.wording)
            if not retrieved or fits(prompt, self.lm, self.plan.answer_tokens, self.lm.geometry.input_limit):
                break
            retrieved.pop()
            self.events["dropped_passage"] += 1
        written = await self.lm.generate(prompt, self.plan.answer_tokens)
        self.events["cut_answer"] += written.finish != "stop"
        self.events["empty_answer"] += not written.text
        self.events["duplicate_answer"] += written.text in self.of_text
        answer = self.of_text.get(written.text)
        if answer is None and written.text:
            self.vectors += await self._embed([written.text])
            answer = self._add(Node(written.text))
        return Query(query.text, query.source, tuple(retrieved), answer)

    def _add(self, node: Node) -> int:
        self.of_text[node.text] = len(self.nodes)
        self.nodes.append(node)
        return self.of_text[node.text]

    async def _embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        self.events["truncated_embedding"] += self.embedder.truncated(texts)
        return list(await self.embedder.embed(texts))


def most_similar(embeddings: NDArray[np.float32], query: NDArray[np.float32], k: int) -> list[int]:
    """Positions of the k rows with the largest cosine to ``query``, best first; equal ones in order."""
    return [int(node) for node in np.argsort(-cosines(embeddings, query), kind="stable")[:k]]


def cosines(embeddings: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each row to ``query``, in -1..1, shape (rows,); 0 for a row of zeros."""
    return np.asarray(unit_rows(embeddings) @ unit_rows(query[None])[0], dtype=np.float64)
