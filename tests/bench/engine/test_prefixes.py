"""Contexts that begin alike: forwarded once, answered as if each had been alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from bench.engine.engine import Engine
from bench.engine.kv_cache import PAGE, Reservation
from bench.engine.prefixes import BLOCK, PrefixIndex, Slot, block_hashes
from bench.engine.scheduler import Outcome, Request, RequestResult, Step
from bench.engine.setup import build_engine
from bench.errors import InvalidLogitsError
from tests.bench.models.builders import CAUSAL_FAMILIES, VOCAB, causal_model

CHOICES = (5, 6)
STORY = [random.Random(1).randrange(8, VOCAB) for _ in range(200)]
TAILS = [[random.Random(seed).randrange(8, VOCAB) for _ in range(20 + seed)] for seed in range(6)]


def engine_of(family: str = "llama", *, share: bool = True, **overrides: Any) -> Engine:
    engine = build_engine(family, causal_model(family, **overrides), max_context=512)
    engine.scheduler.share_prefixes = share
    return engine


async def ask(engine: Engine, tokens: list[int], *, retain: bool = True, decode: int = 6) -> RequestResult:
    slot = await engine.reserve(400)
    try:
        return await engine.run(Request(slot, tokens, decode=decode, limit=400))
    finally:
        engine.release(slot, retain=retain)


def one_after_another(engine: Engine, prompts: list[list[int]], **options: Any) -> list[RequestResult]:
    async def each() -> list[RequestResult]:
        return [await ask(engine, prompt, **options) for prompt in prompts]

    return asyncio.run(each())


def together(engine: Engine, prompts: list[list[int]]) -> list[RequestResult]:
    async def all_at_once() -> list[RequestResult]:
        return list(await asyncio.gather(*(ask(engine, prompt) for prompt in prompts)))

    return asyncio.run(all_at_once())


@pytest.mark.parametrize("family", CAUSAL_FAMILIES)
def test_answers_are_those_of_contexts_alone_and_the_beginning_is_forwarded_once(family: str) -> None:
    prompts = [STORY + tail for tail in TAILS]
    alone, sharing = engine_of(family, share=False), engine_of(family)
    expected = one_after_another(alone, prompts)
    results = one_after_another(sharing, prompts)
    assert [one.answer for one in results] == [one.answer for one in expected]
    assert [one.reused for one in results] == [0] + [len(STORY)] * 5
    assert sharing.runner.tokens == alone.runner.tokens - 5 * len(STORY)


def test_each_passage_that_contexts_in_flight_add_is_forwarded_once() -> None:
    passages = [random.Random(seed).choices(range(8, VOCAB), k=75) for seed in range(4)]
    texts = [[token for one in passages[:k] for token in one] for k in range(1, 5)]
    results = together(engine_of(), [text + TAILS[0] for text in texts])
    assert [one.reused for one in results] == [0, 75, 150, 225]


def test_tokens_that_record_attention_are_forwarded() -> None:
    """Spans watched inside the part that could be shared: what looks at them is not taken over."""

    async def watching(engine: Engine) -> RequestResult:
        await ask(engine, STORY + TAILS[0])
        slot = await engine.reserve(400)
        request = Request(slot, STORY, choices=CHOICES, watched=[(0, 40)], watch_from=100)
        return await engine.run(request)

    result, expected = asyncio.run(watching(engine_of())), asyncio.run(watching(engine_of(share=False)))
    assert result.reused == 100 and result.attention.shape == expected.attention.shape
    assert result.attention == pytest.approx(expected.attention, abs=1e-6)
    assert result.logits == pytest.approx(expected.logits, abs=1e-4)


def test_what_was_rewound_is_not_taken_over() -> None:
    async def rewound() -> int:
        engine = engine_of()
        slot = await engine.reserve(400)
        await engine.run(Request(slot, STORY))
        engine.rewind(slot, 70)
        await engine.run(Request(slot, TAILS[0]))
        return (await ask(engine, STORY)).reused

    assert asyncio.run(rewound()) == 70, "also the tokens behind its last whole block"


def test_a_context_that_failed_or_was_cancelled_reaches_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    forward = engine.runner.forward

    def failing(steps: Sequence[Step]) -> list[Outcome]:
        outcomes = forward(steps)
        for step, outcome in zip(steps, outcomes, strict=True):
            outcome.valid = step.request.decode != 3
        return outcomes

    monkeypatch.setattr(engine.runner, "forward", failing)

    async def failed_cancelled_then_asked() -> tuple[int, int]:
        with pytest.raises(InvalidLogitsError):
            await ask(engine, STORY + TAILS[0], decode=3, retain=False)
        after_failure = (await ask(engine, STORY + TAILS[1], retain=False)).reused
        task = asyncio.create_task(ask(engine, STORY + TAILS[2], decode=100, retain=False))
        while engine.runner.passes < 12:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return after_failure, (await ask(engine, STORY + TAILS[3])).reused

    assert asyncio.run(failed_cancelled_then_asked()) == (0, 0)


def test_a_request_whose_leader_is_cancelled_goes_on_by_itself() -> None:
    async def leaderless() -> RequestResult:
        engine = engine_of()
        engine.scheduler.limits = type(engine.scheduler.limits)(tokens=40, rows=4)
        leader = asyncio.create_task(ask(engine, STORY + TAILS[0], retain=False))
        follower = asyncio.create_task(ask(engine, STORY + TAILS[1]))
        while engine.runner.passes < 2:
            await asyncio.sleep(0)
        leader.cancel()
        return await asyncio.wait_for(follower, 30)

    expected = one_after_another(engine_of(share=False), [STORY + TAILS[1]])[0]
    result = asyncio.run(leaderless())
    assert (result.answer, result.reused) == (expected.answer, 0)


def test_closed_contexts_make_room_the_least_recently_used_first() -> None:
    engine = engine_of()
    engine.scheduler.prefixes.most = 10 * PAGE
    others = [[random.Random(100 + i).randrange(8, VOCAB) for _ in range(200)] for i in range(3)]
    one_after_another(engine, [*others, others[0]])
    assert engine.scheduler.prefixes.retained_tokens == 3 * PAGE
    assert engine.runner.kv_cache.free_tokens == engine.runner.kv_cache.tokens - 3 * PAGE

    async def one_page_more_than_is_free() -> list[int]:
        held = await engine.reserve(engine.runner.kv_cache.free_tokens)
        page = await engine.reserve(PAGE)
        for slot in (page, held):
            engine.release(slot)
        return [(await ask(engine, one)).reused for one in (others[0], others[2], others[1])]

    assert asyncio.run(one_page_more_than_is_free()) == [199, 199, 0]


def test_two_texts_of_one_hash_are_told_apart() -> None:
    index = PrefixIndex(0)
    slot = Slot(Reservation(0, PAGE), list(range(BLOCK)))
    index.add(slot)
    other = [7] * BLOCK
    assert index.longest(other, slot.blocks, BLOCK) == (None, 0)
    assert index.longest([*range(BLOCK), 9], block_hashes([*range(BLOCK), 9]), BLOCK) == (slot, BLOCK)


def test_a_fault_in_choosing_who_is_next_reaches_everybody_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was raised inside the event loop, and requests waited for ever."""
    engine = engine_of()

    def broken() -> Any:
        raise RuntimeError("no order")

    monkeypatch.setattr(engine.scheduler, "next", broken)

    async def two() -> list[Any]:
        asked = asyncio.gather(*(ask(engine, tail) for tail in TAILS[:2]), return_exceptions=True)
        return list(await asyncio.wait_for(asked, 30))

    assert [str(error) for error in asyncio.run(two())] == ["no order"] * 2
