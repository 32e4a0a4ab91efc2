"""The shipped model: whatever weights it has at present, it must load, tokenise and answer rightly."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from bench.flops.meter import Meter, metered
from bench.models.language_model import CausalLanguageModel
from bench.models.loader import load_tokenizer
from bench.models.model_set import load_language_model
from bench.models.spec import resolve

PROMPT = "Information:\nOtto Brand hid the red kite in the old mill.\n\nQuestion:\nWho hid the red kite?"
TOKENIZER = load_tokenizer(resolve("tiny"))


@pytest.fixture(scope="module")
def tiny() -> CausalLanguageModel:
    return load_language_model(resolve("tiny", device="cpu"))


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_character_of_any_text_has_a_token_and_none_is_a_control_token(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert {i for start, end in tokens.offsets for i in range(start, end)} == set(range(len(text)))
    assert not set(tokens.ids) & set(TOKENIZER.hf.all_special_ids)


def test_it_answers_greedily_and_weighs_yes_against_no(tiny: CausalLanguageModel) -> None:
    async def ask() -> tuple[str, float, float]:
        answer = await tiny.generate(PROMPT, 16)
        async with await tiny.open() as context:
            await context.extend(PROMPT)
            probe = await context.probe(["Yes", "No"])
        return answer.text, probe.probabilities["Yes"], probe.mass

    with metered(Meter()) as meter:
        first = asyncio.run(ask())
    assert first == asyncio.run(ask())
    text, p_yes, mass = first
    assert text
    assert 0 < p_yes < 1
    assert 0 < mass <= 1
    assert meter.flops > 0
