from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench.errors import BenchError
from bench.flops.meter import Meter, metered
from bench.method.contract import Reference, TrainingItem
from bench.models.model_set import load_embedder
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet
from methods.gor.records import RecordsPlan, build_records
from methods.gor.training import NETWORK, Epoch, Trainer, TrainingGraph, training_graphs
from tests.methods.gor.corpus import DIM, NODES, QUERIES, RECIPE, corpus, hits, split
from tests.methods.writers import Models


def trained(graphs: list[TrainingGraph], **changes: Any) -> Trainer:
    trainer = Trainer(graphs, replace(RECIPE, **changes))
    trainer.run()
    return trainer


def test_the_loss_falls_and_held_out_queries_find_their_nodes() -> None:
    parts = [split(graph, 9) for graph in corpus(10)]
    trainer = trained([learn for learn, _ in parts], epochs=60)
    first, last = trainer.history[0], trainer.history[-1]
    assert last.loss < 0.85 * first.loss
    assert last.contrastive < first.contrastive and last.ranking < first.ranking
    trainer.network.eval()
    before, after = [], []
    for at, (_, held_out) in enumerate(parts):
        graph = trainer.graphs[at]
        with torch.inference_mode():
            learned = trainer.network(graph.features, graph.edges).numpy()
        before.append(hits(held_out.features, held_out, 3))
        after.append(hits(learned, held_out, 3))
    assert np.mean(before) < 0.3 and np.mean(after) > 0.5


def test_a_training_of_the_same_seed_ends_in_the_same_weights() -> None:
    one, other = (trained(corpus(), epochs=3).network.arrays() for _ in range(2))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_every_epoch_takes_all_graphs_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(corpus(8), replace(RECIPE, epochs=4, batch_graphs=3))
    losses, seen = trainer.losses, list[list[int]]()
    places = {id(graph): at for at, graph in enumerate(trainer.graphs)}

    def watched(batch: Any) -> Any:
        seen[-1].extend(places[id(graph)] for graph in batch)
        return losses(batch)

    monkeypatch.setattr(trainer, "losses", watched)
    for _ in range(4):
        seen.append([])
        trainer.train_epoch()
        trainer.history.append(Epoch(0.0, 0.0, 0.0, 0.0))
    assert all(sorted(order) == list(range(8)) for order in seen)
    assert len({tuple(order) for order in seen}) == 4


def test_other_graphs_of_the_batch_are_negatives_and_one_graph_has_none() -> None:
    def first(graphs: list[TrainingGraph], **changes: Any) -> Epoch:
        calm = replace(RECIPE.shape, dropout=0.0, attention_dropout=0.0)
        return trained(graphs, epochs=1, shape=calm, **changes).history[0]

    graphs = corpus(4)
    on, off = first(graphs), first(graphs, in_batch_negatives=False)
    assert on.contrastive > off.contrastive + 0.5 and on.ranking == off.ranking
    one = corpus(1)
    assert first(one) == first(one, in_batch_negatives=False)


@pytest.mark.parametrize(("loss", "falls"), [("cl", "contrastive"), ("rank", "ranking")])
def test_each_loss_can_be_left_out(loss: str, falls: str) -> None:
    trainer = trained(corpus(), loss=loss, epochs=20)
    first, last = trainer.history[0], trainer.history[-1]
    assert first.loss == getattr(first, falls) and getattr(last, falls) < getattr(first, falls)
    both = trained(corpus(), epochs=1).history[0]
    assert both.loss == pytest.approx(both.contrastive + RECIPE.alpha * both.ranking)


def test_the_learning_rate_falls_to_nothing_along_a_cosine() -> None:
    trainer = Trainer(corpus(8), replace(RECIPE, epochs=5))  # two batches an epoch
    rates: list[float] = []
    for _ in range(5):
        trainer.history.append(trainer.train_epoch())
        rates.append(trainer.adam.param_groups[0]["lr"])
    steps = [1, 3, 5, 7, 9]  # the last step of each epoch, of 10
    expected = [1e-3 * 0.5 * (1 + np.cos(np.pi * step / 10)) for step in steps]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["gcn", "sgc", "gin", "sage"])
def test_every_kind_of_network_learns(kind: Any) -> None:
    trainer = trained(corpus(), epochs=15, shape=replace(RECIPE.shape, kind=kind))
    assert trainer.history[-1].loss < trainer.history[0].loss


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    graph = corpus(1)[0]
    broken = replace(graph, queries=np.full_like(graph.queries, np.inf))
    with pytest.raises(BenchError, match=r"diverged in epoch 1 .* --set\s+learning_rate"):
        trained([broken])


def test_the_cost_is_three_forwards_of_every_epoch_and_the_similarities() -> None:
    with metered(Meter()) as meter:
        trainer = trained(corpus(6), epochs=2, batch_graphs=3)
    usage = meter.usage[NETWORK, "train"]
    similarities = 2 * 6 * QUERIES * (3 * NODES) * DIM
    assert usage.flops == 2 * 3 * (6 * NODES * trainer.network.forward_flops + similarities)
    assert usage.calls == 4


def reply(prompt: str) -> str:
    if prompt.startswith("Passage:"):
        return f"What about {prompt.split()[1]}?"
    return "It is " + prompt.partition("Question:\n")[2].split()[2]


@pytest.fixture(scope="module")
def items() -> list[TrainingItem]:
    """Three document sets, the second without any text, embedded by minilm."""
    encoder = load_embedder(resolve("minilm", device="cpu"))
    plan = RecordsPlan(8, 1, 4, 3, 0.5, 8, 8, 0)
    writer: Any = Models(reply).writer
    texts = ("the red kite hid in the mill by the river while rain fell on the town", "", "goats eat grass")
    sets = [DocumentSet((Document("", text),)) for text in texts]
    return [
        TrainingItem(
            documents,
            asyncio.run(build_records(documents, writer, encoder, plan)).to_index(),
            (Reference("What happened?", ("goats eat", "the rain fell on the town")),),
        )
        for documents in sets
    ]


def rankings(
    items: list[TrainingItem], *, supervised: bool = False, most_queries: int | None = None
) -> list[TrainingGraph]:
    encoder = load_embedder(resolve("minilm", device="cpu"))
    return asyncio.run(
        training_graphs(items, encoder, encoder, supervised=supervised, most_queries=most_queries)
    )


def test_the_text_that_a_query_was_asked_about_comes_first(items: list[TrainingItem]) -> None:
    graphs = rankings(items)
    assert len(graphs) == 2, "there is nothing to learn from an empty document"
    for graph, item in zip(graphs, (items[0], items[2]), strict=True):
        sources = [query[1] for query in item.index.data["queries"]]
        assert graph.order[:, 0].tolist() == sources
        assert (np.sort(graph.order, axis=1) == np.arange(len(graph.features))).all()
        assert graph.queries.shape == (len(sources), 384)
    (one,) = rankings(items[2:])
    assert len(one.features) >= 1


def test_the_first_queries_are_learned_from_on_the_whole_graph(items: list[TrainingItem]) -> None:
    whole, fewer = rankings(items)[0], rankings(items, most_queries=1)[0]
    assert len(whole.queries) > 1
    np.testing.assert_array_equal(fewer.queries, whole.queries[:1])
    np.testing.assert_array_equal(fewer.order, whole.order[:1])
    np.testing.assert_array_equal(fewer.features, whole.features)
    np.testing.assert_array_equal(fewer.arcs, whole.arcs)


def test_with_supervision_questions_are_ranked_against_their_references(items: list[TrainingItem]) -> None:
    graphs = rankings(items, supervised=True)
    assert len(graphs) == 2 and all(len(graph.queries) == 2 for graph in graphs)
    texts = items[0].documents.documents[0].text
    chunk = items[0].index.data["chunks"][graphs[0].order[1, 0]] if graphs[0].order[1, 0] < 3 else None
    assert chunk is None or "rain" in texts[chunk[1] : chunk[2]] or "town" in texts[chunk[1] : chunk[2]]
    # One question with two answers. Rows of one batch may be summed in different orders: equal to rounding.
    np.testing.assert_allclose(graphs[0].queries[0], graphs[0].queries[1], atol=1e-6)
    bare = [replace(item, references=()) for item in items]
    assert rankings(bare, supervised=True) == []
