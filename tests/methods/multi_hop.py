"""A question of two hops, for the methods that retrieve in rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.flops.meter import Meter, metered
from bench.schema import Chunk, Document, DocumentSet, Question
from methods.retrievers import rerank
from methods.retrievers.bm25 import Bm25
from tests.stand_ins import GEOMETRY, WordModel, WordModels

TEXTS = ("Mara gave the kite to Otto", "Otto lives in Harbury", "a goat called Pepper", "rain fell all day")
PAGES = DocumentSet(tuple(Document("", text) for text in TEXTS))
QUESTION = Question("Where does whom Mara gave something live", PAGES, 8)


class ScriptedReader(WordModel):
    """Replies one after the other to prompts that hold ``cue``, which it keeps; "Harbury" to others."""

    def __init__(self, replies: Sequence[str], cue: str = "") -> None:
        self.replies, self.cue, self.prompts = replies, cue, list[str]()

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Any:
        generation = await super().generate(prompt, max_new_tokens, sampling)
        text = "Harbury"
        if self.cue in prompt:
            text = self.replies[len(self.prompts)]
            self.prompts.append(prompt)
        return type(generation)(text, (1,), "stop", generation.prompt_tokens)


def replayed(
    kind: Any, config: Any, reader: ScriptedReader, rounds: Sequence[int], **options: Any
) -> tuple[list[Any], Meter]:
    """The question asked once for several numbers of rounds, one passage at a time; and what that cost."""
    models: Any = WordModels(reader)
    configs = [config(k=1, chunk_tokens=8, join_documents="off", rounds=n, **options) for n in rounds]
    method = kind(configs[0], GEOMETRY)

    async def ask() -> Any:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), meter


def asked_by_the_reranker(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fills with the question of each passage that the reranker asks about from here on."""
    asked: list[str] = []

    async def p_yes(chunk: Chunk, question: Question, lm: Any) -> float:
        asked.append(question.text)
        return 0.5

    monkeypatch.setattr(rerank, "p_yes", p_yes)
    return asked


def flag_rankings(monkeypatch: pytest.MonkeyPatch) -> None:
    """BM25 flags each ranking with its query."""

    async def flagged(ranker: Bm25, index: Any, question: Question, models: Any) -> Any:
        return replace(await plain(ranker, index, question, models), flags=(question.query,))

    plain = Bm25.rank
    monkeypatch.setattr(Bm25, "rank", flagged)
