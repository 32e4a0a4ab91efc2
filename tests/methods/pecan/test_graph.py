from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.flops.meter import Meter
from bench.results.index_store import IndexStore
from methods.pecan.graph import Graph
from tests.methods.pecan.worked_graph import CHUNKS, DOCUMENTS, make_graph, method


def same(a: Graph, b: Graph) -> bool:
    arrays = ("upper", "lower", "weight", "embeddings")
    return (a.nodes, a.levels, a.notes) == (b.nodes, b.levels, b.notes) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays
    )


def test_a_stored_graph_comes_back_as_it_was_also_an_empty_one(tmp_path: Path) -> None:
    graph = make_graph(similarity={"p": 0.3})
    odd = replace(graph.nodes[-1], cut=True, text="lone \ud800 surrogate")
    store = IndexStore(tmp_path)
    full = replace(graph, nodes=(*graph.nodes[:-1], odd))
    for key, made in {"full": full, "empty": make_graph((), {})}.items():
        store.save("pecan", key, made.to_index(), Meter())
        stored = store.load("pecan", key)
        assert stored is not None and same(Graph.from_index(stored.index, DOCUMENTS), made)


def test_a_stored_graph_holds_text_and_weights_and_no_text_of_the_source() -> None:
    stored = make_graph().to_index()
    assert set(stored.data) == {"format", "nodes", "levels", "notes"}
    assert stored.data["nodes"][:2] == [[0, 0, 5], [0, 6, 10]]
    assert not any(chunk in str(stored.data) for chunk in CHUNKS)
    assert set(stored.arrays) == {"upper", "lower", "weight", "embeddings"}


def test_a_drawing_has_every_node_and_edge() -> None:
    view = method().graph_view(make_graph().to_index(), DOCUMENTS)
    assert [(e.upper, e.lower) for e in view.edges] == [(4, 0), (4, 1), (5, 1), (5, 2), (6, 4), (6, 5)]
    assert (view.nodes[6].id, view.nodes[6].level) == ("3.1", 3)
