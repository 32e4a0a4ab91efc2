"""A search as a record and as a picture."""

from __future__ import annotations

from dataclasses import replace

from bench.method import DrawnEdge, DrawnNode, GraphView, SearchStep, SearchTrace, VisitedNode
from bench.schema import JsonValue, Prediction, Question
from methods.pecan.config import PecanConfig
from methods.pecan.graph import Graph
from methods.pecan.search import Step, Stopped, StopRule

LOW_MASS = 0.05
"""Below this total probability of Yes and No, p_yes compares two unlikely answers.  # our choice"""

FLAGGED_EVENTS = tuple("no_bullets empty_summary cut_bullet split_node level_not_smaller max_levels".split())
"""Problems during graph construction that are flagged on every question of that graph."""


def prediction_of(graph: Graph, question: Question, config: PecanConfig, end: Stopped) -> Prediction:
    """The prediction of a search that ended here; :func:`stopped_by` says which rule ended it."""
    answer = end.answer
    events = graph.notes.get("events", {})
    flags = [
        *(["empty_question"] if not question.text.strip() else []),
        *(["low_yes_no_mass"] if end.lowest_mass < LOW_MASS else []),
        *(["top_level_cut"] if end.cut else []),
        *(f"graph_{name}" for name in FLAGGED_EVENTS if events.get(name)),
    ]
    return Prediction(
        text=answer.text,
        context=answer.context
        if config.answer_from == "chunks"
        else [
            graph.passage(visit.node, question.documents, _short(visit.score))
            for step in end.steps
            for visit in step.visits
        ],
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        truncated=end.cut or end.stop == "window" or answer.truncated,
        flags=(*flags, *answer.flags),
        trace=SearchTrace(
            steps=[_step(graph, step) for step in end.steps],
            stop=end.stop,
            variant=config.variant,
            graph=dict(graph.notes),
            top_level={"nodes": len(graph.top), "left_out": end.left_out},
        ).to_json(),
    )


def stopped_by(prediction: Prediction, rule: StopRule) -> Prediction:
    """The prediction with the rule that ended its search in the trace."""
    ended: dict[str, JsonValue] = {"t_p": rule.t_p, "t_c": rule.t_c, "patience": rule.patience}
    if rule.base is not None:
        ended |= {"confidence": rule.confidence, "base": rule.base}
    return replace(prediction, trace={**ended, **prediction.trace})


def _step(graph: Graph, step: Step) -> SearchStep:
    nodes = [
        VisitedNode(
            id=graph.ids[visit.node],
            level=graph.nodes[visit.node].level,
            score=_short(visit.score),
            position=visit.position,
            tokens=visit.tokens,
            z=_short(visit.z),
            similarity=_short(visit.similarity),
            r=_short(visit.r),
        )
        for visit in step.visits
    ]
    return SearchStep(nodes=nodes, p_yes=step.p_yes, mass=step.mass)


def _short(value: float | None) -> float | None:
    """Six significant digits: the rest depends on the composition of the model's batches."""
    return None if value is None else float(f"{value:.6g}")


def draw(graph: Graph) -> GraphView:
    """The graph as a picture."""
    nodes = (DrawnNode(id_, node.level, node.text) for id_, node in zip(graph.ids, graph.nodes, strict=True))
    edges = (
        DrawnEdge(int(upper), int(lower), float(weight))
        for upper, lower, weight in zip(graph.upper, graph.lower, graph.weight, strict=True)
    )
    return GraphView(tuple(nodes), tuple(edges))
