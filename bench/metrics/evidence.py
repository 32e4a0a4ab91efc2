"""Evidence labels as places in the source: retrieval is measured against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.schema import DocumentSet, Evidence


@dataclass(frozen=True, order=True)
class Place:
    """A character range of ``Document.full_text``, half-open; ``document`` is its position in the set."""

    document: int
    start: int
    end: int
    whole: bool = False
    """True for a whole document."""


def evidence_places(documents: DocumentSet, evidence: Sequence[Evidence]) -> list[Place]:
    """The distinct places that the labels point at, in the order of the source; none without text.

    A label with a text but no sentence number is a passage (Qasper's paragraphs): the first
    occurrence of that text. Any other label stands for its whole document, as the multi-hop sets define
    supporting documents by the sentences or paragraphs in them (HotpotQA, MuSiQue).
    Raises ValueError for a passage that its document does not hold; the loaders refuse such data.
    """
    places = {_place(documents, label) for label in evidence}
    return sorted(place for place in places if place.start < place.end)


def _place(documents: DocumentSet, label: Evidence) -> Place:
    text = documents.documents[label.document].full_text
    if label.text is None or label.sentence is not None:
        return Place(label.document, 0, len(text), whole=True)
    start = text.find(label.text)
    if start < 0:
        raise ValueError(f"document {label.document} does not hold the evidence {label.text[:60]!r}")
    return Place(label.document, start, start + len(label.text))
