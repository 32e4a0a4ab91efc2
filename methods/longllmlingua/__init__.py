"""LongLLMLingua: compress the document for the question, then read it (PECAN Table 1).

A small language model ranks the chunks by how likely they make the question, keeps the best, and then
drops the tokens that the question makes no likelier, fewer of them in better chunks. Everything depends
on the question, so its whole cost is charged to the question (phase ``compress``), and nothing is indexed.

The compression itself is the authors' library, llmlingua, run unmodified on one of our models (see
:mod:`library <methods.longllmlingua.library>`). The library may miss its target by a third; the reader's
context does not exceed it, since it is cut at the target. The best chunks come first, so the cut removes
the least relevant end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    JOIN_DOCUMENTS,
    PAPER_CHUNK_TOKENS,
    PROMPT_CHOICES,
    LanguageModel,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    Role,
    Switch,
    chunk_documents,
    read,
    reader_prompt,
)
from bench.models.language_model import CausalLanguageModel
from bench.schema import ContextItem, Index, JsonValue, Prediction, Question
from methods.companion_models import AUTO, PAPER_COMPRESSOR, SMALL_COMPRESSOR, companion

OPTIONS: Mapping[str, JsonValue] = {
    "rank_method": "longllmlingua",
    "condition_in_question": "after_condition",
    "condition_compare": True,
    "reorder_context": "sort",
    "dynamic_context_compression_ratio": 0.3,
}
"""Of the library: those of its documentation for LongLLMLingua."""
ITERATIVE_SIZE, CONTEXT_BUDGET = 200, 100
"""The library's lengths, in tokens: of a compression step, and of chunks kept beyond the target. A reader
used below the papers' lengths gets smaller ones."""


class LongLlmLinguaConfig(MethodConfig):
    """The compressor, and how much the reader gets of its work."""

    compressor: str = Field(
        AUTO,
        description="the compressor: preset, hub id, folder, or 'reader'; auto: phi-2 as in PECAN, or tiny-s "
        "for a reader used below the papers' lengths",
    )
    rate: float = Field(
        0.55,
        gt=0,
        le=1,
        description="share of the document's tokens that the reader gets, 0..1; PECAN states none: "
        "its cost fits about 0.5 on Qasper, HotpotQA and MuSiQue, and much less on NarrativeQA",
    )
    chunk_tokens: int | None = Field(
        None, ge=8, description="chunk length in compressor tokens; default: the reader's geometry (300)"
    )  # our choice: the papers do not say
    join_documents: Switch = Field("on", description=JOIN_DOCUMENTS)
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


class LongLlmLingua(Method[LongLlmLinguaConfig]):
    """Compress the whole document with a small model, then read it."""

    name = "longllmlingua"
    version = "1"
    summary = "compress the document token by token for the question, then read it"
    paper = "Jiang et al. 2024 (LongLLMLingua), library llmlingua 0.2.2; baseline of PECAN, Table 1"
    family = "the whole text"
    Config = LongLlmLinguaConfig

    def roles(self) -> Mapping[str, Role]:
        """The run's reader and the compressor."""
        compressor = companion(self.config.compressor, SMALL_COMPRESSOR, PAPER_COMPRESSOR, self.geometry)
        ways_out = (
            "llmlingua needs the logits of every token of the text, which no server gives: choose a model "
            "that is loaded here with --set compressor=NAME."
        )
        named = "" if compressor == "reader" else compressor
        return {"reader": Role(), "compressor": Role(named, needs="tokens", ways_out=ways_out)}

    def packages(self) -> Mapping[str, str]:
        """The authors' library."""
        return {"llmlingua": "longdoc-bench[llmlingua]"}

    def choices(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and the share that is kept."""
        return {"join_documents": self.config.join_documents, "rate": self.config.rate}

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer from the compressed text; the compressor's forwards are metered."""
        reader, compressor = models.lm(), models.lm("compressor")
        style = self.config.prompt
        join = self.config.join_documents == "on"
        chunks = chunk_documents(question.documents, compressor.tokenize, self.chunk_tokens, join=join)
        if not chunks:
            return await read([], question, reader, style, flags=("empty_document",))
        original = sum(reader.count_tokens(document.full_text) for document in question.documents.documents)
        wanted = max(1, int(self.config.rate * original))
        budget = min(wanted, _room(question, reader, style))
        if budget < 1:
            return replace(await read([], question, reader, style), truncated=True)

        from methods.longllmlingua.library import beginning, compress

        assert isinstance(compressor, CausalLanguageModel), "a role that needs attention is on this machine"
        compressed = compress(
            compressor,
            [chunk.text for chunk in chunks],
            question.text,
            # The library counts the compressor's tokens, the target is in the reader's.
            target_tokens=budget * sum(chunk.tokens for chunk in chunks) / max(1, original),
            iterative_size=max(8, self._scaled(ITERATIVE_SIZE)),
            options={**OPTIONS, "context_budget": f"+{self._scaled(CONTEXT_BUDGET)}"},
        )
        text = beginning(compressed.text, budget, reader)
        produced, kept = reader.count_tokens(compressed.text), reader.count_tokens(text)
        context = [ContextItem(text=text, node="compressed")] if text.strip() else []
        flags = ["compressed_by_reader"] if compressor.name == reader.name else []
        flags += ["cut_at_target"] if kept < produced else []
        flags += ["question_cut"] if compressed.question_cut else []
        prediction = await read(context, question, reader, style, flags=flags)
        trace = {
            "compressor": compressor.name,
            "document_tokens": original,
            "target_tokens": budget,
            "compressed_tokens": produced,
            "given_tokens": kept,
            "compressed_rate": produced / max(1, original),
            "achieved_rate": kept / max(1, original),
            "chunks": len(chunks),
            "ranking": list(compressed.ranking),
            "compressor_forwards": compressed.usage.calls,
            "compressor_tokens": compressed.usage.new_tokens,
        }
        return replace(prediction, truncated=prediction.truncated or budget < wanted, trace=trace)

    @property
    def chunk_tokens(self) -> int:
        """Chunk length in compressor tokens."""
        return self.config.chunk_tokens or self.geometry.chunk_tokens

    def _scaled(self, tokens: int) -> int:
        """One of the library's lengths, in proportion to the reader's geometry."""
        return max(1, round(tokens * min(1.0, self.geometry.chunk_tokens / PAPER_CHUNK_TOKENS)))


def _room(question: Question, reader: LanguageModel, style: PromptStyle) -> int:
    """Tokens left for the compressed text in the reader's prompt; negative for a long question."""
    frame = reader.chat_overhead + reader.count_tokens(reader_prompt(style, ".", question))
    # At its boundaries the text may tokenise into a few more tokens than alone.
    return reader.geometry.input_limit - frame - question.max_new_tokens - 8
