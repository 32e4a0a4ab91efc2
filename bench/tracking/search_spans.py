"""How one question was answered, as the spans of an MLflow trace; read from its record, without MLflow.

A search (:mod:`bench.method.trace`) has a span per visited node, with its text, its scores and what the
model said after it (``p_yes``); several nodes of one step stand below a span of their step. A step with a
reply is one span with all that was logged of it. Without a search there is one span with the passages in the
order in which they were read.

The answer is the last span. Only the question's whole time is measured; spans share it in proportion to
the characters they hold, which is said in the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.method.trace import SearchStep, SearchTrace
from bench.results.passages import SourceTexts
from bench.results.records import ContextRecord, Record
from bench.schema import JsonValue

TRACED_QUESTIONS = 200
"""Most questions of a cell that become traces; one takes about 0.03 s to write.  # our choice"""
TIMES = "wall_s is measured; spans share it in proportion to their text"

_MOST_CHARACTERS = 4_000
"""Of a text in a span; the records hold all of it."""


@dataclass(frozen=True)
class SpanContent:
    """One span with those below it."""

    name: str
    kind: Literal["CHAIN", "RETRIEVER", "LLM", "TASK"]
    inputs: JsonValue = None
    outputs: JsonValue = None
    attributes: Mapping[str, JsonValue] = field(default_factory=dict)
    children: tuple[SpanContent, ...] = ()

    @property
    def weight(self) -> int:
        """Share of the question's time, in characters."""
        if self.children:
            return sum(child.weight for child in self.children)
        return 20 + len(str(self.outputs or ""))

    def flat(self) -> list[SpanContent]:
        """This span and all below it, parents before children."""
        return [self, *(span for child in self.children for span in child.flat())]


def question_span(record: Record, label: str, texts: SourceTexts) -> SpanContent:
    """The root span of a record with all that was done for it; label: its name, the method's."""
    logged = record.trace if isinstance(record.trace, Mapping) else {}
    trace = SearchTrace.read(logged)
    items = [(item, _cut(texts.text(item, record.document_ids))) for item in record.context]
    if trace is not None:
        searched = _steps(trace, items)
    else:
        searched = (_passages(items),) if items else ()
    answer = record.prediction if record.error is None else f"FAILED: {record.error}"
    tokens = {"prompt_tokens": record.tokens.prompt, "completion_tokens": record.tokens.completion}
    answered = SpanContent("answer", "LLM", record.question, answer, tokens)
    return SpanContent(
        name=label,
        kind="CHAIN",
        inputs={"question": record.question},
        outputs={"answer": answer, "references": list(record.answers)},
        attributes={
            "example_id": record.example_id,
            **{name: round(value, 6) for name, value in record.scores.items()},
            **{name: round(value, 6) for name, value in (record.retrieval or {}).items()},
            "query_tflops": float(f"{record.flops.query_tflops:.6g}"),
            "forwarded_tokens": record.tokens.forwarded,
            "truncated": record.truncated,
            "flags": list(record.flags),
            "wall_s": record.wall_s,
            "times": TIMES,
            **{key: value for key, value in logged.items() if key != "steps"},
        },
        children=(*searched, answered),
    )


Item = tuple[ContextRecord, str | None]
"""A passage with its text, where that is to be had."""


def _steps(trace: SearchTrace, items: Sequence[Item]) -> tuple[SpanContent, ...]:
    """A span per step; the nodes of all steps are the context in its order, where their numbers agree."""
    given = iter(items if len(trace.read_nodes) == len(items) else ())
    return tuple(
        _node_step(number, step, given) if step.reply is None else _replied_step(number, step, items)
        for number, step in enumerate(trace.steps)
    )


def _node_step(number: int, step: SearchStep, given: Iterator[Item]) -> SpanContent:
    """The step's one node, or its nodes below a span of the step."""
    logged = {"p_yes": step.p_yes, **step.details}
    after = {key: value for key, value in logged.items() if value is not None}
    spans = []
    for at, node in enumerate(step.nodes):
        item, text = next(given, (None, None))
        last = at == len(step.nodes) - 1
        measured = {key: value for key, value in node.to_json().items() if value is not None and key != "id"}
        told = {**measured, **(after if last else {})}
        title = {"title": item.title} if item is not None and item.title else {}
        spans.append(
            SpanContent(
                name=f"node {node.id}" + (_said(step) if last else ""),
                kind="RETRIEVER",
                inputs={"node": node.id, **_place(item)},
                outputs={"text": text, **{key: told[key] for key in ("score", "p_yes") if key in told}},
                attributes={**title, **told},
            )
        )
    if len(spans) == 1:
        return spans[0]
    name = f"step {number}: {len(spans)} nodes" + _said(step)
    return SpanContent(name, "TASK", None, after or None, after, tuple(spans))


def _said(step: SearchStep) -> str:
    """What the model said after a step, as its name shows it."""
    return "" if step.p_yes is None else f" · p_yes {step.p_yes:.2f}"


def _replied_step(number: int, step: SearchStep, items: Sequence[Item]) -> SpanContent:
    """A step of a walk: where it stood, what it saw, what was replied."""
    at = [node.id for node in step.nodes]
    shown = [text for item, text in items if text is not None and item.node is not None and item.node in at]
    seen = {"node": ", ".join(at), **step.details, **({"text": shown[0]} if shown else {})}
    name = f"step {number}: node {', '.join(at)}"
    return SpanContent(name, "LLM", seen, {"reply": step.reply}, step.to_json())


def _passages(items: Sequence[Item]) -> SpanContent:
    """The passages that were read, as MLflow draws what a retriever found."""
    return SpanContent(
        "passages",
        "RETRIEVER",
        None,
        [
            {
                "page_content": text if text is not None else "(its document is not to be had here)",
                "metadata": {
                    **_place(item),
                    **({"title": item.title} if item.title else {}),
                    **({"score": item.score} if item.score is not None else {}),
                },
            }
            for item, text in items
        ],
        {"passages": len(items)},
    )


def _place(item: ContextRecord | None) -> dict[str, JsonValue]:
    """Where a passage lies in its source."""
    if item is None or item.document is None:
        return {}
    return {"source": f"document {item.document} [{item.start}:{item.end}]"}


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _MOST_CHARACTERS:
        return text
    return text[: _MOST_CHARACTERS - 1] + "…"
