"""A model's own forward in place of packed passes: the same promises, for models that these do not serve."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.engine.engine import Engine
from bench.engine.heads import Heads
from bench.engine.plain import PlainRunner, UncontinuableError, plain_runner
from bench.engine.runner import Runner
from bench.engine.scheduler import Request, Scheduler
from bench.engine.setup import engine_for
from bench.flops.architecture import architecture_from_modules
from bench.flops.formulas import flops_terms, forward_usage
from performance.families import IDS, SIZES, SMALL, greedy, toy
from tests.bench.models.builders import causal_model

WITHOUT_ATTENTION = {"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "lfm2"}
"""Families some of whose layers give no attention weights."""
HEADS = Heads(((0, 5), (1, 0)))


@pytest.mark.parametrize("family", SIZES)
def test_what_is_read_piece_by_piece_probed_and_rolled_back_answers_as_the_whole_text(family: str) -> None:
    model = toy(family)
    engine = engine_for(family, model, max_context=256)
    assert isinstance(engine.runner, PlainRunner)
    assert engine.runner.attends is (family not in WITHOUT_ATTENTION)

    async def run() -> tuple[Any, Any, Any]:
        slot = await engine.reserve(128)
        await engine.run(Request(slot, IDS[:20]))
        probe = await engine.run(Request(slot, IDS[20:25], IDS[30:33], (5, 6)))
        await engine.run(Request(slot, IDS[25:], decode=4, limit=128))
        engine.rewind(slot, 25)  # an answer that is forgotten
        answer = await engine.run(Request(slot, IDS[25:], decode=10, limit=128))
        return probe, answer, slot

    probe, answer, slot = asyncio.run(run())
    with torch.no_grad():
        logits = model(torch.tensor([[*IDS[:25], *IDS[30:33]]]), use_cache=False).logits[0, -1]
    np.testing.assert_allclose(probe.logits, logits[[5, 6]].numpy(), rtol=1e-3, atol=1e-3)
    assert probe.log_mass == pytest.approx(float(torch.logsumexp(logits.double(), -1)), abs=1e-3)
    assert list(answer.answer) == greedy(model, IDS, 10)


@pytest.mark.parametrize(("family", "heads"), [("llama", None), ("llama", HEADS), ("mistral", None)])
def test_its_attention_is_that_of_packed_passes(family: str, heads: Heads | None) -> None:
    """Mistral's window of 48 is shorter than the text: its cache keeps fewer keys than there are tokens."""
    packed = engine_for(family, causal_model(family), max_context=256)
    assert isinstance(packed.runner, Runner)
    runner = plain_runner(family, causal_model(family), 256)
    scheduler = Scheduler(runner.kv_cache, packed.scheduler.limits)
    scheduler.share_prefixes = False

    async def read(engine: Engine) -> Any:
        ids = [token % 60 for token in IDS * 2]
        slot = await engine.reserve(128)
        await engine.run(Request(slot, ids[:10]))
        watched: dict[str, Any] = {"watched": [(2, 5), (7, 9)], "watch_from": 10, "heads": heads}
        first = await engine.run(Request(slot, ids[10:20], ids[30:33], (5, 6), **watched))
        return first, await engine.run(Request(slot, ids[20:], decode=5, limit=128, **watched))

    plain = Engine(family, runner, scheduler)
    for one, other in zip(*(asyncio.run(read(engine)) for engine in (packed, plain)), strict=True):
        assert one.answer == other.answer
        rows = min(len(one.attention), len(other.attention))
        np.testing.assert_allclose(one.attention[:rows], other.attention[:rows], atol=1e-5)


def test_a_model_that_cannot_continue_a_text_is_refused_in_words() -> None:
    config = AutoConfig.for_model("bert", **{**SMALL, "is_decoder": False})
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(UncontinuableError, match="a search would be wrong. Use another model"):
        engine_for("bert", model, max_context=64)


def test_a_rotary_embedding_that_changes_with_the_length_is_refused() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32}
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    sizes = {**SMALL, "pad_token_id": 0, "original_max_position_embeddings": 32}
    config = AutoConfig.for_model("phi3", **sizes, rope_parameters={**rope, **factors})
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(UncontinuableError, match="longrope.*beyond 32"):
        engine_for("phi3", model, max_context=64)
    assert isinstance(engine_for("phi3", model, max_context=32).runner, PlainRunner)


def test_only_layers_with_attention_pay_for_it_and_a_state_is_paid_for() -> None:
    shape = architecture_from_modules(toy("qwen3_5_text"))
    assert shape.attention_layers == 1
    assert shape.state == 3 * 3 * 2 * 16 * 16  # three layers, two heads of 16 by 16
    one, two = (flops_terms(shape, forward_usage(shape, 1, n), "matmul")["attention"] for n in (100, 200))
    assert two - one == 4 * 1 * (4 * 16) * 100
    assert architecture_from_modules(causal_model("llama")).attention_layers is None
