"""Drawn tokens: the right distribution, the same text for the same seed, whatever shares the pass."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import torch

from bench.engine.sampling import Sampling
from tests.bench.models.builders import language_model

PROMPT = "Mara Feld hid the red kite in the old mill."


def test_tokens_are_drawn_from_the_softmax_at_the_temperature() -> None:
    logits = torch.tensor([1.0, 3.0, -2.0, 2.0, 0.0])
    draws = 20_000
    for temperature in (0.5, 2.0):
        counts = Counter(Sampling(temperature, seed).draw(logits, 0) for seed in range(draws))
        expected = torch.softmax(logits / temperature, -1).numpy()
        shares = np.array([counts[token] for token in range(5)]) / draws
        np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / draws))


def test_the_last_token_is_drawn_where_rounding_leaves_nothing_above() -> None:
    class Always(Sampling):
        def uniform(self, position: int) -> float:
            return float(np.nextafter(1.0, 0.0))

    assert Always(0.7, 0).draw(torch.full((300,), -8.0), 0) == 299


def test_a_seed_draws_the_same_text_alone_and_among_others() -> None:
    lm = language_model("llama")
    samplings = [Sampling(3.0, seed) for seed in range(6)]

    async def together() -> list[str]:
        asked = [lm.generate(PROMPT, 16, sampling) for sampling in samplings]
        greedy = [lm.generate(f"{PROMPT} {n}", 24) for n in range(3)]
        return [generation.text for generation in await asyncio.gather(*asked, *greedy)]

    alone = [asyncio.run(lm.generate(PROMPT, 16, sampling)).text for sampling in samplings]
    assert asyncio.run(together())[: len(alone)] == alone
    assert len(set(alone)) > 1
