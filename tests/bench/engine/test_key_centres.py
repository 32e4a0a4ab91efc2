"""Keys with a large common part: stored without it, and what that saves in half precision."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench.engine import setup
from bench.engine.key_centres import POSITIONS
from bench.engine.kv_cache import KVCache
from bench.engine.scheduler import Request
from bench.engine.setup import build_engine
from tests.bench.engine.conversations import play_all, script
from tests.bench.models.builders import causal_model


def biased(family: str, dtype: torch.dtype, **options: Any) -> Any:
    """A model whose keys share a large part that hardly turns: scores lie close together, far from zero."""
    model = causal_model(family, rope_parameters={"rope_theta": 1e12, **options.pop("rope", {})}, **options)
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "k_proj"):
                module.k_proj.weight[3::4] = 0.0
                module.k_proj.bias[3::4] = 64.0
                module.q_proj.bias[3::4] = 4.0
    return model.to(dtype)


def attention_recorded(model: Any) -> list[Any]:
    engine = build_engine("biased", model, max_context=1024)
    engine.runner.traits = replace(engine.runner.traits, tiles=False)
    results = play_all(engine, [script(seed) for seed in range(3)])
    return [result.attention for conversation in results for result in conversation[:-1]]


def test_attention_under_large_key_biases_survives_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """By blocks, whose scores are rounded; fused attention does not round them."""
    exact = attention_recorded(biased("qwen2", torch.float32))

    def worst(model: Any) -> float:
        ours = attention_recorded(model)
        return max(float(np.abs(a - b).max(initial=0)) for a, b in zip(exact, ours, strict=True))

    centred = worst(biased("qwen2", torch.bfloat16))
    monkeypatch.setattr(setup, "key_centres", lambda model, layers: [])
    assert centred < worst(biased("qwen2", torch.bfloat16)) / 4


def test_the_self_check_does_not_refuse_a_model_whose_own_attention_rounds_large_keys() -> None:
    """Its eager and its fused logits differ by a third of their size; packed ones lie between."""
    model = causal_model("qwen2", attention="eager")
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "k_proj"):
                module.k_proj.bias[3::4] = 128.0
                drawn = torch.Generator().manual_seed(3)
                module.q_proj.bias.copy_(4 * torch.randn(len(module.q_proj.bias), generator=drawn))
    model = model.to(torch.bfloat16)
    biases = [module.k_proj.bias for module in model.modules() if hasattr(module, "k_proj")]
    build_engine("biased", model, max_context=256)
    assert all(bias is not None and bias.max() == 128.0 for bias in biases)


@pytest.mark.parametrize("family", ["qwen2", "phi"])
def test_what_is_stored_of_a_bias_alone_is_zero_on_average(family: str) -> None:
    """phi turns a part of each head only."""
    model = biased(
        family,
        torch.bfloat16,
        **({"qk_layernorm": False, "rope": {"partial_rotary_factor": 0.5}} if family == "phi" else {}),
    )
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "k_proj"):
                module.k_proj.weight.zero_()
    engine = build_engine(family, model, max_context=POSITIONS)
    engine.scheduler.share_prefixes = False

    async def read() -> int:
        slot = await engine.reserve(POSITIONS)
        await engine.run(Request(slot, [9] * POSITIONS))
        return slot.range.start

    start = asyncio.run(read())
    for keys in engine.runner.kv_cache.keys:
        assert keys[start : start + POSITIONS].float().abs().max() < 1


def test_keys_are_read_as_they_were_written() -> None:
    centre = torch.tensor([[64.0, -3.0], [0.0, 1024.0]])
    sizes = {"layers": 1, "tokens": 512, "kv_heads": 2, "head_dim": 2}
    cache = KVCache(**sizes, dtype=torch.bfloat16, device="cpu", key_centres=[centre])
    keys = (centre[:, None] + torch.tensor([[1.0, 2.0], [-4.0, 0.5], [0.0, 8.0]])).bfloat16()
    cache.write(0, torch.arange(5, 8), keys, -keys)
    torch.testing.assert_close(cache.read(0, 5, 3), (keys, -keys))
