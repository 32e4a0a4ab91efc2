"""Cached context: full context's answers, with the document paid for once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.conformance import STORY
from bench.errors import ConfigError
from bench.flops.meter import Meter, Usage, metered
from bench.method.options import build_config
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
    of_full = {name: value for name, value in options.items() if name not in ("ratio", "evict")}
    full = FullContext(FullContextConfig(**of_full), spec.geometry)

    async def ask() -> Any:
        with metered(Meter()) as whole:
            first = await full.answer(Index(), question, models)
        with metered(Meter()) as index_meter:
            index = await cached.index(documents, models)
        with metered(Meter()) as meter:
            second = await cached.answer(index, question, models)
        if "ratio" not in options:
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
    assert (question.cached, index.cached) == (p, 0)


def test_of_a_text_whose_middle_is_cut_only_the_beginning_is_cached() -> None:
    full, cached, whole, index, question = both(repeats=6, max_tokens=256)
    assert full.truncated and cached.text == full.text
    assert index.new_tokens < 150 and question.new_tokens > 100
    assert question.new_tokens + cached.trace["cached_tokens"] == whole.new_tokens


@pytest.mark.parametrize("evict", ["kvzip", "expected"])
def test_a_ratio_that_drops_no_key_gives_full_context_s_answer_at_cached_context_s_cost(evict: str) -> None:
    full, without, whole, index, question = both(ratio=1e-9, evict=evict)
    _, cached, _, plain_index, plain_question = both()
    assert (without.text, without.context) == (full.text, full.context) == (cached.text, cached.context)
    p, of_one_key = index.new_tokens, question.new_tokens  # expected drops one a head: int(p * (1 - ratio))
    dropped = {"kvzip": 0, "expected": 1}[evict]
    assert question.new_tokens == plain_question.new_tokens
    assert plain_question.attended - question.attended == dropped * of_one_key
    assert (p == plain_index.new_tokens) == (evict == "expected")


def test_the_index_of_kvzip_pays_for_the_repetition() -> None:
    _, _, _, once, _ = both()
    _, _, _, index, _ = both(ratio=0.5)
    lm: Any = LoadedModels({"reader": resolve("tiny")}).lm()
    opening, p = len(lm.chat.opening), once.new_tokens
    request = lm.count_tokens("\n\nRepeat the previous context exactly.") + len(lm.chat.closing)
    repeated = request + p - opening
    assert index.new_tokens == p + repeated and index.calls == 2
    assert index.attended == p * p + repeated * (p + repeated)
    assert 1.9 < index.flops / once.flops < 3.5, "two to three times the prefill, as kvpress warns"


@pytest.mark.parametrize("evict", ["kvzip", "expected"])
def test_a_question_attends_to_the_keys_that_are_left_and_to_itself(evict: str) -> None:
    _, _, whole, _, question = both(ratio=0.75, evict=evict)
    q, n = question.new_tokens, whole.new_tokens
    left = (question.attended - q * q) / q
    assert abs(left - 0.25 * (n - q)) <= 2 and question.flops < whole.flops / 2


def test_of_a_text_that_is_cut_the_cached_beginning_loses_keys() -> None:
    full, without, whole, index, question = both(repeats=6, max_tokens=256, ratio=0.5, evict="expected")
    assert full.truncated and without.truncated and without.context == full.context
    assert index.new_tokens < 150 and 100 < question.new_tokens < whole.new_tokens
    assert question.attended < question.new_tokens * (whole.new_tokens - 0.4 * index.new_tokens)


def test_the_index_serves_every_ratio_and_the_options_of_before_keep_theirs() -> None:
    geometry = resolve("tiny").geometry
    half, most = (CachedContext(CachedContextConfig(ratio=ratio), geometry) for ratio in (0.5, 0.9))
    assert half.index_options() == most.index_options()
    before = {"max_tokens": None, "prompt": "pecan"}
    assert CachedContextConfig().model_dump(mode="json") == before
    assert CachedContext(CachedContextConfig(), geometry).index_options() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.5, "prompt": "longbench"}, "lines of its own before the document"),
        ({"evict": "expected"}, "drops nothing at ratio=0"),
        ({"ratio": 1}, "less than 1"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(CachedContextConfig, options, "cached_context")
