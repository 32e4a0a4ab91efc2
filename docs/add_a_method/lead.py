"""Lead: read how a text begins and how it ends, and nothing in between."""

from __future__ import annotations

from pydantic import Field

from bench.chunking import chunk_documents
from bench.method import Method, MethodConfig
from bench.models.api import ModelSet
from bench.reading import passage, read
from bench.schema import DocumentSet, Index, Prediction, Question


class LeadConfig(MethodConfig):
    """How much is read."""

    first: int = Field(2, ge=0, description="chunks from the beginning")
    last: int = Field(1, ge=0, description="chunks from the end")


class Lead(Method[LeadConfig]):
    """The first and the last chunks."""

    name = "lead"
    version = "1"
    summary = "read the first and the last chunks"
    paper = "the lead baseline of news summarisation"
    Config = LeadConfig

    def index_options(self) -> dict[str, object]:
        """Nothing is indexed, so no option matters."""
        return {}

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """An empty index: what is done here is done once per document and reported apart."""
        return Index()

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer; what it costs is credited to this question by the model itself."""
        lm = models.lm()
        chunks = chunk_documents(question.documents, lm.tokenize, self.geometry.chunk_tokens)
        tail = max(self.config.first, len(chunks) - self.config.last)
        chosen = [*chunks[: self.config.first], *chunks[tail:]]
        flags = () if chunks else ("empty_document",)
        return await read([passage(chunk, question) for chunk in chosen], question, lm, "pecan", flags=flags)
