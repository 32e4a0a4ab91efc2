"""Llama-3.1-8B's shape on a CUDA device: serving, prefill, and what bfloat16 changes.

Random weights of standard deviation 0.02 in bfloat16, at the papers' lengths: drawn searches with an opening
of 2,000 tokens, 12 nodes of 300 with a probe of 10 after each, and an answer of 16. The rate of the card is
that of its matrix products as measured here; prefill is 32 texts of 2,048 tokens through the engine, its
FLOPs those of matrix products alone, attention halved for causality. bfloat16 rounds differently when other
rows share the pass: how many answers change with 32 in flight, and how far the logits of Yes and No move, is
counted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.engine.engine import Engine, Request
from bench.engine.setup import build_engine
from bench.flops.architecture import architecture_from_config
from bench.flops.formulas import flops_terms, forward_usage
from performance.measuring import Candidate, Timed, by_turns
from performance.report import Measurement, NotRun, rate, ratio, spread
from performance.workloads import (
    CHOICES,
    ROOM,
    Search,
    Searched,
    in_flight,
    random_llama,
    random_tokens,
    run_searches,
    searches,
)

SHAPE = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
IN_FLIGHT = 32


def measure(quick: bool) -> list[Measurement]:
    """Everything on one model."""
    import torch

    if not torch.cuda.is_available():
        raise NotRun("no CUDA device")
    shape = {**SHAPE, "num_hidden_layers": 4} if quick else SHAPE
    work = searches(IN_FLIGHT, opening=2000, steps=2 if quick else 12, node=300, answer=16)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = random_llama({**shape, "initializer_range": 0.02})
    finally:
        torch.set_default_dtype(torch.float32)
    engine = build_engine("random Llama-3.1-8B", model, max_context=ROOM)
    return measure_on(engine, work, prefill=2048, products=8192, rounds=1 if quick else 3)


def measure_on(
    engine: Engine, work: Sequence[Search], *, prefill: int, products: int, rounds: int
) -> list[Measurement]:
    """The measurements on any engine.

    prefill: tokens of each of as many texts; products: rows and columns of the matrices that are multiplied.
    """
    alone = min(8, len(work))
    timed = by_turns(
        {
            "together": Candidate(
                _finished(engine, partial(run_searches, engine, work, IN_FLIGHT)), len(work)
            ),
            "alone": Candidate(_finished(engine, partial(run_searches, engine, work[:alone], 1)), alone),
        },
        rounds,
    )
    together: list[Searched] = timed["together"].result[:alone]
    apart: list[Searched] = timed["alone"].result
    changed = sum(a.answer != b.answer for a, b in zip(together, apart, strict=True))
    moved = max(
        abs(x - y)
        for a, b in zip(together, apart, strict=True)
        for step, other in zip(a.logits, b.logits, strict=True)
        for x, y in zip(step, other, strict=True)
    )
    return [
        ratio(f"drawn searches: {IN_FLIGHT} in flight over 1", timed["alone"], timed["together"], ">= 6"),
        rate(f"drawn searches: {IN_FLIGHT} in flight", timed["together"], "searches/s"),
        rate("drawn searches: 1 in flight", timed["alone"], "searches/s"),
        *_prefill(engine, len(work), prefill, products, rounds),
        Measurement(f"answers of {alone} that change with what shares the pass", changed, ""),
        Measurement("largest difference of a logit with what shares the pass", moved, ""),
    ]


def _prefill(engine: Engine, texts: int, tokens: int, products: int, rounds: int) -> list[Measurement]:
    import torch

    device, dtype = engine.model.device, engine.model.dtype
    a, b = (torch.randn(products, products, device=device).to(dtype) for _ in range(2))
    drawn = [random_tokens(tokens, random.Random(seed)) for seed in range(texts)]

    async def read(text: list[int]) -> None:
        slot = await engine.reserve(len(text))
        try:
            await engine.run(Request(slot, text, choices=CHOICES))
        finally:
            engine.release(slot)

    timed = by_turns(
        {
            "products": Candidate(
                _finished(engine, lambda: [a @ b for _ in range(20)]), 20 * 2 * products**3
            ),
            "prefill": Candidate(
                _finished(engine, lambda: asyncio.run(in_flight(read, drawn, texts))),
                texts * _prefill_flops(engine, tokens),
            ),
        },
        rounds,
    )
    shares = [
        100 * p.wall_s / q.wall_s for p, q in zip(timed["products"].runs, timed["prefill"].runs, strict=True)
    ]
    return [
        spread("prefill: share of the rate of matrix products", shares, "%"),
        _teraflops("prefill", timed["prefill"]),
        _teraflops("matrix products", timed["products"]),
    ]


def _prefill_flops(engine: Engine, tokens: int) -> float:
    """FLOPs of matrix products over a text; what causality leaves out of attention is not counted."""
    architecture = architecture_from_config(engine.model.config)
    terms = flops_terms(architecture, forward_usage(architecture, tokens), "matmul")
    return terms["weights"] + terms["attention"] / 2 + terms["head"]


def _teraflops(name: str, timed: Timed) -> Measurement:
    return spread(name, [1 / run.wall_s / 1e12 for run in timed.runs], "TFLOP/s")


def _finished(engine: Engine, work: Any) -> Any:
    """The work, waited for where the device works by itself."""

    def run() -> Any:
        found = work()
        if engine.model.device.type == "cuda":
            import torch

            torch.cuda.synchronize()
        return found

    return run
