"""Quality of a context, independent of the reader's answer: computed from a record's context and its example.

Four measures in 0..1; each is left out for a question on which it is not defined:

``evidence_recall``
    Share of the labelled evidence that the context holds: of the supporting documents, those that a
    passage of the context is from; of labelled passages (Qasper), the share of their characters that the
    context includes. With k passages it is recall@k. Left out without labels, for a question whose evidence
    is empty, and for a context with items that are no spans of the source (summaries, compressed text):
    positions cannot tell how much of the evidence these hold.
``mrr``, ``ndcg``
    How early the labelled evidence comes among the passages, ordered by their score: 1 over the rank of the
    first passage with some of it (0: none has), and nDCG@k with binary gains for the k passages read, ideally
    one place of the evidence at each rank. A place counts where it first occurs; several in one passage count
    as if at successive ranks. Equal to the textbook's where each passage is a document of its own. Left out
    where recall is, and for contexts without scores, which are no ranking (the whole document, a selection).
``answer_in_context``
    1 when a reference answer occurs in the context, both normalised as for F1 and compared by whole words.
    Left out for summarisation, and where every reference is "yes", "no", "unanswerable" or the letter of a
    choice, which no text needs to contain.

A failed question has no context and counts 0 in every measure defined for it, as in every score.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Protocol

from bench.metrics.evidence import Place, evidence_places
from bench.metrics.squad import normalize_answer
from bench.schema import Example

RETRIEVAL_MEASURES: Mapping[str, str] = {
    "evidence_recall": "Recall",
    "mrr": "MRR",
    "ndcg": "nDCG",
    "answer_in_context": "Answer in context",
}
"""Measure -> label of its column."""


def measure_in_words(measure: str) -> str:
    """A measure within a sentence: ``evidence recall``, ``MRR``."""
    return measure.replace("_", " ") if "_" in measure else RETRIEVAL_MEASURES.get(measure, measure)


_NOT_IN_TEXT = {"", "yes", "no", "unanswerable", *string.ascii_lowercase}


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
    @property
    def score(self) -> float | None: ...  # noqa: D102
    @property
    def chunk(self) -> int | None: ...  # noqa: D102


def retrieval_quality(context: Sequence[ContextItemPlace], example: Example) -> dict[str, float]:
    """Measure -> value of one question, for the measures that are defined for it."""
    quality: dict[str, float] = {}
    from_source = all(item.start is not None for item in context)
    places = evidence_places(example.documents, example.evidence or ())
    if places and from_source:
        quality["evidence_recall"] = sum(_share_held(place, context) for place in places) / len(places)
        if all(item.score is not None for item in context):
            quality |= _early(places, _passages(context))
    answers = {normalize_answer(answer) for answer in example.answers} - _NOT_IN_TEXT
    if example.task == "qa" and answers:
        text = f" {normalize_answer(' '.join(_text(item, example) for item in context))} "
        quality["answer_in_context"] = float(any(f" {answer} " in text for answer in answers))
    return quality


def _early(places: Sequence[Place], ranked: Sequence[Sequence[ContextItemPlace]]) -> dict[str, float]:
    """MRR and nDCG of the passages, best first, each of them its pieces."""
    ranks = sorted(
        next((rank for rank, passage in enumerate(ranked, 1) if _share_held(place, passage)), math.inf)
        for place in places
    )
    successive: list[float] = []
    for rank in ranks:
        successive.append(max(rank, successive[-1] + 1 if successive else rank))
    possible = max(1, min(len(places), len(ranked)), sum(rank < math.inf for rank in ranks))
    ideal = sum(1 / math.log2(1 + rank) for rank in range(1, possible + 1))
    return {"mrr": 1 / ranks[0], "ndcg": sum(1 / math.log2(1 + rank) for rank in successive) / ideal}


def _passages(context: Sequence[ContextItemPlace]) -> list[list[ContextItemPlace]]:
    """The context's passages by score, best first; a passage that goes on in the next document is one."""
    passages: list[list[ContextItemPlace]] = []
    for item in context:
        if passages and _goes_on(passages[-1][-1], item):
            passages[-1].append(item)
        else:
            passages.append([item])
    return sorted(passages, key=lambda passage: -(passage[0].score or 0))


def _goes_on(item: ContextItemPlace, following: ContextItemPlace) -> bool:
    """Whether the following item is of the same chunk; without its number, by place and score."""
    if item.chunk is not None or item.document is None:
        return item.chunk is not None and item.chunk == following.chunk
    return (item.document + 1, 0, item.score) == (following.document, following.start, following.score)


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
