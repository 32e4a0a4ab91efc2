"""Lead: read the beginning and the end of a text, and nothing in between."""

from __future__ import annotations

from pydantic import Field

from bench.method import Method, MethodConfig, ModelSet, chunk_documents, passages, read
from bench.schema import Index, Prediction, Question


class LeadConfig(MethodConfig):
    """How much to read."""

    first: int = Field(2, ge=0, description="chunks from the beginning")
    last: int = Field(1, ge=0, description="chunks from the end")


class Lead(Method[LeadConfig]):
    """The first and the last chunks."""

    name = "lead"
    version = "1"
    summary = "read the first and the last chunks"
    paper = "the lead baseline of news summarisation"
    Config = LeadConfig

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer; the model credits its cost to this question."""
        lm = models.lm()
        chunks = chunk_documents(question.documents, lm.tokenize, self.geometry.chunk_tokens)
        tail = max(self.config.first, len(chunks) - self.config.last)
        chosen = [*chunks[: self.config.first], *chunks[tail:]]
        flags = () if chunks else ("empty_document",)
        context = [part for chunk in chosen for part in passages(chunk, question)]
        return await read(context, question, lm, flags=flags)
