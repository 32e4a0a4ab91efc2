"""A search as a record and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.method import ConfigError, DrawnEdge, DrawnNode, GraphView, SearchStep, SearchTrace, VisitedNode
from bench.schema import DocumentSet, JsonValue, Prediction, Question
from methods.pecan.config import PecanConfig
from methods.pecan.graph import Graph
from methods.pecan.search import Step, Stopped, StopRule

LOW_MASS = 0.05
"""Below this total probability of Yes and No, p_yes compares two unlikely answers.  # our choice"""

FLAGGED_EVENTS = (
    "no_bullets",
    "empty_summary",
    "cut_bullet",
    "split_node",
    "level_not_smaller",
    "max_levels",
)
"""Problems during graph construction that are flagged on every question of that graph."""

_REASONS = {
    "patience": "the model said Yes often enough",
    "exhausted": "every node was read",
    "window": "the next node would not have fit the window",
    "n_nodes": "the fixed number of nodes was read",
}


def prediction_of(graph: Graph, question: Question, config: PecanConfig, end: Stopped) -> Prediction:
    """The prediction of a search that ended here; :func:`stopped_by` says which rule ended it."""
    answer = end.answer
    masses = [step.mass for step in end.steps if step.mass is not None]
    events = graph.notes.get("events", {})
    flags = [
        *(["empty_question"] if not question.text.strip() else []),
        *(["low_yes_no_mass"] if masses and min(masses) < LOW_MASS else []),
        *(["top_level_cut"] if end.cut else []),
        *(f"graph_{name}" for name in FLAGGED_EVENTS if events.get(name)),
    ]
    return Prediction(
        text=answer.text,
        context=[
            graph.passage(visit.node, question.documents, _short(visit.score))
            for step in end.steps
            for visit in step.visits
        ],
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        truncated=end.cut or end.stop == "window",
        flags=tuple(flags),
        trace=SearchTrace(
            tuple(_step(graph, step) for step in end.steps),
            {
                "stop": end.stop,
                "variant": config.variant,
                "graph": dict(graph.notes),
                "top_level": {"nodes": len(graph.top), "left_out": end.left_out},
            },
        ).to_json(),
    )


def stopped_by(prediction: Prediction, rule: StopRule) -> Prediction:
    """The prediction with the rule that ended its search in the trace."""
    ended: dict[str, JsonValue] = {"t_p": rule.t_p, "t_c": rule.t_c, "patience": rule.patience}
    if rule.base is not None:
        ended |= {"confidence": rule.confidence, "base": rule.base}
    return replace(prediction, trace={**ended, **prediction.trace})


def _step(graph: Graph, step: Step) -> SearchStep:
    nodes = (
        VisitedNode(
            graph.ids[visit.node],
            graph.nodes[visit.node].level,
            _short(visit.score),
            {
                "position": visit.position,
                "tokens": visit.tokens,
                "z": _short(visit.z),
                "similarity": _short(visit.similarity),
                "r": _short(visit.r),
            },
        )
        for visit in step.visits
    )
    return SearchStep(tuple(nodes), step.p_yes, details={"mass": step.mass})


def _short(value: float | None) -> float | None:
    """Six significant digits: the rest depends on the composition of the model's batches."""
    return None if value is None else float(f"{value:.6g}")


def draw(graph: Graph, documents: DocumentSet, trace: Mapping[str, JsonValue] | None = None) -> GraphView:
    """The graph as a picture; trace: of a search whose path is highlighted.

    Raises ConfigError for the trace of a search on another graph.
    """
    if trace is not None and trace.get("graph", graph.notes) != graph.notes:
        raise ConfigError(
            f"the record is of a search on another graph (built by {trace['graph'].get('builder')}, levels "
            f"{trace['graph'].get('levels')}); this one was built by {graph.notes.get('builder')}, levels "
            f"{graph.notes.get('levels')}. Pass the model and --set options of the record's run."
        )
    order: dict[str, tuple[int, str]] = {}
    steps = [] if trace is None else trace.get("steps", [])
    for number, step in enumerate(steps):
        for at, node in enumerate(step["nodes"], start=1):
            probed = ""
            if at == len(step["nodes"]) and step["p_yes"] is not None:
                probed = f"; then p_yes {step['p_yes']:.3f}"
            score = "" if node["score"] is None else f", score {node['score']:.4f}"
            order[node["id"]] = (len(order) + 1, f"read at step {number}{score}{probed}")
    drawn = []
    for at, node in enumerate(graph.nodes):
        title = documents.documents[node.document].title if node.document is not None else ""
        place = (
            "" if node.start is None else f"{title or f'document {node.document}'} [{node.start}:{node.end}]"
        )
        visited, note = order.get(graph.ids[at], (None, ""))
        notes = [part for part in (place, "cut short" if node.cut else "", note) if part]
        drawn.append(DrawnNode(graph.ids[at], node.level, node.text, "; ".join(notes), visited))
    edges = tuple(
        DrawnEdge(int(upper), int(lower), float(weight))
        for upper, lower, weight in zip(graph.upper, graph.lower, graph.weight, strict=True)
    )
    stopped = (
        "" if trace is None or not steps else f"stopped by {trace['stop']}: {_REASONS.get(trace['stop'], '')}"
    )
    return GraphView(tuple(drawn), edges, stopped)
