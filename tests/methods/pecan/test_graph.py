from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import BenchError, QuestionError
from bench.flops.meter import Meter
from bench.results.index_store import IndexStore
from bench.schema import Index
from methods.pecan import Pecan
from methods.pecan.graph import DamagedGraphError, Graph
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


def damaged(**changes: Any) -> Index:
    stored = make_graph().to_index()
    data = {**stored.data, **{k: v for k, v in changes.items() if k in stored.data}}
    arrays = {**stored.arrays, **{k: v for k, v in changes.items() if k in stored.arrays}}
    return Index(data, arrays)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": None},
        {"nodes": []},
        {"nodes": "text"},
        {"nodes": [[0, 0, 5]]},
        {"levels": [[0, 99]]},
        {"levels": []},
        {"upper": np.array([4], np.int32)},
        {"lower": np.array([9, 9, 9, 9, 9, 9], np.int32)},
        {"lower": np.array([-1, 0, 0, 0, 0, 0], np.int32)},
        {"upper": np.array([6, 4, 4, 5, 5, 6], np.int32)},
        {"upper": np.array([5, 4, 5, 5, 6, 6], np.int32)},  # by one place only
        {"lower": np.array([4, 1, 1, 2, 4, 5], np.int32)},  # an edge of the first upper node to itself
        {"weight": np.full(6, np.nan, np.float32)},
        {"weight": np.full(6, -1, np.float32)},
        {"embeddings": np.zeros((3, 2), np.float32)},
        {"embeddings": np.full((7, 2), np.inf, np.float32)},
    ],
)
def test_a_graph_that_does_not_hold_together_fails_its_question_and_says_what_to_do(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(DamagedGraphError, match="delete") as caught:
        Graph.from_index(damaged(**changes), DOCUMENTS)
    assert isinstance(caught.value, QuestionError) and not isinstance(caught.value, BenchError)


def test_a_trace_is_told_as_a_table() -> None:
    confidence = [0.1, 0.2, 0.9]
    prediction, _ = search(
        ScriptedModels(ScriptedModel(Script(p_yes=lambda nodes: confidence[len(nodes) - 1]))), t_c=0.5
    )
    description = Pecan.describe_trace(prediction.trace)
    assert "3 nodes read of a graph with 4 / 2 / 1 nodes by level (built by hand)" in description
    assert "stopped by patience" in description and "t_p 1, t_c 0.5, cumulative patience" in description
    rows = [line.split() for line in description.splitlines()[-3:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("0", "3.1", "1.000"),
        ("1", "2.1", "1.000"),
        ("2", "1.1", "Yes"),
    ]
    assert Pecan.describe_trace({}) == "" and Pecan.describe_trace({"kept_characters": 3}) == ""


def test_a_trace_without_probes_is_told_as_well() -> None:
    prediction, _ = search(ScriptedModels(), progress_control="off", n_nodes=2, similarity="off")
    assert "fixed number of nodes" in Pecan.describe_trace(prediction.trace)


def test_a_drawing_has_every_node_and_edge() -> None:
    view = method().graph_view(make_graph().to_index(), DOCUMENTS)
    assert [(e.upper, e.lower) for e in view.edges] == [(4, 0), (4, 1), (5, 1), (5, 2), (6, 4), (6, 5)]
    assert (view.nodes[6].id, view.nodes[6].level) == ("3.1", 3)


def test_a_node_goes_back_to_the_chunks_that_it_attended_to_by_the_product_of_weights() -> None:
    index = make_graph().to_index()
    words = [
        CHUNKS[[0, 6, 11, 17].index(start)] for _, start, _ in method().node_sources(index, DOCUMENTS, "3.1")
    ]
    assert words == ["alpha", "beta", "gamma"]  # 0.75 x 0.75, 0.75 x 0.25 + 0.25 x 0.5, 0.25 x 0.5
    assert method().node_sources(index, DOCUMENTS, "1.4") == [(0, 17, 22)]
    assert method().node_sources(index, DOCUMENTS, "9.9") == ()
