from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bench.errors import ConfigError
from bench.models.api import Geometry
from bench.schema import Chunk, Document, DocumentSet, Prediction, Question
from methods.raptor import Raptor, RaptorConfig
from methods.raptor.retrieval import collapse, traverse
from methods.raptor.tree import Node, Tree
from tests.methods.writers import GEOMETRY, Models

# Six leaves, three summaries over them, one over these; leaf 2 has two parents.
TREE = Tree(
    (
        *(Node(0, f"leaf {i}", 10, Chunk(0, i, i, i + 1, "x", 10)) for i in range(6)),
        Node(1, "left", 20, children=(0, 1, 2)),
        Node(1, "middle", 20, children=(2, 3)),
        Node(1, "right", 20, children=(4, 5)),
        Node(2, "top", 30, children=(6, 7, 8)),
    ),
    np.zeros((10, 2), np.float32),
    {},
)
SCORES = np.array([0.1, 0.5, 0.6, 0.2, 0.9, 0.0, 0.4, 0.3, 0.2, 0.7])


def test_traversal_takes_the_best_of_each_layer_among_the_children_of_the_last() -> None:
    retrieved = traverse(TREE, SCORES, 2)
    # The top; 6 and 7 of its children; of their children 0 1 2 3 the best two. Leaf 4 is out of reach.
    assert retrieved.positions == (9, 6, 7, 2, 1)
    assert [(s["layer"], s["candidates"]) for s in retrieved.trace["steps"]] == [(2, 1), (1, 3), (0, 4)]
    assert retrieved.trace["steps"][2]["nodes"] == [
        {"id": "0.3", "level": 0, "score": 0.6},
        {"id": "0.2", "level": 0, "score": 0.5},
    ]
    assert traverse(TREE, SCORES, 1).positions == (9, 6, 2)
    assert set(traverse(TREE, SCORES, 99).positions) == set(range(10))


def test_collapsed_takes_the_best_of_all_layers() -> None:
    retrieved = collapse(TREE, SCORES, 3, 1000)
    assert retrieved.positions == (4, 9, 2), "leaf 4 is in reach, and two layers are skipped"
    assert retrieved.trace["stopped_by"] == "k" and retrieved.trace["tokens"] == 50
    everything = collapse(TREE, SCORES, 99, 1000)
    assert everything.positions == (4, 9, 2, 1, 6, 7, 3, 8, 0, 5), "equal scores keep the order of the tree"
    assert everything.trace["stopped_by"] == "nodes"


@pytest.mark.parametrize(
    ("max_tokens", "nodes"), [(9, ()), (10, (4,)), (39, (4,)), (40, (4, 9)), (50, (4, 9, 2))]
)
def test_the_budget_ends_at_the_first_node_that_does_not_fit(max_tokens: int, nodes: tuple[int, ...]) -> None:
    # With 39 tokens the third best (10) would fit after the best (10), but the second (30) does not.
    retrieved = collapse(TREE, SCORES, 10, max_tokens)
    assert retrieved.positions == nodes and retrieved.trace["stopped_by"] == "max_tokens"


def test_a_tree_of_leaves_only_and_one_of_nothing() -> None:
    flat = replace(TREE, nodes=TREE.nodes[:6])
    nothing = replace(TREE, nodes=())
    for tree, positions in ((flat, (4, 2, 1, 3, 0)), (nothing, ())):
        scores = SCORES[: len(tree.nodes)]
        assert traverse(tree, scores, 5).positions == collapse(tree, scores, 5, 1000).positions == positions


def _reader(prompt: str) -> str:
    return "in the mill" if prompt.startswith("Information") else "A summary about " + prompt.split()[-1]


TEXT = " ".join(
    f"The {name} number {i} stood near the river." for i in range(7) for name in ("mill", "goat", "bell")
)
QUESTION = Question("Where is the mill?", DocumentSet((Document("", TEXT),)), 8)


def _raptor(geometry: Geometry = GEOMETRY, **options: object) -> Raptor:
    return Raptor(RaptorConfig.model_validate(options), geometry, 0)


def _answer(method: Raptor) -> tuple[Prediction, Models]:
    models = Models(_reader, method.geometry)

    async def both() -> Prediction:
        index = await method.index(QUESTION.documents, models)  # type: ignore[arg-type]
        return await method.answer(index, QUESTION, models)  # type: ignore[arg-type]

    return asyncio.run(both()), models


def test_both_modes_share_one_tree_and_read_other_nodes() -> None:
    tt, ct = _raptor(mode="tt", k=2), _raptor(mode="ct", k=4)
    assert tt.index_options() == ct.index_options()
    (by_layers, _), (at_once, models) = _answer(tt), _answer(ct)
    assert by_layers.text == at_once.text == "in the mill"
    layers = [step["layer"] for step in by_layers.trace["steps"]]
    assert layers == sorted(layers, reverse=True) and layers[-1] == 0 and len(layers) > 1
    assert len(by_layers.context) == sum(len(step["nodes"]) for step in by_layers.trace["steps"])
    assert len(at_once.context) == 4
    scores = [item.score for item in at_once.context]
    assert scores == sorted(scores, reverse=True)
    for item in (*by_layers.context, *at_once.context):
        assert (item.node is None) == (item.start is not None)
        assert item.start is None or item.text == TEXT[item.start : item.end]
        assert item.text in models.writer.prompts[-1] or item in by_layers.context


def test_summaries_that_were_cut_are_counted_at_every_question() -> None:
    assert _answer(_raptor())[0].flags == ()
    assert _answer(_raptor(summary_tokens=4))[0].flags == ("tree_cut_summary",)


def test_top_x_may_read_as_much_as_the_window() -> None:
    """Top-X costs what PECAN costs: on Qasper, read by a large model, it stopped at half of that."""
    narrow = replace(GEOMETRY, window=64)  # room for 27 tokens of nodes, in proportion
    capped, whole = (_answer(_raptor(narrow, k=99, max_tokens=most))[0] for most in (None, "window"))
    assert capped.trace["stopped_by"] == whole.trace["stopped_by"] == "max_tokens"
    assert capped.trace["tokens"] <= 27 < whole.trace["tokens"] <= 64


def test_nodes_that_do_not_fit_the_reader_are_dropped_from_the_worst_and_it_is_said() -> None:
    narrow = replace(GEOMETRY, input_limit=100)
    prediction, _ = _answer(_raptor(narrow, k=10, max_tokens=2000, cluster_tokens=60))
    assert prediction.truncated and 0 < len(prediction.context) < 10
    picked = [node["score"] for node in prediction.trace["steps"][0]["nodes"]]
    assert [item.score for item in prediction.context] == picked[: len(prediction.context)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaf_tokens": 50, "cluster_tokens": 40}, "cluster_tokens=40 is less than one node"),
        ({"summary_tokens": 50, "cluster_tokens": 40}, "cluster_tokens=40 is less than one node"),
        ({"cluster_tokens": 2040}, "exceed the model.s limit"),
        ({"mode": "tt", "max_tokens": 100}, "max_tokens=100 limits mode=ct"),
    ],
)
def test_lengths_that_do_not_fit_together_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _raptor(**options)


def test_a_reader_at_the_papers_lengths_gets_the_encoder_of_raptors_code() -> None:
    paper = replace(GEOMETRY, chunk_tokens=300, window=8192, input_limit=32768)
    made = (_raptor(paper), _raptor(), _raptor(paper, embedder="other"))
    assert [one.roles()["embedder"].model for one in made] == ["multi-qa-mpnet", "minilm", "other"]
