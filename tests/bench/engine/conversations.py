"""Random conversations with an engine, and what one plain forward says about them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.engine.engine import Engine
from bench.engine.heads import Heads
from bench.engine.scheduler import Request, RequestResult
from tests.bench.models.builders import VOCAB

CHOICES = (5, 6)


@dataclass
class Script:
    """A random conversation: what one question asks of the engine, in order."""

    opening: list[int]
    steps: list[tuple[list[int], list[int]]]
    last: list[int]
    decode: int


def script(seed: int) -> Script:
    rng = random.Random(seed)

    def tokens(low: int, high: int) -> list[int]:
        return [rng.randrange(8, VOCAB) for _ in range(rng.randrange(low, high))]

    steps = [(tokens(1, 40), tokens(1, 12)) for _ in range(rng.randrange(1, 5))]
    return Script(tokens(10, 90), steps, tokens(1, 20), rng.randrange(3, 10))


async def play(engine: Engine, plan: Script, heads: Heads | None = None) -> list[RequestResult]:
    """Opening, then step by step extend and probe (watching opening and steps so far), then an answer."""

    def request(*tokens: list[int], **options: Any) -> Request:
        made = Request(slot, *tokens, **options)
        made.heads = heads
        return made

    slot = await engine.reserve(512)
    try:
        results = [await engine.run(Request(slot, plan.opening, choices=CHOICES))]
        spans = [(0, len(plan.opening))]
        for node, suffix in plan.steps:
            start = slot.length
            asked = request(node, suffix, choices=CHOICES, watched=list(spans), watch_from=start)
            results.append(await engine.run(asked))
            assert slot.length == start + len(node), "the suffix is rolled back"
            spans.append((start, slot.length))
        start = slot.length + len(plan.last)
        asked = request(plan.last, decode=plan.decode, limit=512, watched=spans, watch_from=start)
        return [*results, await engine.run(asked)]
    finally:
        engine.release(slot)


def play_all(
    engine: Engine, plans: Sequence[Script], heads: Sequence[Heads | None] = (None,)
) -> list[list[RequestResult]]:
    """All conversations at once; heads: whose attention each of them records, in turn."""

    async def together() -> list[list[RequestResult]]:
        chosen = itertools.cycle(heads)
        return list(await asyncio.gather(*(play(engine, *each) for each in zip(plans, chosen, strict=False))))

    return asyncio.run(together())


@torch.no_grad()
def recomputed(
    model: Any, ids: list[int], spans: Sequence[tuple[int, int]], heads: Heads | None = None
) -> tuple[Any, NDArray[np.float32]]:
    """Last logits, and attention of every token to every span, from one plain eager forward over all ids.

    The mean over all heads, or over the chosen ones.
    """
    out = model(torch.tensor([ids], device=model.device), use_cache=False, output_attentions=True)
    if heads is None:
        mean = torch.stack(out.attentions).float().mean((0, 2))[0].cpu()
    else:
        mean = torch.stack([out.attentions[at][0, head].float() for at, head in heads.pairs]).mean(0).cpu()
    columns = [mean[:, a:b].mean(1) for a, b in spans]
    return out.logits[0, -1].float().cpu(), torch.stack(columns, 1).numpy()
