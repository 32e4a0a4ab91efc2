"""Oracle: the reader gets the gold evidence and nothing else; the upper bound of every table.

The labelled evidence is read in the order of the source: whole supporting documents if the data set labels
documents or their sentences (HotpotQA, MuSiQue), passages if it labels passages of a long text (Qasper). A
question labelled as having no evidence is asked without context. If a reader cannot answer from this, no
retrieval will help it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    PROMPT_CHOICES,
    Method,
    MethodConfig,
    ModelSet,
    Place,
    PromptStyle,
    QuestionError,
    evidence_places,
    read,
)
from bench.schema import ContextItem, Index, Prediction, Question


class OracleConfig(MethodConfig):
    """The prompt."""

    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


class Oracle(Method[OracleConfig]):
    """Read the labelled evidence."""

    name = "oracle"
    version = "1"
    summary = "read the gold evidence (the upper bound; needs a data set with evidence labels)"
    paper = "the data sets' evidence labels: HotpotQA, MuSiQue, Qasper"
    family = "the whole text"
    Config = OracleConfig

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer from the evidence; raises QuestionError for a question without labels."""
        if question.evidence is None:
            raise QuestionError(
                "this question has no evidence labels, so it has no oracle; use a data set with labels"
            )
        context = passages(question, evidence_places(question.documents, question.evidence))
        has_text = any(document.full_text.strip() for document in question.documents.documents)
        return await read(
            context, question, models.lm(), self.config.prompt, flags=() if has_text else ("empty_document",)
        )


def passages(question: Question, places: Sequence[Place]) -> list[ContextItem]:
    """The places as passages in the order of the source, overlapping ones merged."""
    documents = question.documents.documents
    merged: list[Place] = []
    for place in sorted(set(places)):
        last = merged[-1] if merged else None
        if last is not None and last.document == place.document and place.start <= last.end:
            merged[-1] = Place(last.document, last.start, max(last.end, place.end))
        else:
            merged.append(place)
    return [
        ContextItem(
            text=documents[place.document].full_text[place.start : place.end],
            document=place.document,
            title=documents[place.document].title,
            start=place.start,
            end=place.end,
        )
        for place in merged
        if documents[place.document].full_text[place.start : place.end].strip()
    ]
