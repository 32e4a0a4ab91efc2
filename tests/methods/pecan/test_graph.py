from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.errors import BenchError
from bench.flops.meter import Meter
from bench.results.index_store import IndexStore
from methods.pecan.graph import Graph
from tests.methods.pecan.scripted import Script, ScriptedModel, ScriptedModels
from tests.methods.pecan.worked_graph import CHUNKS, DOCUMENTS, make_graph, method, search


def same(a: Graph, b: Graph) -> bool:
    arrays = ("upper", "lower", "weight", "embeddings")
    return (a.nodes, a.levels, a.notes) == (b.nodes, b.levels, b.notes) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays
    )


def test_a_stored_graph_comes_back_as_it_was(tmp_path: Path) -> None:
    graph = make_graph(similarity={"p": 0.3})
    graph = replace(
        graph, nodes=(*graph.nodes[:-1], replace(graph.nodes[-1], cut=True, text="lone \ud800 surrogate"))
    )
    store = IndexStore(tmp_path)
    store.save("pecan", "key", graph.to_index(), Meter())
    stored = store.load("pecan", "key")
    assert stored is not None and same(Graph.from_index(stored.index, DOCUMENTS), graph)


def test_an_empty_graph_is_stored_too(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    store.save("pecan", "key", make_graph((), {}).to_index(), Meter())
    stored = store.load("pecan", "key")
    assert stored is not None and not Graph.from_index(stored.index, DOCUMENTS).nodes


def test_a_stored_graph_holds_text_and_weights_and_no_text_of_the_source() -> None:
    stored = make_graph().to_index()
    assert set(stored.data) == {"format", "nodes", "levels", "notes"}
    assert stored.data["nodes"][:2] == [[0, 0, 5], [0, 6, 10]]
    assert not any(chunk in str(stored.data) for chunk in CHUNKS)
    assert set(stored.arrays) == {"upper", "lower", "weight", "embeddings"}


def test_a_drawing_has_the_path_of_its_own_graph_only() -> None:
    prediction, _ = search(ScriptedModels(ScriptedModel(Script(p_yes=lambda nodes: 0.9 * (len(nodes) == 2)))))
    index = make_graph().to_index()
    view = method().graph_view(index, DOCUMENTS, prediction.trace)
    assert {node.id: node.visited for node in view.nodes if node.visited} == {"3.1": 1, "2.1": 2}
    assert "then p_yes 0.900" in next(node.note for node in view.nodes if node.id == "2.1")
    assert [(e.upper, e.lower) for e in view.edges] == [(4, 0), (4, 1), (5, 1), (5, 2), (6, 4), (6, 5)]
    assert "stopped by patience" in view.outcome
    assert method().graph_view(index, DOCUMENTS).outcome == ""
    other = replace(make_graph(), notes={"builder": "else", "levels": [1], "events": {}}).to_index()
    with pytest.raises(BenchError, match="another graph"):
        method().graph_view(other, DOCUMENTS, prediction.trace)
