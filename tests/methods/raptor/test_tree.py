from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet
from methods.raptor import tree as tree_module
from methods.raptor.tree import Tree, TreePlan, build_tree
from tests.methods.writers import Models

TOPICS = ("river mill water wheel", "goat milk cheese barn", "clock brass spring gear")
PLAN = TreePlan(leaf_tokens=6, summary_tokens=8, cluster_tokens=60, max_layers=5, seed=0)


def _documents(leaves: int) -> DocumentSet:
    """One leaf a sentence, about three topics in turn."""
    text = " ".join(f"{TOPICS[i % 3].capitalize()} {i}." for i in range(leaves))
    return DocumentSet((Document("", text),))


def _first_words(prompt: str) -> str:
    """The summary that a stand-in writes: the first word of every text that it is given."""
    texts = prompt.partition(": ")[2].rstrip(":").split("\n\n")
    return "Summary of " + " ".join(text.split()[0] for text in texts)


def _build(leaves: int | DocumentSet, models: Models | None = None) -> Tree:
    documents = _documents(leaves) if isinstance(leaves, int) else leaves
    models = models or Models(_first_words)
    return asyncio.run(build_tree(documents, models.writer, models.encoder, PLAN))  # type: ignore[arg-type]


@pytest.mark.parametrize("leaves", [0, 1, 2, 3, 5, 11])
def test_up_to_eleven_leaves_get_no_summaries(leaves: int) -> None:
    models = Models(_first_words)
    tree = _build(leaves, models)
    assert len(tree.nodes) == leaves and not models.writer.prompts
    assert tree.layers == ((tuple(range(leaves)),) if leaves else ())
    assert tree.embeddings.shape == (leaves, 16)


@pytest.mark.parametrize("leaves", [12, 200])
def test_larger_documents_get_layers_until_one_is_small(leaves: int) -> None:
    tree = _build(leaves)
    sizes = [len(layer) for layer in tree.layers]
    assert sizes[0] == leaves and len(sizes) > 1
    assert sizes[-1] <= 11 or len(sizes) == 6
    assert all(size > 11 for size in sizes[:-1])
    for layer in range(1, len(sizes)):
        nodes = [tree.nodes[i] for i in tree.layers[layer]]
        below = {child for node in nodes for child in node.children}
        assert below == set(tree.layers[layer - 1]), "every node has a parent, in the layer just above"
        assert all(sum(tree.nodes[c].tokens for c in n.children) <= 60 or len(n.children) == 1 for n in nodes)
        assert all(n.tokens == len(n.text.split()) <= 8 for n in nodes)
    assert np.allclose(np.linalg.norm(tree.embeddings, axis=1), 1, atol=1e-5)


def _fixed_clusters(monkeypatch: pytest.MonkeyPatch, *layers: list[tuple[int, ...]]) -> list[list[int]]:
    """Clusters by script; returns the lengths of the nodes that each layer was clustered with."""
    script, seen = iter(layers), []

    def clusters(
        embeddings: np.ndarray, tokens: list[int], *, max_tokens: int, seed: int
    ) -> list[tuple[int, ...]]:
        assert len(embeddings) == len(tokens) and max_tokens == 60
        seen.append(tokens)
        return next(script)

    monkeypatch.setattr(tree_module, "soft_clusters", clusters)
    return seen


def test_a_tree_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [(0, 1, 2, 3, 4, 5, 6), (6, 7, 8, 9, 10, 11)]  # node 6 has two parents
    seen = _fixed_clusters(monkeypatch, halves)
    models = Models(_first_words)
    tree = _build(12, models)
    assert seen == [[6] * 12]
    assert [node.layer for node in tree.nodes] == [0] * 12 + [1] * 2
    assert [node.children for node in tree.nodes[12:]] == halves
    assert models.writer.prompts[1] == (
        "Write a summary of the following, including as many key details as possible: "
        "River mill water wheel 6.\n\nGoat milk cheese barn 7.\n\nClock brass spring gear 8.\n\n"
        "River mill water wheel 9.\n\nGoat milk cheese barn 10.\n\nClock brass spring gear 11.:"
    )
    assert tree.nodes[13].text == "Summary of River Goat Clock River Goat Clock"
    assert [tree.id(node) for node in (0, 11, 12, 13)] == ["0.1", "0.12", "1.1", "1.2"]
    assert models.writer.limits == [8, 8]
    assert tree.notes["events"] == {"cut_summary": 1}, "the first one has nine words, eight are allowed"


def test_each_text_of_a_cluster_is_one_line_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines tell the texts apart, so that none of their own may remain."""
    _fixed_clusters(monkeypatch, [tuple(range(12))])
    models = Models(_first_words)
    text = " ".join(f"River\n\nmill water  wheel {i}." for i in range(12))
    tree = _build(DocumentSet((Document("", text),)), models)
    assert [node.text for node in tree.nodes[:12]] == [f"River\n\nmill water  wheel {i}." for i in range(12)]
    (prompt,) = models.writer.prompts
    _, _, body = prompt.partition(": ")
    assert body.rstrip(":").split("\n\n") == [f"River mill water wheel {i}." for i in range(12)]


def test_a_stored_tree_is_the_same_tree() -> None:
    tree = _build(14)
    again = Tree.from_index(tree.to_index(), _documents(14))
    assert again.nodes == tree.nodes and again.layers == tree.layers
    assert all("mill" not in str(leaf) for leaf in tree.to_index().data["leaves"]), "leaves are spans only"


def test_building_is_credited() -> None:
    with metered(Meter()) as meter:
        tree = _build(12)
    assert meter.usage["word-encoder", "embed"].new_tokens == len(tree.nodes)
    assert meter.usage["writer", "prefill"].calls == len(tree.layers[1])
