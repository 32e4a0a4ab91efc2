"""Flat rankers: what indexing 1,000 chunks takes, and ranking them for a question.

The documents of the shipped question answering samples are one source, cut into 1,000 chunks of 75 tokens of
the shipped model (the papers' 300 at quarter scale). Indexing is query-independent: cutting the text, and for
a dense ranker embedding every chunk. Ranking is done for each question: BM25 and TF-IDF count words anew each
time, a dense ranker embeds the question and multiplies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bench.data.cards import load_card, sample_names
from bench.method.chunking import chunk_documents
from bench.method.ranking import RankThenRead
from bench.models.model_set import LoadedModels
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Chunk, DocumentSet, Example, Index
from performance.drawn import TINY
from performance.measuring import Candidate, by_turns
from performance.report import Measurement, duration

RANKERS = ("bm25", "tfidf", "sbert")
"""Those whose models are always at hand."""


def measure(quick: bool) -> list[Measurement]:
    """Every ranker's index and ranking."""
    wanted, questions, rounds = (50, 2, 1) if quick else (1000, 8, 5)
    examples = _examples(wanted)
    measurements = []
    for name in RANKERS:
        measurements += _ranker(name, examples, wanted, questions, rounds)
    return measurements


def _examples(chunks: int) -> list[Example]:
    """Questions of all sets, in turn, whose documents together have more than enough text."""
    by_set = [plan_cell(CellRequest("bm25", name, TINY)).data.examples for name in sample_sets()]
    pool = [example for examples in by_set for example in examples]
    return pool[: max(8, chunks // 4)] if chunks < 1000 else pool


def sample_sets() -> list[str]:
    """The question answering sets of which a sample ships with the project."""
    return [name for name in sorted(sample_names()) if load_card(name).task == "qa"]


def _ranker(
    name: str, examples: Sequence[Example], wanted: int, questions: int, rounds: int
) -> list[Measurement]:
    cell = plan_cell(CellRequest(name, examples[0].dataset, TINY, dtype="float32"))
    method = cell.method
    assert isinstance(method, RankThenRead)
    models = LoadedModels(cell.roles)
    sources = {example.documents.id: example.documents for example in examples}.values()
    whole = DocumentSet(tuple(document for one in sources for document in one.documents))
    chunks = chunk_documents(whole, models.lm().tokenize, method.chunk_tokens)
    if len(chunks) < wanted:
        raise ValueError(f"the sample sets have {len(chunks)} chunks, {wanted} were asked for")
    source = _cut(whole, chunks, wanted)
    chunks = chunk_documents(source, models.lm().tokenize, method.chunk_tokens)
    units = len(chunks) / 1000
    asked = [
        cell.question(example) for example in examples[:: max(1, len(examples) // questions)][:questions]
    ]

    def build() -> Index:
        return asyncio.run(method.index(source, models))

    index = build()

    def rank() -> list[Any]:
        return [asyncio.run(method.score(chunks, index, question, models)) for question in asked]

    timed = by_turns({"index": Candidate(build, units), "rank": Candidate(rank, units * len(asked))}, rounds)
    details: dict[str, Any] = {"chunks": len(chunks), "tokens": sum(chunk.tokens for chunk in chunks)}
    return [
        duration(f"{name}: index of 1,000 chunks", timed["index"], **details),
        duration(f"{name}: ranking of 1,000 chunks for a question", timed["rank"], "ms", 1000, **details),
    ]


def _cut(source: DocumentSet, chunks: Sequence[Chunk], wanted: int) -> DocumentSet:
    """The documents up to the one that holds the last chunk wanted."""
    return DocumentSet(source.documents[: chunks[wanted - 1].document + 1])
