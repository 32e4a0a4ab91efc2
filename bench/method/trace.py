"""The log of a search: what a method that searches returns as ``Prediction.trace``.

In a record it is an object with the list ``steps`` and any other logged values:

    {"stop": "patience", "steps": [
        {"nodes": [{"id": "1.4", "level": 1, "score": 0.25}], "p_yes": 0.75},
        {"nodes": [{"id": "0.2", "level": 0, "score": null}], "p_yes": null, "reply": "Action: -2"}]}

Further keys of a step or node are details and shown as they are. A trace without ``steps`` is a free log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from bench.schema import JsonValue


@dataclass(frozen=True)
class VisitedNode:
    """A node that a step read or visited."""

    id: str
    level: int | None = None
    """0 for the text itself, more for summaries."""
    score: float | None = None
    """The score that it was chosen by."""
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """As a record keeps it."""
        return {"id": self.id, "level": self.level, "score": self.score, **self.details}

    @classmethod
    def read(cls, value: Mapping[str, JsonValue]) -> Self:
        """The node of a record; raises ValueError for one without a name."""
        rest = dict(value)
        id_, level = rest.pop("id", None), rest.pop("level", None)
        if not isinstance(id_, str):
            raise ValueError(f"a node has the id {id_!r}; expected text")
        return cls(id_, level, rest.pop("score", None), rest)


@dataclass(frozen=True)
class SearchStep:
    """The nodes read between two decisions, and the model's decision after them."""

    nodes: tuple[VisitedNode, ...]
    """In the order in which they were read. Without replies, those of all steps are the context."""
    p_yes: float | None = None
    """Probability that the nodes read so far suffice; None if the model was not asked."""
    reply: str | None = None
    """Of a walk: the model's reply, in words, at the current node."""
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """As a record keeps it."""
        reply = {} if self.reply is None else {"reply": self.reply}
        nodes = [node.to_json() for node in self.nodes]
        return {"nodes": nodes, "p_yes": self.p_yes, **reply, **self.details}

    @classmethod
    def read(cls, value: Mapping[str, JsonValue]) -> Self:
        """The step of a record; raises ValueError if it is not a step."""
        rest = dict(value)
        nodes = rest.pop("nodes", None)
        if not isinstance(nodes, list) or not all(isinstance(node, Mapping) for node in nodes):
            raise ValueError("a step has no list of nodes")
        read = tuple(VisitedNode.read(node) for node in nodes)
        return cls(read, rest.pop("p_yes", None), rest.pop("reply", None), rest)


@dataclass(frozen=True)
class SearchTrace:
    """All steps of a search, and the values logged for the search."""

    steps: tuple[SearchStep, ...]
    about: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """As a record keeps it."""
        return {**self.about, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def read(cls, trace: JsonValue) -> Self | None:
        """The search in a record's trace; None if the trace is not of a search."""
        steps = trace.get("steps") if isinstance(trace, Mapping) else None
        if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
            return None
        try:
            read = tuple(SearchStep.read(step) for step in steps if isinstance(step, Mapping))
        except ValueError:
            return None
        about = {key: value for key, value in trace.items() if key != "steps"}
        return cls(read, about) if len(read) == len(steps) else None

    @property
    def read_nodes(self) -> tuple[VisitedNode, ...]:
        """The nodes whose texts were read, in order; empty for a walk, whose context is its memory."""
        if any(step.reply is not None for step in self.steps):
            return ()
        return tuple(node for step in self.steps for node in step.nodes)


def described(trace: Mapping[str, JsonValue]) -> str:
    """A record's trace as text: a search as a table with a row for each node, else field by field."""
    search = SearchTrace.read(trace)
    if search is None:
        return "\n".join(f"trace       {name}: {value}" for name, value in trace.items())
    lines = [f"search      {name}: {value}" for name, value in search.about.items()]
    lines.append("            step  node      level     score   p_yes")
    for number, step in enumerate(search.steps):
        for at, node in enumerate(step.nodes):
            last = at == len(step.nodes) - 1
            about = {**node.details, **({"reply": step.reply, **step.details} if last else {})}
            details = ", ".join(f"{key} {_short(value)}" for key, value in about.items() if value is not None)
            place = f"{'' if at else number:>4}  {node.id:<9} {_short(node.level):>5}"
            measures = f"{_short(node.score):>9} {_short(step.p_yes if last else None):>7}"
            lines.append(f"            {place} {measures}  {details}".rstrip())
    return "\n".join(lines)


def _short(value: JsonValue) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
