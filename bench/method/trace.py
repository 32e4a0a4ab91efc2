"""The log of a search: what a method that searches returns as ``Prediction.trace``.

In a record it is an object with the list ``steps`` and any other logged values:

    {"stop": "patience", "steps": [
        {"nodes": [{"id": "1.4", "level": 1, "score": 0.25}], "p_yes": 0.75},
        {"nodes": [{"id": "0.2", "level": 0, "score": null}], "p_yes": null, "reply": "Action: -2"}]}

Further keys of a step or node are details and shown as they are. A trace without ``steps`` is a free log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.schema import JsonValue


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    @property
    def details(self) -> Mapping[str, JsonValue]:
        """Its further keys."""
        return self.model_extra or {}


class VisitedNode(_Part):
    """A node that a step read or visited; further keys are details."""

    id: str
    level: int | None = None
    """0 for the text itself, more for summaries."""
    score: float | None = None
    """The score that it was chosen by."""


class SearchStep(_Part):
    """The nodes read between two decisions, and the model's decision after them; further keys are details."""

    nodes: list[VisitedNode]
    """In the order in which they were read. Without replies, those of all steps are the context."""
    p_yes: float | None = None
    """Probability that the nodes read so far suffice; None if the model was not asked."""
    reply: str | None = None
    """Of a walk: the model's reply, in words, at the current node."""

    def to_json(self) -> dict[str, JsonValue]:
        """As a record keeps it."""
        return self.model_dump(exclude={"reply"} if self.reply is None else None)


class SearchTrace(_Part):
    """All steps of a search; further keys are the values logged for the search."""

    steps: list[SearchStep]

    def to_json(self) -> dict[str, JsonValue]:
        """As a record keeps it."""
        return {**self.details, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def read(cls, trace: JsonValue) -> Self | None:
        """The search in a record's trace; None if the trace is not of a search."""
        try:
            search = cls.model_validate(trace)
        except ValidationError:
            return None
        return search if search.steps else None

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
    lines = [f"search      {name}: {value}" for name, value in search.details.items()]
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
