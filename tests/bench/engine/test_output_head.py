"""Logits of choices in half precision: read from the last hidden states, unrounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from bench.engine.engine import Engine
from bench.engine.output_head import output_head
from bench.engine.scheduler import Request
from bench.engine.setup import build_engine
from tests.bench.models.builders import VOCAB, causal_model


def probed(engine: Engine, choices: tuple[int, ...]) -> Any:
    async def probe() -> Any:
        slot = await engine.reserve(256)
        return await engine.run(Request(slot, [9, 8, 7, 30, 40], choices=choices))

    return asyncio.run(probe())


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi"])
def test_choices_of_a_reader_in_half_precision_do_not_tie(family: str) -> None:
    """p_yes of the 1.5B moved in steps of 3 points."""
    model = causal_model(family).bfloat16()
    model.get_output_embeddings().weight.mul_(16)  # logits around 100, multiples of 1/2
    engine = build_engine(family, model, max_context=256)
    tokens = tuple(range(8, VOCAB))
    read = torch.tensor(probed(engine, tokens).logits)
    engine.runner.head = None
    rounded = torch.tensor(probed(engine, tokens).logits)
    assert len(set(rounded.tolist())) < len(tokens) * 0.9
    assert len(set(read.tolist())) > len(tokens) * 0.99
    assert (read - rounded).abs().max() <= rounded.abs().max() * 2**-8


def test_full_precision_and_scaled_logits_are_left_to_the_model() -> None:
    assert output_head(causal_model("llama")) is None
    scaled = causal_model("llama").bfloat16()
    own = scaled.forward

    def forward(*args: Any, **options: Any) -> Any:
        out = own(*args, **options)
        out.logits = out.logits / 4
        return out

    scaled.forward = forward
    assert output_head(scaled) is None
