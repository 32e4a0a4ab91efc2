"""Cached context: full context's answers, with the document paid for once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.conformance import STORY
from bench.flops.meter import Meter, Usage, metered
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from methods.cached_context import CachedContext, CachedContextConfig
from methods.full_context import FullContext, FullContextConfig

TEMPLATE = "Read this.\n\n{context}\n\nNow answer: {input}"


def both(repeats: int = 1, **options: Any) -> tuple[Prediction, Prediction, Usage, Usage, Usage]:
    """The answers of full and of cached context, and the prefills of full, index and question."""
    spec = resolve("tiny")
    models = LoadedModels({"reader": spec})
    documents = DocumentSet((Document("", "\n".join([STORY] * repeats)),))
    question = Question("Who kept a goat?", documents, 8, longbench_prompt=TEMPLATE)
    cached = CachedContext(CachedContextConfig(**options), spec.geometry)
    full = FullContext(FullContextConfig(**options), spec.geometry)

    async def ask() -> Any:
        with metered(Meter()) as whole:
            first = await full.answer(Index(), question, models)
        with metered(Meter()) as index_meter:
            index = await cached.index(documents, models)
        with metered(Meter()) as meter:
            second = await cached.answer(index, question, models)
        assert meter.usage["tiny", "decode"] == whole.usage["tiny", "decode"]
        return first, second, *(m.usage["tiny", "prefill"] for m in (whole, index_meter, meter))

    result: tuple[Prediction, Prediction, Usage, Usage, Usage] = asyncio.run(ask())
    return result


@pytest.mark.parametrize("prompt", ["pecan", "longbench"])
def test_the_same_answer_and_index_and_question_are_full_context_s_tokens(prompt: str) -> None:
    full, cached, whole, index, question = both(prompt=prompt)
    assert (cached.text, cached.context) == (full.text, full.context)
    p, n = cached.trace["cached_tokens"], whole.new_tokens
    assert 0 <= index.new_tokens - p <= 1  # the last token may join what follows
    assert question.new_tokens == n - p < 60 and question.attended == (n - p) * n
    assert index.attended == index.new_tokens**2 and question.flops < whole.flops / 2


def test_of_a_text_whose_middle_is_cut_only_the_beginning_is_cached() -> None:
    full, cached, whole, index, question = both(repeats=6, max_tokens=256)
    assert full.truncated and cached.text == full.text
    assert index.new_tokens < 150 and question.new_tokens > 100
    assert question.new_tokens + cached.trace["cached_tokens"] == whole.new_tokens
