"""The tree of leaves and layers of summaries over clusters of similar nodes: building and storage.

Layer 0 has the leaves, spans of the documents; a node of a higher layer is the summary of a cluster of nodes
of the layer below. Clusters overlap, so that a node may have several parents (RAPTOR, Sec. 3).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.method import Embedder, LanguageModel, Switch, restored, stored, summarize, unit_rows
from bench.schema import Chunk, DocumentSet, Index, JsonValue
from methods.raptor.clustering import SMALL, soft_clusters
from methods.raptor.leaves import split_into_leaves
from methods.raptor.prompts import raptor_summary_prompt


@dataclass(frozen=True)
class TreePlan:
    """How to build a tree; lengths in tokens of the model that writes the summaries."""

    leaf_tokens: int
    summary_tokens: int
    cluster_tokens: int
    max_layers: int
    seed: int
    join_documents: Switch = "on"
    """Whether several documents are joined before leaves are cut."""


@dataclass(frozen=True)
class Node:
    """A leaf, or the summary of its children."""

    layer: int
    text: str
    tokens: int
    leaf: Chunk | None = None
    children: tuple[int, ...] = ()
    """Positions in ``Tree.nodes``, in the order of the summary prompt."""


@dataclass(frozen=True)
class Tree:
    """All nodes, layer by layer from the leaves up, with their embeddings."""

    nodes: tuple[Node, ...]
    embeddings: NDArray[np.float32]
    """Unit rows, shape (nodes, dim)."""
    notes: Mapping[str, JsonValue]
    """Counts of events during building, and the encoder's truncation length."""

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the nodes of each layer, leaves first; empty for a tree without nodes."""
        layers: list[list[int]] = []
        for position, node in enumerate(self.nodes):
            if node.layer == len(layers):
                layers.append([])
            layers[node.layer].append(position)
        return tuple(tuple(layer) for layer in layers)

    def id(self, node: int) -> str:
        """A readable id: layer from 0, then position in it from 1 (``0.17`` is the 17th leaf)."""
        layer = self.nodes[node].layer
        return f"{layer}.{node - self.layers[layer][0] + 1}"

    def to_index(self) -> Index:
        """The tree for storage, with leaves as spans."""
        leaves = [node.leaf for node in self.nodes if node.leaf is not None]
        return Index(
            {
                "leaves": [stored(leaf) for leaf in leaves],
                "summaries": [
                    {
                        "layer": node.layer,
                        "text": node.text,
                        "tokens": node.tokens,
                        "children": list(node.children),
                    }
                    for node in self.nodes[len(leaves) :]
                ],
                "notes": dict(self.notes),
            },
            {"embeddings": self.embeddings},
        )

    @classmethod
    def from_index(cls, index: Index, documents: DocumentSet) -> Self:
        """The tree of a stored index, with leaves cut from the documents."""
        nodes = [Node(0, leaf.text, leaf.tokens, leaf) for leaf in restored(index.data["leaves"], documents)]
        for node in index.data["summaries"]:
            nodes.append(Node(node["layer"], node["text"], node["tokens"], children=tuple(node["children"])))
        return cls(tuple(nodes), np.asarray(index.arrays["embeddings"], np.float32), index.data["notes"])


async def build_tree(documents: DocumentSet, lm: LanguageModel, embedder: Embedder, plan: TreePlan) -> Tree:
    """The tree of the documents: layers of summaries until one has at most 11 nodes, or ``max_layers``.

    All summaries of a layer run concurrently. Clustering blocks the event loop, since UMAP is not
    thread-safe. Documents without text give a tree without nodes.
    """
    join = plan.join_documents == "on"
    leaves = split_into_leaves(documents, lm.tokenize, plan.leaf_tokens, join=join)
    nodes = [Node(0, leaf.text, leaf.tokens, leaf) for leaf in leaves]
    events: Counter[str] = Counter()
    embeddings = await _embed(nodes, embedder, events)
    layer = range(len(nodes))
    for number in range(1, plan.max_layers + 1):
        if len(layer) <= SMALL:
            break
        clusters = soft_clusters(
            embeddings[layer.start :],
            [nodes[position].tokens for position in layer],
            max_tokens=plan.cluster_tokens,
            seed=plan.seed,
        )
        families = [tuple(layer[member] for member in cluster) for cluster in clusters]
        texts = await asyncio.gather(
            *(_summary([nodes[child].text for child in family], lm, plan, events) for family in families)
        )
        above = [
            Node(number, text, lm.count_tokens(text), children=family)
            for text, family in zip(texts, families, strict=True)
        ]
        embeddings = np.concatenate([embeddings, await _embed(above, embedder, events)])
        layer = range(len(nodes), len(nodes) + len(above))
        nodes += above
    return Tree(
        tuple(nodes),
        embeddings,
        {
            "events": {name: count for name, count in sorted(events.items()) if count},
            "embedder_max_tokens": embedder.max_tokens,
        },
    )


async def _summary(texts: Sequence[str], lm: LanguageModel, plan: TreePlan, events: Counter[str]) -> str:
    """The summary of a cluster; its texts are put on one line each, separated by empty lines."""
    context = "\n\n".join(" ".join(text.split()) for text in texts)
    return await summarize(lm, raptor_summary_prompt(context), context, plan.summary_tokens, events)


async def _embed(nodes: Sequence[Node], embedder: Embedder, events: Counter[str]) -> NDArray[np.float32]:
    """Unit embeddings of nodes, shape (nodes, dim); exact, since clustering amplifies rounding."""
    texts = [node.text for node in nodes]
    events["truncated_embedding"] += embedder.truncated(texts)
    vectors = await embedder.embed(texts, exact=True)
    return unit_rows(vectors) if texts else np.zeros((0, embedder.dim), np.float32)
