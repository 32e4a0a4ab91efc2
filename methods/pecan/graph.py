"""The graph: nodes in levels, edges from a node to its sources, and its storage.

Level 1 has chunks of the documents, stored as character ranges; every level above has generated information
points, stored as text. The edge weights of a node sum to 1 over the nodes below it. Only text, ranges and
weights are stored, never token ids, so that another model can search the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.method import QuestionError
from bench.schema import ContextItem, DocumentSet, Index, JsonValue

FORMAT = 1


class DamagedGraphError(QuestionError):
    """A stored graph that is inconsistent."""


@dataclass(frozen=True)
class Node:
    """A vertex: a chunk of a document (level 1) or an information point (above)."""

    level: int
    text: str
    """The text on one line, as in prompts."""
    document: int | None = None
    start: int | None = None
    end: int | None = None
    """Level 1: index of the document, character range of its ``full_text``."""
    cut: bool = False
    """Whether the generated text was cut at the token limit."""


@dataclass(frozen=True)
class Graph:
    """Nodes ordered by level and, within a level, by source; edges sorted by their upper node."""

    nodes: tuple[Node, ...]
    levels: tuple[tuple[int, ...], ...]
    """Positions in ``nodes`` of each level, lowest first; a node moves up if its summary was empty."""
    upper: NDArray[np.int32]
    lower: NDArray[np.int32]
    weight: NDArray[np.float32]
    """Edges: ``weight[k]`` is e_ij of the information point ``upper[k]`` and its source ``lower[k]``."""
    embeddings: NDArray[np.float32]
    """Unit rows, shape (nodes, dim)."""
    notes: Mapping[str, JsonValue]
    """Facts about the construction: counts of events, sizes, the encoder's truncation length."""

    @property
    def top(self) -> tuple[int, ...]:
        """The nodes of the highest level, in order."""
        return self.levels[-1] if self.levels else ()

    @cached_property
    def level_of(self) -> NDArray[np.int32]:
        """Level of every node, shape (nodes,)."""
        return np.array([node.level for node in self.nodes], dtype=np.int32)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """A readable id of every node: level, then position in it, both from 1 (``2.14``)."""
        seen: dict[int, int] = {}
        ids = []
        for node in self.nodes:
            seen[node.level] = seen.get(node.level, 0) + 1
            ids.append(f"{node.level}.{seen[node.level]}")
        return tuple(ids)

    def sources(self, node: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The sources of a node, and e_ij of each; empty for a chunk."""
        first, last = self._first_edge[node], self._first_edge[node + 1]
        return self.lower[first:last], self.weight[first:last]

    def chunks_below(self, node: int) -> list[tuple[int, int, int]]:
        """(document, start, end) of the chunks that a node goes back to, by the product of weights."""
        below = (self.nodes[at] for at in self._below(node))
        return [
            (chunk.document, chunk.start, chunk.end)
            for chunk in below
            if chunk.document is not None and chunk.start is not None and chunk.end is not None
        ]

    def _below(self, node: int) -> list[int]:
        """The chunks that a node goes back to, what counts most first."""
        share = np.zeros(len(self.nodes))
        share[node] = 1.0
        for at in range(node, -1, -1):  # every edge leads down
            sources, weights = self.sources(at)
            if share[at] > 0:
                np.add.at(share, sources, share[at] * weights)
        order = np.argsort(-share, kind="stable")
        return [int(at) for at in order if share[at] > 0 and self.nodes[at].start is not None]

    def main_chunk(self, node: int) -> int:
        """The chunk that a node goes back to most, by the product of weights; a chunk is its own."""
        below = self._below(node)
        return below[0] if below else node

    def passage(self, node: int, documents: DocumentSet, score: float | None = None) -> ContextItem:
        """A chunk as a span of its source; an information point as a node with its text."""
        at = self.nodes[node]
        if at.document is None or at.start is None or at.end is None:
            return ContextItem(at.text, node=self.ids[node], score=score)
        document = documents.documents[at.document]
        return ContextItem(
            text=document.full_text[at.start : at.end],
            document=at.document,
            title=document.title,
            start=at.start,
            end=at.end,
            score=score,
            chunk=node,
        )

    @cached_property
    def _first_edge(self) -> NDArray[np.int64]:
        return np.searchsorted(self.upper, np.arange(len(self.nodes) + 1))

    def to_index(self) -> Index:
        """The graph for storage, with chunks as ranges."""
        nodes: list[JsonValue] = []
        for node in self.nodes:
            if node.start is not None:
                nodes.append([node.document, node.start, node.end])
            else:
                nodes.append({"level": node.level, "text": node.text, **({"cut": True} if node.cut else {})})
        return Index(
            {
                "format": FORMAT,
                "nodes": nodes,
                "levels": [list(level) for level in self.levels],
                "notes": dict(self.notes),
            },
            {
                "upper": self.upper,
                "lower": self.lower,
                "weight": self.weight,
                "embeddings": self.embeddings,
            },
        )

    @classmethod
    def from_index(cls, index: Index, documents: DocumentSet) -> Self:
        """The graph of a stored index, with chunks cut from the documents.

        Raises DamagedGraphError for an index of another format, or an inconsistent one.
        """
        if index.data.get("format") != FORMAT:
            raise DamagedGraphError(
                f"a stored graph has format {index.data.get('format')!r}, expected {FORMAT}; delete "
                "results/indexes/pecan and run the command again to rebuild the graphs"
            )
        try:
            graph = cls._read(index, [document.full_text for document in documents.documents])
            graph._check()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DamagedGraphError(
                f"a stored graph is inconsistent ({type(error).__name__}: {error}); delete "
                "results/indexes/pecan and run the command again to rebuild the graphs"
            ) from error
        return graph

    @classmethod
    def _read(cls, index: Index, texts: Sequence[str]) -> Self:
        nodes = []
        for stored in index.data["nodes"]:
            if isinstance(stored, dict):
                nodes.append(Node(stored["level"], stored["text"], cut=stored.get("cut", False)))
            else:
                document, start, end = stored
                nodes.append(Node(1, fold(texts[document][start:end]), document, start, end))
        return cls(
            nodes=tuple(nodes),
            levels=tuple(tuple(level) for level in index.data["levels"]),
            upper=np.asarray(index.arrays["upper"], dtype=np.int32),
            lower=np.asarray(index.arrays["lower"], dtype=np.int32),
            weight=np.asarray(index.arrays["weight"], dtype=np.float32),
            embeddings=np.asarray(index.arrays["embeddings"], dtype=np.float32),
            notes=index.data["notes"],
        )

    def _check(self) -> None:
        """Raise ValueError unless sizes, ranges and order are consistent."""
        n, edges = len(self.nodes), len(self.upper)
        if self.embeddings.shape[0] != n or not np.isfinite(self.embeddings).all():
            raise ValueError(f"{n} nodes have embeddings of shape {self.embeddings.shape}")
        if self.lower.shape != (edges,) or self.weight.shape != (edges,):
            raise ValueError("edges are incomplete")
        if edges and not (0 <= self.lower.min() and self.upper.max() < n and (self.lower < self.upper).all()):
            raise ValueError("an edge leads to no node below")
        if edges and (np.diff(self.upper) < 0).any():
            raise ValueError("edges are out of order")
        if not np.isfinite(self.weight).all() or (edges and self.weight.min() < 0):
            raise ValueError("an edge has no weight")
        if n and (np.diff(self.level_of) < 0).any():
            raise ValueError("nodes are out of order")
        if any(not 0 <= node < n for level in self.levels for node in level) or (n and not self.top):
            raise ValueError("a level names a missing node")


def fold(text: str) -> str:
    """The text on one line, with runs of white space as one space (a prompt has one node per line)."""
    return " ".join(text.split())
