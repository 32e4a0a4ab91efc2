"""Attention by span while a text is read, against reading alone and against the whole attention matrix.

The engine reads a text in which every token records its attention to spans that cover the text: 64 spans of
2,048 tokens, or as many tokens of 4,096. It is compared with the engine reading the same text and recording
nothing, and with what stock transformers offers for it, eager attention with `output_attentions=True`,
whose matrices are then averaged over layers, heads and spans. Both give the same numbers (the largest
difference is in the table). Memory is by how much one reading raises the peak of a process of its own that
has the model loaded and has run it before: on the same text where two readings by the engine are compared, on
a few tokens where keys and values are to count as well.
"""

from __future__ import annotations

import asyncio
import random
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.engine.engine import Engine
from bench.engine.scheduler import Request
from bench.engine.setup import build_engine
from performance.drawn import CHOICES, MEDIUM, TINY, model, random_tokens
from performance.measuring import Candidate, by_turns, in_own_process, memory_can_be_measured, peak_memory
from performance.report import Measurement, ratio

SPANS = 64


def measure(quick: bool) -> list[Measurement]:
    """Time and memory on two models."""
    against_reading, against_eager, rounds = (256, 512, 1) if quick else (2048, 4096, 5)
    measurements = []
    for name in (TINY,) if quick else (TINY, MEDIUM):
        measurements += _reading(name, against_reading, rounds)
        measurements += _eager(name, against_eager, rounds if quick else 3)
    return measurements


def _reading(name: str, tokens: int, rounds: int) -> list[Measurement]:
    engine = build_engine(name, model(name), max_context=tokens)
    text = random_tokens(tokens, random.Random(1))
    timed = by_turns(
        {
            "with": Candidate(lambda: read(engine, text, SPANS)),
            "without": Candidate(lambda: read(engine, text, 0)),
        },
        rounds,
    )
    what = f"{name}: {tokens:,} tokens with {SPANS} spans over without"
    measurements = [ratio(f"{what}, time", timed["with"], timed["without"], "<= 1.15")]
    return [*measurements, *_memory(what, name, tokens, ("spans", "nothing"), "<= 1.1", again=True)]


def _eager(name: str, tokens: int, rounds: int) -> list[Measurement]:
    engine = build_engine(name, model(name), max_context=tokens)
    stock = model(name, "eager")
    text = random_tokens(tokens, random.Random(1))
    timed = by_turns(
        {
            "eager": Candidate(lambda: read_eagerly(stock, text, SPANS)),
            "spans": Candidate(lambda: read(engine, text, SPANS)),
        },
        rounds,
        warm_up=False,
    )
    what = f"{name}: {tokens:,} tokens, eager with the whole matrix over {SPANS} spans"
    difference = float(np.abs(timed["eager"].result - timed["spans"].result).max())
    return [
        ratio(f"{what}, time", timed["eager"], timed["spans"], ">= 3"),
        *_memory(what, name, tokens, ("eager", "spans"), ">= 5", again=False),
        Measurement(f"{name}: largest difference of an attention to eager's", difference, "", "<= 1e-06"),
    ]


def _memory(
    what: str, name: str, tokens: int, sides: tuple[str, str], target: str, *, again: bool
) -> list[Measurement]:
    """again: the process has read the whole text before, so that its cache of keys and values is there.

    Then some megabytes are left, and an allocator may add a third: the median of three processes.
    """
    if not memory_can_be_measured():
        return []
    times = 3 if again else 1
    a, b = (
        median(in_own_process("performance.capture:weigh", side, name, tokens, again) for _ in range(times))
        for side in sides
    )
    megabytes = {f"{side}_mb": round(size / 1e6, 1) for side, size in zip(sides, (a, b), strict=True)}
    return [Measurement(f"{what}, memory", a / b, "x", target, details=megabytes)]


def weigh(side: str, name: str, tokens: int, again: bool) -> int:
    """Bytes by which a reading raises this process's peak memory: the least of three where it reads again."""
    text = random_tokens(tokens, random.Random(1))
    loaded: Any = model(name, "eager" if side == "eager" else "sdpa")
    engine = build_engine(name, loaded, max_context=tokens) if side != "eager" else None

    def reading(part: list[int]) -> int:
        with peak_memory() as peak:
            if engine is None:
                read_eagerly(loaded, part, SPANS)
            else:
                read(engine, part, SPANS if side == "spans" else 0)
        return peak.growth

    reading(text if again else text[:SPANS])  # what a first forward sets up is not counted
    return min(reading(text) for _ in range(3 if again else 1))


def read(engine: Engine, text: list[int], spans: int) -> NDArray[np.float32]:
    """The engine reads a text; attention of its tokens to so many spans that cover it, (tokens, spans)."""

    async def run() -> NDArray[np.float32]:
        slot = await engine.reserve(len(text))
        try:
            request = Request(slot, text, choices=CHOICES, watched=covering(len(text), spans))
            return np.asarray((await engine.run(request)).attention)
        finally:
            engine.release(slot)

    return asyncio.run(run())


def read_eagerly(stock: Any, text: list[int], spans: int) -> NDArray[np.float32]:
    """The same from the attention matrices that transformers returns."""
    import torch

    with torch.inference_mode():
        out = stock(torch.tensor([text]), use_cache=False, output_attentions=True, logits_to_keep=1)
        matrix = torch.zeros(len(text), spans)
        for at, (start, end) in enumerate(covering(len(text), spans)):
            matrix[start:end, at] = 1 / max(1, end - start)
        each = [layer[0].mean(0) @ matrix for layer in out.attentions]
        return np.asarray(torch.stack(each).mean(0).numpy())


def covering(tokens: int, spans: int) -> list[tuple[int, int]]:
    """So many spans that cover the tokens between them."""
    return [(at * tokens // spans, (at + 1) * tokens // spans) for at in range(spans)]
