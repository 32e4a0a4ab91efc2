"""A real reader on a processor: prefill, questions in flight and decoding, also against plain transformers.

Qwen2.5-Coder-0.5B-Instruct in the number format that this processor multiplies faster, and as many threads
as there are cores, on drawn tokens at the lengths of real questions. *Prefill*: 8 texts of 2,048 tokens, as a
share of the rate of matrix products measured beside it. *Drawn searches*: an opening of 600 tokens, 6 nodes
of 75 with a probe of 10 after each, an answer of 12. *Graph prompts*: 500 tokens and a reply of 120, as a
node of a graph is written; *decoding*: the same reply to 30 tokens, so that next to nothing is prefill. Plain
transformers run one at a time on a cache. Without the model (`bench model fetch qwen2.5-coder-0.5b`) it is
not run; with `--quick` a random Llama of a few tokens stands in for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench.engine.engine import Engine
from bench.engine.scheduler import Request
from bench.engine.setup import build_engine
from bench.errors import ModelUnavailableError
from bench.models.loader import load_causal
from bench.models.spec import resolve
from performance import gpu
from performance.drawn import SMALL, in_flight, model, random_tokens, run_searches
from performance.measuring import Candidate, by_turns
from performance.report import Measurement, NotRun
from performance.serving import compared, plain_searches

READER = "qwen2.5-coder-0.5b"
SEARCHES_IN_FLIGHT, GRAPHS_IN_FLIGHT, ALONE = 32, 16, 4

FULL = replace(
    gpu.FULL, questions=SEARCHES_IN_FLIGHT, opening=600, steps=6, node=75, answer=12, products=4096, rounds=2
)
REPLY = 120


def measure(quick: bool) -> list[Measurement]:
    """Prefill, searches, graph prompts, decoding.

    Raises NotRun where the reader is not on this machine.
    """
    stock, size, reply = _model(quick)
    name = SMALL if quick else READER
    engine = build_engine(name, stock, max_context=max(size.text, 2048))
    return [
        *gpu.prefill(engine, replace(size, questions=min(8, size.questions)), target=">= 60"),
        *_searches(name, engine, stock, size),
        *_replies("graph prompts", engine, stock, size.node if quick else 500, reply, size.rounds),
        *_replies("decoding", engine, stock, 4 if quick else 30, reply, size.rounds, target=">= 6"),
    ]


def _model(quick: bool) -> tuple[Any, gpu.Size, int]:
    """The model, how large everything is, and the tokens of a reply."""
    if quick:
        return model(SMALL), gpu.SMALLEST, 4
    try:
        return load_causal(resolve(READER, device="cpu")), FULL, REPLY
    except ModelUnavailableError as error:
        raise NotRun(f"{READER} is not on this machine: {error}") from error


def _searches(name: str, engine: Engine, stock: Any, size: gpu.Size) -> list[Measurement]:
    work, alone = size.searches, min(ALONE, size.questions)
    timed = by_turns(
        {
            "together": Candidate(partial(run_searches, engine, work, len(work)), len(work)),
            "alone": Candidate(partial(run_searches, engine, work[:alone], 1), alone),
            "plain": Candidate(partial(plain_searches, stock, work[:alone]), alone),
        },
        size.rounds,
        warm_up=False,
    )
    return compared(f"drawn searches, {name}", timed, len(work), "searches/s", plain_target=">= 4")


def _replies(
    what: str, engine: Engine, stock: Any, tokens: int, reply: int, rounds: int, target: str = ""
) -> list[Measurement]:
    """Replies of one length to prompts of ``tokens`` tokens."""
    prompts = [random_tokens(tokens, random.Random(seed)) for seed in range(GRAPHS_IN_FLIGHT)]

    async def one(prompt: list[int]) -> tuple[int, ...]:
        limit = len(prompt) + reply
        slot = await engine.reserve(limit)
        try:
            return (await engine.run(Request(slot, prompt, decode=reply, limit=limit))).answer
        finally:
            engine.release(slot)

    def ours(chosen: Sequence[list[int]], most: int) -> list[tuple[int, ...]]:
        return asyncio.run(in_flight(one, chosen, most))

    timed = by_turns(
        {
            "together": Candidate(partial(ours, prompts, len(prompts)), len(prompts)),
            "alone": Candidate(partial(ours, prompts[:ALONE], 1), ALONE),
            "plain": Candidate(partial(_plain_replies, stock, prompts[:ALONE], reply), ALONE),
        },
        rounds,
        warm_up=False,
    )
    name = f"{what} of {tokens} tokens, replies of {reply}"
    return compared(name, timed, len(prompts), "replies/s", target, plain_target=">= 4")


def _plain_replies(stock: Any, prompts: Sequence[list[int]], reply: int) -> list[tuple[int, ...]]:
    """Greedy replies on transformers' cache, one at a time."""
    import torch
    from transformers import DynamicCache

    def answer(prompt: list[int]) -> tuple[int, ...]:
        cache, ids, written = DynamicCache(config=stock.config), prompt, list[int]()
        for _ in range(reply):
            out = stock(torch.tensor([ids]), past_key_values=cache, logits_to_keep=1)
            ids = [int(out.logits[0, -1].argmax())]
            written += ids
        return tuple(written)

    with torch.inference_mode():
        return [answer(prompt) for prompt in prompts]
