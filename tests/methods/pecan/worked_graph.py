"""A small graph written down by hand, and a question on it, for searches that can be followed on paper."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet, Prediction, Question
from methods.pecan import Pecan, PecanConfig
from methods.pecan.graph import Graph, Node
from tests.methods.pecan.scripted import GEOMETRY, ScriptedModels

TEXT = "alpha beta gamma delta"
DOCUMENTS = DocumentSet((Document("", TEXT),))
CHUNKS = ("alpha", "beta", "gamma", "delta")
EDGES = {"p": {"alpha": 0.75, "beta": 0.25}, "q": {"beta": 0.5, "gamma": 0.5}, "top": {"p": 0.75, "q": 0.25}}


def make_graph(
    levels: Sequence[Sequence[str]] = (CHUNKS, ("p", "q"), ("top",)),
    edges: Mapping[str, Mapping[str, float]] = EDGES,
    similarity: Mapping[str, float] | None = None,
) -> Graph:
    """A graph by node texts; level 1 are words of the document. Unnamed similarities are 0."""
    names = [name for level in levels for name in level]
    numbers = [number for number, level in enumerate(levels, start=1) for _ in level]
    nodes = []
    for name, level in zip(names, numbers, strict=True):
        if level == 1:
            start = TEXT.index(name)
            nodes.append(Node(1, name, 0, start, start + len(name)))
        else:
            nodes.append(Node(level, name))
    listed = [
        (names.index(u), names.index(v), w) for u, row in edges.items() for v, w in row.items() if u in names
    ]
    listed.sort()
    cosines = [(similarity or {}).get(name, 0.0) for name in names]
    return Graph(
        nodes=tuple(nodes),
        levels=tuple(tuple(names.index(name) for name in level) for level in levels),
        upper=np.array([u for u, _, _ in listed], np.int32),
        lower=np.array([v for _, v, _ in listed], np.int32),
        weight=np.array([w for _, _, w in listed], np.float32),
        embeddings=np.array([[c, (1 - c * c) ** 0.5] for c in cosines], np.float32).reshape(-1, 2),
        notes={"builder": "hand", "levels": [len(level) for level in levels], "events": {}},
    )


def question(text: str = "who", max_new_tokens: int = 8, **values: Any) -> Question:
    return Question(text, DOCUMENTS, max_new_tokens, dataset="toy", **values)


def models_for(models: ScriptedModels, text: str = "who") -> ScriptedModels:
    """The models with an encoder whose cosines with the question are the graph's similarities."""
    models.encoder.vectors = {text: (1.0, 0.0)}
    models.encoder.dim = 2
    return models


def method(**options: Any) -> Pecan:
    return Pecan(PecanConfig(**options), GEOMETRY)


def search(
    models: ScriptedModels, graph: Graph | None = None, asked: Question | None = None, **options: Any
) -> tuple[Prediction, Meter]:
    """One question asked of the graph, with its cost."""
    asked, index = asked or question(), (graph or make_graph()).to_index()
    with metered(Meter()) as meter:
        return asyncio.run(method(**options).answer(index, asked, models_for(models, asked.text))), meter


def path(prediction: Prediction) -> list[str]:
    """Ids of the visited nodes, in order."""
    return [node["id"] for node in visits(prediction)]


def visits(prediction: Prediction) -> list[dict[str, Any]]:
    return [node for step in prediction.trace["steps"] for node in step["nodes"]]
