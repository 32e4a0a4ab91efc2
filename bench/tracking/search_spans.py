"""How one question was answered, as the spans of an MLflow trace; made from its record, without MLflow.

A search (:mod:`bench.method.trace`) has one span per visited node, with its text, its scores and the model's
verdict after it (``p_yes``); several nodes of one step are children of a span for the step. A step with a
reply is one span with everything that was logged for it. Without a search there is one span with the passages
in the order in which they were read.

The answer is the last span. Only the question's total time is measured; spans share it in proportion to
their text, and the trace says so.
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
"""Maximum number of traces per cell; writing one takes about 0.03 s.  # our choice"""
TIMES = "wall_s is measured; spans share it in proportion to their text"

_MAX_CHARACTERS = 4_000
"""Length of a text in a span; the records have the full text."""


@dataclass(frozen=True)
class SpanContent:
    """One span with its children."""

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
        """This span and all its descendants, parents before children."""
        return [self, *(span for child in self.children for span in child.flat())]


def question_span(record: Record, label: str, texts: SourceTexts) -> SpanContent:
    """The root span of a record, with everything done to answer it; label: its name, the method's."""
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
            **{name: round(value, 6) for name, value in record.retrieval.items()},
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
"""A passage with its text, if available."""


def _steps(trace: SearchTrace, items: Sequence[Item]) -> tuple[SpanContent, ...]:
    """One span per step; if the counts agree, the nodes of all steps are the context items in order."""
    in_order = iter(items if len(trace.read_nodes) == len(items) else ())
    return tuple(
        _node_step(number, step, in_order) if step.reply is None else _reply_step(number, step, items)
        for number, step in enumerate(trace.steps)
    )


def _node_step(number: int, step: SearchStep, items: Iterator[Item]) -> SpanContent:
    """A span for the step's node; for several nodes, a span for the step with a child for each."""
    logged = {"p_yes": step.p_yes, **step.details}
    after = {key: value for key, value in logged.items() if value is not None}
    spans = []
    for at, node in enumerate(step.nodes):
        item, text = next(items, (None, None))
        last = at == len(step.nodes) - 1
        measured = {key: value for key, value in node.to_json().items() if value is not None and key != "id"}
        values = {**measured, **(after if last else {})}
        title = {"title": item.title} if item is not None and item.title else {}
        spans.append(
            SpanContent(
                name=f"node {node.id}" + (_verdict(step) if last else ""),
                kind="RETRIEVER",
                inputs={"node": node.id, **_place(item)},
                outputs={"text": text, **{key: values[key] for key in ("score", "p_yes") if key in values}},
                attributes={**title, **values},
            )
        )
    if len(spans) == 1:
        return spans[0]
    name = f"step {number}: {len(spans)} nodes" + _verdict(step)
    return SpanContent(name, "TASK", None, after or None, after, tuple(spans))


def _verdict(step: SearchStep) -> str:
    """The model's verdict after a step, as part of the span's name."""
    return "" if step.p_yes is None else f" · p_yes {step.p_yes:.2f}"


def _reply_step(number: int, step: SearchStep, items: Sequence[Item]) -> SpanContent:
    """A step of a walk: its node, what the model saw there, and its reply."""
    at = [node.id for node in step.nodes]
    shown = [text for item, text in items if text is not None and item.node is not None and item.node in at]
    seen = {"node": ", ".join(at), **step.details, **({"text": shown[0]} if shown else {})}
    name = f"step {number}: node {', '.join(at)}"
    return SpanContent(name, "LLM", seen, {"reply": step.reply}, step.to_json())


def _passages(items: Sequence[Item]) -> SpanContent:
    """The passages that were read, in the form that MLflow displays for a retriever."""
    return SpanContent(
        "passages",
        "RETRIEVER",
        None,
        [
            {
                "page_content": text if text is not None else "(its document is not available here)",
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
    """The passage's place in its source."""
    if item is None or item.document is None:
        return {}
    return {"source": f"document {item.document} [{item.start}:{item.end}]"}


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_CHARACTERS:
        return text
    return text[: _MAX_CHARACTERS - 1] + "…"
