"""One search for a whole grid: every derived cell is the cell run alone, and nothing is done twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings, strategies as st

from bench.flops.meter import Meter, metered
from bench.method.contract import Replayed
from bench.schema import Document, DocumentSet
from methods.pecan import Pecan, PecanConfig
from methods.pecan.graph import Graph
from tests.methods.pecan.scripted import GEOMETRY, Script, ScriptedModel, ScriptedModels, models, spent
from tests.methods.pecan.worked_graph import make_graph, models_for, question

CONFIDENCES = ["absolute", "over_nothing", "over_top"]
ASKED_BEHIND = {"similarity": "off", "probe_question": "asked"}
SWITCHES: list[dict[str, Any]] = [{}, {"attention": "off"}, ASKED_BEHIND, {"answer_from": "chunks"}]
GRID = [PecanConfig(t_p=t_p, t_c=t_c) for t_p in range(1, 5) for t_c in (0.3, 0.5, 0.7, 0.9)]


def together(
    models: ScriptedModels, graph: Graph, configs: Sequence[PecanConfig]
) -> tuple[list[Replayed], Meter]:
    first = Pecan(configs[0], GEOMETRY)
    with metered(Meter()) as meter:
        asking = first.replay(graph.to_index(), question(), models_for(models), configs)
        return asyncio.run(asking), meter


def alone(models: ScriptedModels, graph: Graph, config: PecanConfig) -> Replayed:
    with metered(Meter()) as meter:
        asking = Pecan(config, GEOMETRY).answer(graph.to_index(), question(), models_for(models))
        return Replayed(asyncio.run(asking), meter)


def drawn_graph(seed: int) -> Graph:
    """Words of the document below, a few points above, edges and similarities at random."""
    rng = random.Random(seed)
    points = [f"point {n} {'more ' * rng.randint(0, 3)}".strip() for n in range(rng.randint(1, 6))]
    tops = [f"top {n}" for n in range(rng.randint(1, 3))]
    chunks = ("alpha", "beta", "gamma", "delta")[: rng.randint(1, 4)]
    edges: dict[str, dict[str, float]] = {}
    for uppers, lowers in ((points, chunks), (tops, points)):
        for upper in uppers:
            below = rng.sample(list(lowers), rng.randint(1, len(lowers)))
            edges[upper] = {lower: 1 / len(below) for lower in below}
    similarity = {name: rng.uniform(-1, 1) for name in (*chunks, *points, *tops)}
    return make_graph((chunks, points, tops), edges, similarity)


def drawn_models(seed: int, *, two: bool) -> ScriptedModels:
    """Confidence and attention that look random but depend on nothing but what was read."""

    def draw(*key: object) -> float:
        return random.Random(repr((seed, key))).random()

    script = Script(p_yes=lambda nodes: draw("p", tuple(nodes)), relevance=lambda node: draw("r", node))
    small = replace(script, mass=draw("mass"))
    if two:
        return ScriptedModels(
            ScriptedModel(script, name="large"), others={"searcher": ScriptedModel(small, name="small")}
        )
    return ScriptedModels(ScriptedModel(small))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    patience=st.sampled_from(["cumulative", "consecutive"]),
    norm=st.sampled_from(["sum1", "none"]),
    two=st.booleans(),
    window=st.sampled_from([None, 100, 120, 140]),
    switch=st.sampled_from(SWITCHES),
)
def test_a_replayed_cell_is_the_cell_run_alone(
    seed: int, patience: str, norm: str, two: bool, window: int | None, switch: dict[str, Any]
) -> None:
    """Same nodes, same answer, same trace, same tokens and FLOPs, to the digit."""
    common = {"score_norm": norm, "window": window, "search_model": "small" if two else "", **switch}
    configs = [
        PecanConfig(t_p=c.t_p, t_c=c.t_c, confidence=over, patience=patience, **common)  # type: ignore[arg-type]
        for over, c in zip(CONFIDENCES * 2, random.Random(seed).sample(GRID, 6), strict=True)
    ]
    graph = drawn_graph(seed)
    derived, _ = together(drawn_models(seed, two=two), graph, configs)
    for config, replayed in zip(configs, derived, strict=True):
        expected = alone(drawn_models(seed, two=two), graph, config)
        assert replayed.prediction == expected.prediction
        assert replayed.meter.to_json() == expected.meter.to_json()
        assert replayed.meter.flops > 0


def test_the_grid_costs_its_longest_walk_and_one_answer_per_stopping_point() -> None:
    confidence = [0.2, 0.4, 0.6, 0.8, 0.95, 0.95, 0.95]
    fixed = models(p_yes=lambda nodes: confidence[len(nodes) - 1])
    derived, meter = together(fixed, make_graph(), GRID)
    stops = {len(one.prediction.trace["steps"]) for one in derived}
    (context,) = fixed.reader.contexts
    answers = sum(token == "answer" for _, token in context.log)
    assert len(stops) == 6 and answers == len(stops)
    assert spent(meter) == len(context.log)
    nodes = [token for _, token in context.log if token.strip() in ("top", "p", "q", "alpha", "beta")]
    assert len(nodes) == len(set(nodes)), "a node is read once, however many answers are given"
    dearest = max(one.meter.flops for one in derived)
    assert dearest < meter.flops < sum(one.meter.flops for one in derived)


def test_cells_that_stop_at_the_same_step_share_its_answer() -> None:
    fixed = models(p_yes=lambda nodes: 0.95 if len(nodes) == 3 else 0.1)
    configs = [PecanConfig(t_p=1, t_c=t_c) for t_c in (0.3, 0.5, 0.9)]
    derived, _ = together(fixed, make_graph(), configs)
    assert sum(token == "answer" for _, token in fixed.reader.contexts[0].log) == 1
    assert [one.prediction.trace["t_c"] for one in derived] == [0.3, 0.5, 0.9]
    assert len({id(one.prediction.context) for one in derived}) == 1, "a runner measures it once"
    assert len({one.prediction.text for one in derived}) == 1


def test_the_walk_ends_with_the_last_cell_that_waits() -> None:
    fixed = models(p_yes=lambda nodes: 0.95)
    derived, _ = together(fixed, make_graph(), [PecanConfig(t_p=1, t_c=0.5), PecanConfig(t_p=2, t_c=0.5)])
    assert fixed.reader.contexts[0].nodes == ["top", "p"]
    assert [len(one.prediction.trace["steps"]) for one in derived] == [1, 2]


def test_a_cell_that_runs_out_of_nodes_and_one_that_stops_there_agree_on_the_answer() -> None:
    """Seven nodes: one rule says Yes at the seventh, the other never does."""
    fixed = models(p_yes=lambda nodes: 0.6 if len(nodes) == 7 else 0.1)
    derived, _ = together(fixed, make_graph(), [PecanConfig(t_c=0.5), PecanConfig(t_c=0.9)])
    assert [one.prediction.trace["stop"] for one in derived] == ["patience", "exhausted"]
    assert derived[0].meter.to_json() == derived[1].meter.to_json()


def test_an_open_threshold_is_replayed_beside_given_ones() -> None:
    fixed = models(p_yes=lambda nodes: 0.2 * len(nodes))
    derived, _ = together(fixed, make_graph(), [PecanConfig(), PecanConfig(t_c=0.9)])
    assert [len(one.prediction.trace["steps"]) for one in derived] == [3, 5]


def test_an_empty_document_is_answered_once_for_all() -> None:
    fixed = models()
    asked = replace(question(), documents=DocumentSet((Document("", ""),)))
    asking = Pecan(GRID[0], GEOMETRY).replay(make_graph((), {}).to_index(), asked, fixed, GRID)
    derived = asyncio.run(asking)
    assert len(derived) == len(GRID) and len(fixed.reader.contexts) == 1
    assert {one.meter.new_tokens for one in derived} == {fixed.reader.forwarded}
