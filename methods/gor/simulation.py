"""Simulated queries: what a model would ask about random chunks of a document (Graph of Records, Sec. 2.2).

The released code draws chunks and asks until it has enough distinct queries, for ever on a document that
does not yield so many. Here the attempts are bounded and numbered; chunk and draw of each depend on its
number alone, so that attempts can be in flight together and a document's queries are always the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.method import LanguageModel, Sampling
from methods.gor.prompts import Wording, gor_question_prompt

ATTEMPTS_PER_QUERY = 3
"""Most attempts, for each query that is wanted.  # our choice"""


@dataclass(frozen=True)
class Asked:
    """A simulated query and the position of the text that it was asked about."""

    text: str
    source: int


async def simulate_queries(
    texts: Sequence[str],
    lm: LanguageModel,
    *,
    wanted: int,
    temperature: float,
    max_new_tokens: int,
    seed: Sequence[int],
    events: Counter[str],
    wording: Wording = "ours",
) -> list[Asked]:
    """Distinct queries about texts drawn at random, ``wanted`` of them or what the attempts gave.

    seed: numbers that together are this document's. Counts ``query_attempts``, ``empty_query`` and
    ``duplicate_query`` in ``events``.
    """
    sources: dict[str, int] = {}
    left = ATTEMPTS_PER_QUERY * wanted if texts else 0
    number = 0

    async def attempt(at: int) -> Asked:
        rng = np.random.default_rng([*seed, at])
        source = int(rng.integers(len(texts)))
        sampling = Sampling(temperature, int(rng.integers(2**62))) if temperature else None
        written = await lm.generate(gor_question_prompt(texts[source], wording), max_new_tokens, sampling)
        return Asked(first_question(written.text), source)

    while len(sources) < wanted and left:
        wave = range(number, number + min(wanted - len(sources), left))
        number, left = wave.stop, left - len(wave)
        for asked in await asyncio.gather(*map(attempt, wave)):
            events["empty_query"] += not asked.text
            events["duplicate_query"] += asked.text in sources
            if asked.text:
                sources.setdefault(asked.text, asked.source)
    events["query_attempts"] += number
    return [Asked(text, source) for text, source in sources.items()]


def first_question(text: str) -> str:
    """The first line that holds a letter, from its first letter on: numbers and bullets are no part of it."""
    for line in text.splitlines():
        start = next((at for at, character in enumerate(line) if character.isalpha()), None)
        if start is not None:
            return " ".join(line[start:].split())
    return ""
