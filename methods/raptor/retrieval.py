"""Retrieval of nodes for a question: layer by layer down the tree, or from all layers at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.method import Picked, SearchStep, VisitedNode
from bench.schema import JsonValue
from methods.raptor.tree import Tree

Scores = NDArray[np.float64]


def traverse(tree: Tree, scores: Scores, k: int) -> Picked:
    """Tree traversal, RAPTOR-TT: the best k of the top layer, then the best k of their children, and so on.

    All picked nodes are read, upper layers first (RAPTOR, Sec. 3; released code,
    ``retrieve_information``). scores: shape (nodes,); ties keep the order of the tree.
    """
    picked: list[int] = []
    steps: list[JsonValue] = []
    candidates = list(tree.layers[-1]) if tree.layers else []
    while candidates:
        best = _best_first(candidates, scores)[:k]
        picked += best
        steps.append(_step(tree, scores, tree.nodes[best[0]].layer, len(candidates), best))
        candidates = list(dict.fromkeys(child for node in best for child in tree.nodes[node].children))
    return Picked(tuple(picked), {"mode": "tt", "steps": steps})


def collapse(tree: Tree, scores: Scores, k: int, max_tokens: int) -> Picked:
    """Collapsed tree, RAPTOR-CT: the best nodes of all layers, at most k, while they fit ``max_tokens``.

    It stops at the first node that does not fit (released code, ``retrieve_information_collapse_tree``).
    """
    picked: list[int] = []
    tokens = 0
    stop = "nodes"
    for node in _best_first(range(len(tree.nodes)), scores):
        if len(picked) == k:
            stop = "k"
            break
        if tokens + tree.nodes[node].tokens > max_tokens:
            stop = "max_tokens"
            break
        picked.append(node)
        tokens += tree.nodes[node].tokens
    step = _step(tree, scores, None, len(tree.nodes), picked)
    return Picked(tuple(picked), {"mode": "ct", "steps": [step], "tokens": tokens, "stopped_by": stop})


def _best_first(candidates: Sequence[int], scores: Scores) -> list[int]:
    return sorted(candidates, key=lambda node: -scores[node])


def _step(
    tree: Tree, scores: Scores, layer: int | None, candidates: int, picked: Sequence[int]
) -> dict[str, JsonValue]:
    nodes = [
        VisitedNode(id=tree.id(node), level=tree.nodes[node].layer, score=float(scores[node]))
        for node in picked
    ]
    return SearchStep(nodes=nodes, layer=layer, candidates=candidates).to_json()
