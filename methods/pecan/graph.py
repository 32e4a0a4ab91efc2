"""The graph: nodes in levels, edges from a node to its sources, and its storage.

Level 1 has chunks of the documents, stored as character ranges; every level above has generated information
points, stored as text. The edge weights of a node sum to 1 over the nodes below it. Only text, ranges and
weights are stored, never token ids, so that another model can search the graph.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.schema import ContextItem, DocumentSet, Index, JsonValue

FORMAT = 1


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
        numbers: defaultdict[int, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
        return tuple(f"{node.level}.{next(numbers[node.level])}" for node in self.nodes)

    def sources(self, node: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The sources of a node, and e_ij of each; empty for a chunk."""
        first, last = self._first_edge[node], self._first_edge[node + 1]
        return self.lower[first:last], self.weight[first:last]

    def main_chunk(self, node: int) -> int:
        """The chunk that a node goes back to most, by the product of weights; a chunk is its own."""
        share = np.zeros(len(self.nodes))
        share[node] = 1.0
        for at in range(node, -1, -1):  # every edge leads down
            if share[at] > 0:
                sources, weights = self.sources(at)
                np.add.at(share, sources, share[at] * weights)
        order = (int(at) for at in np.argsort(-share, kind="stable") if share[at] > 0)
        return next((at for at in order if self.nodes[at].start is not None), node)

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
            {"upper": self.upper, "lower": self.lower, "weight": self.weight, "embeddings": self.embeddings},
        )

    @classmethod
    def from_index(cls, index: Index, documents: DocumentSet) -> Self:
        """The graph of a stored index, with chunks cut from the documents."""
        texts = [document.full_text for document in documents.documents]
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


def fold(text: str) -> str:
    """The text on one line, with runs of white space as one space (a prompt has one node per line)."""
    return " ".join(text.split())
