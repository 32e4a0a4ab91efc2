"""The engine against plain transformers, and its promises about neighbours, memory and faults."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.engine import blocked_weights, prefill, span_attention
from bench.engine.engine import Engine
from bench.engine.heads import Heads
from bench.engine.kv_cache import PAGE, KVCache
from bench.engine.prefill import Fused
from bench.engine.prefixes import Slot
from bench.engine.scheduler import Limits, Outcome, Request, RequestResult, Step
from bench.engine.setup import RefusedModelError, TooLittleMemoryError, build_engine
from bench.engine.traits import Traits
from bench.errors import InvalidLogitsError
from performance.families import SIZES, SMALL
from tests.bench.engine.conversations import CHOICES, Script, play, play_all, recomputed, script
from tests.bench.engine.paged import serve_like_a_gpu
from tests.bench.models.builders import CAUSAL_FAMILIES, VOCAB, causal_model

ROUNDING = 1e-4
"""Of logits up to 10 whose fp32 sums are taken in another order: over the families they moved by 2.2e-5
without vector instructions, and by 9e-6 with AVX2. Attention moved by 6e-8."""


run = asyncio.run
PATHS = ["one by one", "tiles", "together", "variable length", "variable length, all keys"]
"""Decoding rows served one by one, as on a CPU, others also as in bfloat16 on AMX tiles; in one call, as on a
GPU; all rows in one call, as on a GPU in half precision, attention to spans from the log-sum-exp or, as for
spans far apart, from all keys."""


def test_large_layers_in_full_precision_are_kept_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_weights, "SMALL", 0)
    model, ids = causal_model("llama"), torch.arange(9)[None]
    expected = model(ids).logits
    blocked_weights.block_weights(model)
    assert model.model.layers[0].mlp.up_proj.weight.stride(0) == 1
    torch.testing.assert_close(model(ids).logits, expected)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("family", CAUSAL_FAMILIES)
def test_logits_attention_and_text_are_those_of_a_full_eager_recomputation(
    family: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agrees_with_recomputing(family, path, (None,), monkeypatch)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma"])
def test_attention_of_chosen_heads_is_that_of_a_full_eager_recomputation(
    family: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key heads of four, two and one query heads; rows of one pass that record different heads, or all."""
    some, layer = Heads(((0, 1), (1, 0), (1, 5), (1, 6))), Heads.of_layers([1], 8)
    agrees_with_recomputing(family, path, (some, None, layer, Heads(((0, 7),))), monkeypatch)


@cache
def reference(
    family: str, ids: tuple[int, ...], spans: tuple[tuple[int, int], ...], heads: Heads | None = None
) -> tuple[Any, Any]:
    """:func:`recomputed`, once for all paths, which are asked the same."""
    return recomputed(_plain_model(family, "eager"), list(ids), spans, heads)


_plain_model = cache(causal_model)


def agrees_with_recomputing(
    family: str, path: str, heads: Sequence[Heads | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "MASKED_QUERIES", 8)
    engine = build_engine(family, causal_model(family, "eager"), max_context=1024)
    engine.runner.traits = Traits(together=path not in ("one by one", "tiles"), tiles=path == "tiles")
    if path.startswith("variable"):
        serve_like_a_gpu(engine, monkeypatch)
    if path.endswith("all keys"):
        monkeypatch.setattr(span_attention, "FEW", 0)
    plans = [script(seed) for seed in range(8)]
    played = play_all(engine, plans, heads)
    for plan, results, counted in zip(plans, played, itertools.cycle(heads), strict=False):
        ids, spans = tuple(plan.opening), ((0, len(plan.opening)),)
        logits, _ = reference(family, ids, spans)
        assert results[0].logits == pytest.approx([float(logits[c]) for c in CHOICES], abs=ROUNDING)
        for (node, suffix), result in zip(plan.steps, results[1:], strict=False):
            logits, rows = reference(family, (*ids, *node, *suffix), spans, counted)
            assert result.logits == pytest.approx([float(logits[c]) for c in CHOICES], abs=ROUNDING)
            assert result.log_mass == pytest.approx(float(torch.logsumexp(logits.double(), 0)), abs=ROUNDING)
            assert result.attention.shape == (len(node) + len(suffix), len(spans))
            np.testing.assert_allclose(result.attention, rows[len(ids) :], atol=1e-6, rtol=0)
            spans += ((len(ids), len(ids) + len(node)),)
            ids += tuple(node)
        ids += tuple(plan.last)
        answer = results[-1].answer
        for token in answer:
            logits, _ = reference(family, ids, spans)
            assert token == int(logits.argmax())
            ids += (token,)
        _, rows = reference(family, ids, spans, counted)
        forwarded = len(answer) - 1
        assert results[-1].attention.shape == (forwarded, len(spans))
        first = len(ids) - len(answer)
        np.testing.assert_allclose(results[-1].attention, rows[first : first + forwarded], atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_the_text_does_not_depend_on_what_shares_the_pass(family: str) -> None:
    model = causal_model(family)
    plans = [script(100 + seed) for seed in range(16)]
    engine = build_engine(family, model, max_context=1024)
    alone = [play_all(engine, [plan])[0] for plan in plans]
    together = play_all(engine, plans)
    shuffled = list(zip(plans, alone, strict=True))
    random.Random(1).shuffle(shuffled)
    engine.scheduler.limits = Limits(tokens=33, rows=5)  # another packing altogether
    again = play_all(engine, [plan for plan, _ in shuffled])
    for one, other in zip([*alone, *(a for _, a in shuffled)], [*together, *again], strict=True):
        assert one[-1].answer == other[-1].answer
        for a, b in zip(one, other, strict=True):
            assert a.logits == pytest.approx(b.logits, abs=ROUNDING)


@pytest.mark.parametrize("tiles", [True, False], ids=["fused", "by blocks"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_half_precision_on_a_cpu_stays_near_full_and_ignores_its_neighbours(family: str, tiles: bool) -> None:
    """Over 12 random conversations of four families bf16 moved attention to spans by at most 8.6e-3 (values
    to 0.1; logits by 0.74 of 6), and no logit by what else was in the pass."""
    plans = [script(seed) for seed in range(4)]
    engine = build_engine(family, causal_model(family).bfloat16(), max_context=1024)
    engine.runner.traits = Traits(tiles=tiles, rounds=True)
    full = play_all(build_engine(family, causal_model(family), max_context=1024), plans)
    for pool in (*engine.runner.kv_cache.values, *engine.runner.kv_cache.keys_transposed):
        pool.fill_(1e9)  # what earlier contexts left
    half = play_all(engine, plans)
    alone = [play_all(engine, [plan])[0] for plan in plans]
    for one, other, single in zip(full, half, alone, strict=True):
        assert other[-1].answer == single[-1].answer
        for a, b, c in zip(one[:-1], other[:-1], single[:-1], strict=True):
            np.testing.assert_allclose(a.attention, b.attention, atol=1e-2, rtol=0)
            assert b.logits == pytest.approx(c.logits, abs=0.1)


def test_a_step_is_one_forward_and_every_token_goes_through_once() -> None:
    engine = build_engine("llama", causal_model("llama"), max_context=1024)
    plan = script(5)
    play_all(engine, [plan])
    kept = len(plan.opening) + sum(len(node) for node, _ in plan.steps) + len(plan.last)
    probed = sum(len(suffix) for _, suffix in plan.steps)
    assert engine.runner.tokens == kept + probed + plan.decode - 1
    assert engine.runner.passes == 1 + len(plan.steps) + plan.decode


def test_no_pass_has_more_new_tokens_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding rows go first, and a piece of a prompt takes only what they leave."""
    engine = build_engine("llama", causal_model("llama"), max_context=1024)
    engine.scheduler.limits = Limits(tokens=16, rows=8)
    forward, passes = engine.runner.forward, list[int]()

    def counted(steps: Sequence[Step]) -> list[Outcome]:
        passes.append(sum(len(step.tokens) for step in steps))
        return forward(steps)

    monkeypatch.setattr(engine.runner, "forward", counted)
    play_all(engine, [script(seed) for seed in range(6)])
    assert max(passes) == 16


def small_engine(pages: int) -> Engine:
    model = causal_model("llama")
    engine = build_engine("llama", model, max_context=512)
    config = model.config
    engine.scheduler.pages = engine.runner.kv_cache = KVCache(
        layers=config.num_hidden_layers,
        tokens=pages * PAGE,
        kv_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        dtype=torch.float32,
        device="cpu",
    )
    return engine


def test_a_large_context_that_waits_is_not_overtaken_by_a_small_one() -> None:
    engine = small_engine(3)
    served: list[str] = []

    async def ask(name: str, pages: int) -> None:
        slot = await engine.reserve(pages * PAGE)
        served.append(name)
        engine.release(slot)

    async def all_of_them() -> None:
        held = await engine.reserve(PAGE)
        waiting = [asyncio.create_task(ask(name, pages)) for name, pages in (("large", 3), ("small", 1))]
        await asyncio.sleep(0)
        assert served == [], "there is room for the small one, but the large one asked first"
        engine.release(held)
        await asyncio.gather(*waiting)

    run(all_of_them())
    assert served == ["large", "small"]


def test_a_cancelled_context_at_the_head_of_the_queue_holds_up_nobody() -> None:
    engine = small_engine(2)

    async def cancel_the_first() -> Slot:
        held = await engine.reserve(2 * PAGE)
        first, second = (asyncio.create_task(engine.reserve(PAGE)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        engine.release(held)
        slot = await asyncio.wait_for(second, 10)
        assert first.cancelled()
        return slot

    slot = run(cancel_the_first())
    assert engine.runner.kv_cache.free_tokens == PAGE
    engine.release(slot)
    assert engine.runner.kv_cache.free_tokens == engine.runner.kv_cache.tokens


@pytest.mark.parametrize("lengths", [(20, PAGE + 40, 20), (PAGE + 40, PAGE + 40, 20)], ids=["uneven", "even"])
def test_a_context_in_the_last_page_decodes_beside_a_longer_one(lengths: tuple[int, ...]) -> None:
    """Rows are copied together, each up to its end, where a view of them would reach behind the cache."""
    pages = sum(-(-(length + 10) // PAGE) for length in lengths)

    async def answer(engine: Engine, length: int) -> RequestResult:
        slot = await engine.reserve(length + 10)
        tokens = [8 + (7 * i + length) % 400 for i in range(length)]
        return await engine.run(Request(slot, tokens, decode=6, limit=length + 10))

    async def at_once(engine: Engine, lengths: Sequence[int]) -> list[RequestResult]:
        engine.runner.traits = Traits(together=True)
        return list(await asyncio.gather(*(answer(engine, length) for length in lengths)))

    engine = small_engine(pages)
    together = run(at_once(engine, lengths))
    assert engine.runner.kv_cache.free_tokens == 0, "the last context lies in the last page"
    alone = [run(at_once(small_engine(pages), [length]))[0] for length in lengths]
    assert [result.answer for result in together] == [result.answer for result in alone]
    assert engine.runner.passes <= 7, "none was repeated row by row"


def test_out_of_memory_makes_passes_smaller_and_loses_no_question(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plans = [script(seed) for seed in range(8)]
    expected = play_all(small_engine(64), plans)
    engine = small_engine(64)
    forward = engine.runner.forward

    def limited(steps: Sequence[Step]) -> list[Outcome]:
        if sum(len(step.tokens) for step in steps) > 40:
            raise torch.OutOfMemoryError("simulated")
        return forward(steps)

    monkeypatch.setattr(engine.runner, "forward", limited)
    played = play_all(engine, plans)
    assert [p[-1].answer for p in played] == [p[-1].answer for p in expected]
    assert engine.scheduler.limits.tokens <= 40
    assert "out of memory" in caplog.text


def test_a_request_that_never_fits_leaves_the_passes_as_large_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = small_engine(64)
    limits = engine.scheduler.limits

    def without_memory(steps: Sequence[Step]) -> list[Outcome]:
        raise torch.OutOfMemoryError("simulated")

    async def ask() -> None:
        await engine.run(Request(await engine.reserve(60), [8 + i for i in range(50)]))

    monkeypatch.setattr(engine.runner, "forward", without_memory)
    with pytest.raises(torch.OutOfMemoryError):
        run(ask())
    assert engine.scheduler.limits == limits


def test_a_cancelled_question_leaves_its_neighbours_alone() -> None:
    plans = [script(seed) for seed in range(6)]
    expected = play_all(small_engine(64), plans)
    engine = small_engine(64)

    async def with_one_cancelled() -> list[Any]:
        tasks = [asyncio.create_task(play(engine, plan)) for plan in plans]
        while engine.runner.passes < 2:
            await asyncio.sleep(0)
        tasks[2].cancel()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    outcomes = run(with_one_cancelled())
    assert isinstance(outcomes.pop(2), asyncio.CancelledError)
    del expected[2]
    assert [p[-1].answer for p in outcomes] == [p[-1].answer for p in expected]
    assert engine.runner.kv_cache.free_tokens == engine.runner.kv_cache.tokens


def test_a_row_whose_forward_fails_takes_no_neighbour_along() -> None:
    plans = [script(seed) for seed in range(5)]
    expected = play_all(small_engine(64), plans)
    engine = small_engine(64)
    bad = Script([VOCAB + 50] * 5, [], [9], 2)  # no such token: the embedding raises

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(play(engine, p) for p in [*plans, bad]), return_exceptions=True))

    outcomes = run(all_of_them())
    assert isinstance(outcomes[-1], IndexError)
    assert [p[-1].answer for p in outcomes[:-1]] == [p[-1].answer for p in expected]


def test_logits_that_are_not_numbers_fail_their_own_question_only() -> None:
    model = causal_model("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[500] = float("nan")
    engine = build_engine("llama", model, max_context=512)
    good, bad = script(1), script(2)
    bad.opening[3] = 500
    good.opening = [min(t, 499) for t in good.opening]
    good.steps = [([min(t, 499) for t in a], [min(t, 499) for t in b]) for a, b in good.steps]
    good.last = [min(t, 499) for t in good.last]

    async def both() -> list[Any]:
        return list(await asyncio.gather(play(engine, good), play(engine, bad), return_exceptions=True))

    first, second = run(both())
    assert isinstance(second, InvalidLogitsError)
    assert not isinstance(first, BaseException)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_logit_that_is_not_a_number_fails_its_question(value: float) -> None:
    model = causal_model("llama")
    engine = build_engine("llama", model, max_context=512)

    def spoiled(module: Any, args: Any, logits: torch.Tensor) -> torch.Tensor:
        """One logit of the first question; minus infinity, a masked token, is nobody's fault."""
        logits = logits.index_fill(-1, torch.tensor([4]), float("-inf"))
        logits[0, 0, 3] = value
        return logits

    async def ask() -> RequestResult:
        return await engine.run(Request(await engine.reserve(64), [9] * 10, choices=CHOICES))

    async def both() -> list[Any]:
        return list(await asyncio.gather(ask(), ask(), return_exceptions=True))

    hook = model.lm_head.register_forward_hook(spoiled)
    first, second = run(both())
    hook.remove()
    assert isinstance(first, InvalidLogitsError)
    assert np.isfinite(second.logits).all()


DYNAMIC = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
SINKS = {**SIZES["gpt_oss"], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
LLAMA4 = {**SMALL, "attention_chunk_size": 32, "num_local_experts": 2, "intermediate_size_mlp": 64}
FALCON = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        ("gemma2", SMALL, "soft-capped attention"),
        ("gpt_oss", {**SMALL, **SINKS}, "sink attention"),
        ("llama", {**SMALL, **DYNAMIC}, "rotary embedding .dynamic. depends on the longest row"),
        ("falcon", FALCON, "cannot be served in a packed batch|bypasses transformers' attention interface"),
        ("phimoe", {**SMALL, "num_local_experts": 2, "sliding_window": 32}, "within a window"),  # by its mask
        ("doge", {**SMALL, "keep_window_size": 32}, "within a window"),
        ("llama4_text", {**LLAMA4, "attn_temperature_tuning": False}, "within a window"),
        ("llama4_text", LLAMA4, "by a token's place"),
    ],
)
def test_a_model_served_wrongly_is_refused(family: str, options: dict[str, Any], reason: str) -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **options))
    with pytest.raises(RefusedModelError, match=reason):
        build_engine("odd", model.eval(), max_context=256)


def test_a_model_whose_packed_logits_are_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fused, "run", lambda self, layer: layer.out.zero_())
    with pytest.raises(RefusedModelError, match="differ from its own"):
        build_engine("llama", causal_model("llama"), max_context=256)


def test_an_event_loop_that_went_away_leaves_nothing_behind() -> None:
    engine = small_engine(8)

    async def abandoned() -> None:
        slot = await engine.reserve(512)
        task = asyncio.create_task(engine.run(Request(slot, [9] * 10, choices=CHOICES)))
        await asyncio.sleep(0)
        task.cancel()
        engine.release(slot)

    run(abandoned())
    assert play_all(engine, [script(0)])[0][-1].answer == play_all(small_engine(8), [script(0)])[0][-1].answer


def test_a_context_beyond_memory_is_refused_with_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    # A page cache full of weights left a budget of 0.1 GB, a warning, and a run that crawled.
    model = causal_model("llama")
    cache = build_engine("llama", model, max_context=64).runner.kv_cache
    per_token = cache.keys[0][0].nbytes * 3 * len(cache.keys)  # keys twice, and values
    for free, tokens in ((8 * per_token * PAGE, 2 * PAGE), (per_token * PAGE, PAGE)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: SimpleNamespace(available=free))
        assert build_engine("llama", model, max_context=PAGE).scheduler.pages.tokens == tokens
    missing = f"{PAGE:,} tokens would fit"
    with pytest.raises(TooLittleMemoryError, match=missing):
        build_engine("llama", model, max_context=PAGE + 1)
