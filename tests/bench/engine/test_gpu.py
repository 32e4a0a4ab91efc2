"""What a GPU serves by other kernels, against plain transformers on the same GPU.

The tests marked ``gpu`` run where there is one; the same tests run on a CPU everywhere.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
import torch

from bench.engine import span_attention
from bench.engine.engine import Engine
from bench.engine.heads import Heads
from bench.engine.scheduler import Request, RequestResult
from bench.engine.setup import build_engine
from tests.bench.engine.conversations import CHOICES, Script, play_all, recomputed, script
from tests.bench.models.builders import VOCAB, causal_model

KINDS = [
    pytest.param(("cpu", torch.float32), id="cpu"),
    pytest.param(("cuda", torch.float32), id="cuda", marks=pytest.mark.gpu),
    pytest.param(("cuda", torch.bfloat16), id="cuda-bfloat16", marks=pytest.mark.gpu),
]
EXACT = 1e-3
"""Of logits up to 10: sums are taken in another order."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[str, torch.dtype]:
    device, dtype = request.param
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return device, dtype


def on(kind: tuple[str, torch.dtype], attention: str = "sdpa", family: str = "llama") -> Any:
    """A random model; heads of 16."""
    device, dtype = kind
    return causal_model(family, attention, hidden_size=128).to(device=device, dtype=dtype)


def engine(kind: tuple[str, torch.dtype], family: str = "llama") -> Engine:
    return build_engine(family, on(kind, family=family), max_context=1024)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_logits_and_attention_are_as_near_as_transformers(kind: tuple[str, torch.dtype], family: str) -> None:
    """In bfloat16 the engine may be twice as far from single precision as transformers in bfloat16 is."""
    plans = [script(seed) for seed in range(4)]
    exact, own = on((kind[0], torch.float32), "eager", family), on(kind, "eager", family)
    logits: list[tuple[float, float]] = []
    attention: list[tuple[float, float]] = []
    for plan, results in zip(plans, play_all(engine(kind, family), plans), strict=True):
        for (ids, spans, new), result in zip(_asked(plan), results[:-1], strict=True):
            (true, rows), (theirs, their_rows) = (recomputed(model, ids, spans) for model in (exact, own))
            for choice, value in zip(CHOICES, result.logits, strict=True):
                logits.append((abs(value - float(true[choice])), abs(float(theirs[choice] - true[choice]))))
            if result.attention.size:
                difference = np.abs(result.attention - rows[-new:]).mean()
                attention.append((difference, np.abs(their_rows - rows)[-new:].mean()))
    for ours, stock, least in ((*zip(*logits, strict=True), EXACT), (*zip(*attention, strict=True), 1e-6)):
        assert np.mean(ours) <= 2 * np.mean(stock) + least


def _asked(plan: Script) -> list[tuple[list[int], list[tuple[int, int]], int]]:
    """Of each of a conversation's questions: all tokens, the spans that are watched, and the new tokens."""
    ids, spans = list(plan.opening), [(0, len(plan.opening))]
    questions = [(list(ids), list(spans), 0)]
    for node, suffix in plan.steps:
        questions.append(([*ids, *node, *suffix], list(spans), len(node) + len(suffix)))
        spans.append((len(ids), len(ids) + len(node)))
        ids += node
    return questions


@pytest.mark.parametrize("heads", [None, Heads(((0, 2), (2, 1), (2, 5)))], ids=["all heads", "three heads"])
def test_attention_from_the_log_sum_exp_is_that_from_all_keys(
    kind: tuple[str, torch.dtype], heads: Heads | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one token and of several, some with more queries than a piece has."""
    rng = random.Random(1)
    opening = [[rng.randrange(8, VOCAB) for _ in range(length)] for length in (30, 90, 300)]
    node = [rng.randrange(8, VOCAB) for _ in range(span_attention.PIECE + 20)]

    async def ask(ids: list[int]) -> list[RequestResult]:
        slot = await served.reserve(1024)
        spans = [(3, 9), (9, 20)]
        first = await served.run(Request(slot, ids, choices=CHOICES))
        more = Request(slot, node[: len(ids)], decode=6, limit=1024, watched=spans, watch_from=slot.length)
        more.heads = heads
        second = await served.run(more)
        served.release(slot)
        return [first, second]

    async def all_of_them() -> list[list[RequestResult]]:
        return list(await asyncio.gather(*map(ask, opening)))

    served = engine(kind)
    near = asyncio.run(all_of_them())
    monkeypatch.setattr(span_attention, "FEW", 0)
    far = asyncio.run(all_of_them())
    half = kind[1] != torch.float32
    for (_, a), (_, b) in zip(near, far, strict=True):
        assert a.answer == b.answer and a.attention.shape == b.attention.shape and a.attention.max() > 0
        np.testing.assert_allclose(a.attention, b.attention, atol=3e-3 if half else 1e-6, rtol=0)


def test_a_context_that_takes_over_a_prefix_has_its_own_logits(kind: tuple[str, torch.dtype]) -> None:
    rng = random.Random(2)
    document = [rng.randrange(8, VOCAB) for _ in range(300)]
    asked = [[*document, *(rng.randrange(8, VOCAB) for _ in range(20))] for _ in range(3)]

    async def ask(ids: list[int]) -> tuple[float, ...]:
        slot = await served.reserve(512)
        try:
            return (await served.run(Request(slot, ids, choices=CHOICES))).logits
        finally:
            served.release(slot, retain=True)

    def all_of_them(share: bool) -> tuple[list[tuple[float, ...]], int]:
        served.scheduler.share_prefixes, before = share, served.runner.tokens

        async def one_by_one() -> list[tuple[float, ...]]:
            return [await ask(ids) for ids in asked]

        return asyncio.run(one_by_one()), served.runner.tokens - before

    served = engine(kind)
    shared, computed = all_of_them(share=True)
    alone, all_tokens = all_of_them(share=False)
    assert all_tokens == 3 * 320 and computed == 320 + 2 * 20
    np.testing.assert_allclose(shared, alone, atol=EXACT if kind[1] == torch.float32 else 0.25)


def test_half_precision_on_a_gpu_is_served_in_one_call(kind: tuple[str, torch.dtype]) -> None:
    """The path that all other tests of a GPU mean to test, with a torch that has it."""
    assert engine(kind).runner.traits.varlen == (kind[0] == "cuda" and kind[1] == torch.bfloat16)
