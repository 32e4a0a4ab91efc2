"""Quality of a context, independent of the reader's answer: computed from a record's context and its example.

Two measures in 0..1; each is left out for a question on which it is not defined:

``evidence_recall``
    Share of the labelled evidence that the context holds: of the supporting documents, those that a
    passage of the context is from; of labelled passages (Qasper), the share of their characters that the
    context includes. With k passages it is recall@k. Left out without labels, for a question whose evidence
    is empty, and for a context with items that are no spans of the source (summaries, compressed text):
    positions cannot tell how much of the evidence these hold.
``answer_in_context``
    1 when a reference answer occurs in the context, both normalised as for F1 and compared by whole words.
    Left out for summarisation, and where every reference is "yes", "no" or "unanswerable", which no
    text needs to contain.

A failed question has no context and counts 0 in every measure defined for it, as in every score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bench.metrics.evidence import Place, evidence_places
from bench.metrics.squad import normalize_answer
from bench.schema import Example

RETRIEVAL_MEASURES: Mapping[str, str] = {
    "evidence_recall": "Recall",
    "answer_in_context": "Answer in context",
}
"""Measure -> label of its column."""

_NOT_IN_TEXT = {"", "yes", "no", "unanswerable"}


class ContextItemPlace(Protocol):
    """The fields read of a context item: a span of a document, or a text of its own."""

    @property
    def document(self) -> int | None: ...  # noqa: D102
    @property
    def start(self) -> int | None: ...  # noqa: D102
    @property
    def end(self) -> int | None: ...  # noqa: D102
    @property
    def text(self) -> str | None: ...  # noqa: D102


def retrieval_quality(context: Sequence[ContextItemPlace], example: Example) -> dict[str, float]:
    """Measure -> value of one question, for the measures that are defined for it."""
    quality: dict[str, float] = {}
    from_source = all(item.start is not None for item in context)
    places = evidence_places(example.documents, example.evidence or ())
    if places and from_source:
        quality["evidence_recall"] = sum(_share_held(place, context) for place in places) / len(places)
    answers = {normalize_answer(answer) for answer in example.answers} - _NOT_IN_TEXT
    if example.task == "qa" and answers:
        text = f" {normalize_answer(' '.join(_text(item, example) for item in context))} "
        quality["answer_in_context"] = float(any(f" {answer} " in text for answer in answers))
    return quality


def _share_held(place: Place, context: Sequence[ContextItemPlace]) -> float:
    """Share of a place that the context holds: 0 or 1 for a document, by characters for a passage."""
    spans = sorted(
        (max(item.start, place.start), min(item.end, place.end))
        for item in context
        if item.document == place.document and item.start is not None and item.end is not None
    )
    covered, reached = 0, place.start
    for start, end in spans:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    if place.whole:
        return float(covered > 0)
    return covered / (place.end - place.start)


def _text(item: ContextItemPlace, example: Example) -> str:
    if item.document is None or item.start is None:
        return item.text or ""
    return example.documents.documents[item.document].full_text[item.start : item.end]
