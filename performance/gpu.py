"""Llama-3.1-8B's shape on a CUDA device: serving, prefill, spans, prefixes, and what bfloat16 changes.

Random weights of standard deviation 0.02 in bfloat16, at the papers' lengths: drawn searches with an opening
of 2,000 tokens, 12 nodes of 300 with a probe of 10 after each, and an answer of 16. The rate of the card is
that of its matrix products as measured here; prefill is 32 texts of 2,048 tokens through the engine, its
FLOPs those of matrix products alone, attention halved for causality. bfloat16 rounds differently when other
rows share the pass: how many answers change with 32 in flight, and how far the logits of Yes and No move, is
counted. Spans are 64 that cover a text of 4,096 tokens; prefixes, 32 questions about one such text. Attention
to a search's question comes from the log-sum-exp that variable-length attention returns, or from all keys.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.engine import span_attention
from bench.engine.engine import Engine
from bench.engine.scheduler import Request
from bench.engine.setup import build_engine
from bench.files.atomic import write_json
from bench.flops.architecture import architecture_from_config
from bench.flops.formulas import flops_terms, forward_usage
from performance.capture import read
from performance.drawn import (
    CHOICES,
    Search,
    Searched,
    in_flight,
    random_llama,
    random_tokens,
    run_searches,
    searches,
)
from performance.measuring import Candidate, Timed, by_turns
from performance.report import Measurement, NotRun, rate, ratio, result, spread

log = logging.getLogger(__name__)

LLAMA_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
SPANS = 64


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    shape: Mapping[str, int]
    questions: int
    """Searches, texts and questions in flight."""
    opening: int
    steps: int
    node: int
    answer: int
    text: int
    """Tokens of each of the texts that are read."""
    document: int
    """Tokens of the text with spans, and of the one that questions share."""
    products: int
    """Rows and columns of the matrices that are multiplied."""
    rounds: int

    @property
    def searches(self) -> list[Search]:
        """The drawn searches."""
        shape = {"opening": self.opening, "steps": self.steps, "node": self.node, "answer": self.answer}
        return searches(self.questions, **shape)


FULL = Size(LLAMA_8B, 32, 2000, 12, 300, 16, text=2048, document=4096, products=8192, rounds=3)
QUICK = replace(FULL, shape={**LLAMA_8B, "num_hidden_layers": 4}, steps=2, rounds=1)
SMALLEST = Size(
    {
        **LLAMA_8B,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    | {"intermediate_size": 112, "vocab_size": 4000},
    *(3, 40, 2, 10, 4),
    text=32,
    document=96,
    products=64,
    rounds=1,
)
"""For a machine without a GPU, to see that everything runs."""


def size(device: str, quick: bool) -> Size:
    """The size for a device; without a GPU always the smallest."""
    if not device.startswith("cuda"):
        return SMALLEST
    return QUICK if quick else FULL


def measure(quick: bool) -> list[Measurement]:
    """Everything on one model."""
    import torch

    if not torch.cuda.is_available():
        raise NotRun("no CUDA device")
    chosen = size("cuda", quick)
    engine = build("cuda", chosen)
    return [one for step in STEPS.values() for one in step(engine, chosen)]


def write_steps(names: Sequence[str], out: str, device: str, quick: bool) -> None:
    """Run some steps on one model; each leaves ``out/NAME.json`` as soon as it has ended."""
    chosen = size(device, quick)
    engine = build(device, chosen)
    for name in names:
        log.info("%s: begun", name)
        findings = result("gpu", partial(STEPS[name], engine, chosen), quick)
        write_json(Path(out) / f"{name}.json", findings)
        log.info("%s: %.0f s", name, findings["seconds"])


def build(device: str, chosen: Size) -> Engine:
    """An engine of random weights; bfloat16 on a GPU, single precision elsewhere."""
    import torch

    on_gpu = device.startswith("cuda")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if on_gpu else torch.float32)
    try:
        with torch.device(device):
            model = random_llama({**chosen.shape, "initializer_range": 0.02})
    finally:
        torch.set_default_dtype(before)
    longest = max(
        chosen.document + 256, int(1.2 * (chosen.opening + chosen.steps * chosen.node)) + 128, chosen.text
    )
    return build_engine("random Llama", model, max_context=longest)


def _serving(engine: Engine, chosen: Size) -> list[Measurement]:
    work = chosen.searches
    alone = min(8, len(work))
    together_: Any = partial(run_searches, engine, work, len(work))
    timed = by_turns(
        {
            "together": Candidate(_finished(engine, together_), len(work)),
            "alone": Candidate(_finished(engine, partial(run_searches, engine, work[:alone], 1)), alone),
        },
        chosen.rounds,
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
        ratio(f"drawn searches: {len(work)} in flight over 1", timed["alone"], timed["together"], ">= 6"),
        rate(f"drawn searches: {len(work)} in flight", timed["together"], "searches/s"),
        rate("drawn searches: 1 in flight", timed["alone"], "searches/s"),
        Measurement(f"answers of {alone} that change with what shares the pass", changed, ""),
        Measurement("largest difference of a logit with what shares the pass", moved, ""),
    ]


def prefill(engine: Engine, chosen: Size, target: str = "") -> list[Measurement]:
    """Texts through the engine, as a share of the rate of matrix products; target: of that share."""
    import torch

    device, dtype = engine.runner.model.device, engine.runner.model.dtype
    a, b = (torch.randn(chosen.products, chosen.products, device=device).to(dtype) for _ in range(2))
    texts = [random_tokens(chosen.text, random.Random(seed)) for seed in range(chosen.questions)]

    async def one(text: list[int]) -> None:
        slot = await engine.reserve(len(text))
        try:
            await engine.run(Request(slot, text, choices=CHOICES))
        finally:
            engine.release(slot)

    timed = by_turns(
        {
            "products": Candidate(
                _finished(engine, lambda: [a @ b for _ in range(20)]), 20 * 2 * chosen.products**3
            ),
            "prefill": Candidate(
                _finished(engine, lambda: asyncio.run(in_flight(one, texts, len(texts)))),
                len(texts) * _prefill_flops(engine, chosen.text),
            ),
        },
        chosen.rounds,
    )
    shares = [
        100 * p.wall_s / q.wall_s for p, q in zip(timed["products"].runs, timed["prefill"].runs, strict=True)
    ]
    return [
        spread("prefill: share of the rate of matrix products", shares, "%", target),
        _teraflops("prefill", timed["prefill"]),
        _teraflops("matrix products", timed["products"]),
    ]


def _prefill_flops(engine: Engine, tokens: int) -> float:
    """FLOPs of matrix products over a text; what causality leaves out of attention is not counted."""
    architecture = architecture_from_config(engine.runner.model.config)
    terms = flops_terms(architecture, forward_usage(architecture, tokens), "matmul")
    return terms["weights"] + terms["attention"] / 2 + terms["head"]


def _teraflops(name: str, timed: Timed) -> Measurement:
    return spread(name, [1 / run.wall_s / 1e12 for run in timed.runs], "TFLOP/s")


def _capture(engine: Engine, chosen: Size) -> list[Measurement]:
    text = random_tokens(chosen.document, random.Random(1))
    timed = by_turns(
        {
            "with": Candidate(_finished(engine, partial(read, engine, text, SPANS))),
            "without": Candidate(_finished(engine, partial(read, engine, text, 0))),
        },
        chosen.rounds,
    )
    what = f"{chosen.document:,} tokens with {SPANS} spans over without"
    measurements = [ratio(f"{what}, time", timed["with"], timed["without"], "<= 1.15")]
    if engine.runner.model.device.type == "cuda":
        with_, without = (_peak_bytes(partial(read, engine, text, spans)) for spans in (SPANS, 0))
        megabytes = {"with_mb": round(with_ / 1e6), "without_mb": round(without / 1e6)}
        measurements.append(
            Measurement(f"{what}, memory beside weights and cache", with_ / without, "x", details=megabytes)
        )
    return measurements


def _peak_bytes(work: Callable[[], Any]) -> int:
    """Most memory of the device that the work takes on top of what is held before it."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def _prefix(engine: Engine, chosen: Size) -> list[Measurement]:
    document = random_tokens(chosen.document, random.Random(1))
    asked = [document + random_tokens(40, random.Random(2 + seed)) for seed in range(chosen.questions)]

    async def one(text: list[int]) -> tuple[int, ...]:
        limit = len(text) + chosen.answer
        slot = await engine.reserve(limit)
        try:
            return (await engine.run(Request(slot, text, decode=chosen.answer, limit=limit))).answer
        finally:
            engine.release(slot, retain=True)

    def run(share: bool) -> tuple[list[tuple[int, ...]], int]:
        """The answers, and the tokens that were computed for them."""
        engine.scheduler.forget()
        with patch.object(engine.scheduler, "share_prefixes", share):
            before = engine.runner.tokens
            return asyncio.run(in_flight(one, asked, len(asked))), engine.runner.tokens - before

    timed = by_turns(
        {
            "shared": Candidate(_finished(engine, partial(run, True))),
            "alone": Candidate(_finished(engine, partial(run, False))),
        },
        chosen.rounds,
    )
    (shared, computed), (alone, all_tokens) = timed["shared"].result, timed["alone"].result
    what = f"{len(asked)} questions about {chosen.document:,} tokens"
    changed = sum(a != b for a, b in zip(shared, alone, strict=True))
    return [
        ratio(f"{what}: time with shared prefixes over without", timed["shared"], timed["alone"], "<= 0.35"),
        Measurement(f"{what}: tokens computed, over without", computed / all_tokens, "x", "<= 0.22"),
        Measurement(f"{what}: answers that change with shared prefixes", changed, ""),
    ]


def _search_attention(engine: Engine, chosen: Size) -> list[Measurement]:
    work = chosen.searches

    def run(few: int) -> Any:
        with patch.object(span_attention, "FEW", few):
            return run_searches(engine, work, len(work))

    timed = by_turns(
        {
            "log-sum-exp": Candidate(_finished(engine, partial(run, span_attention.FEW)), len(work)),
            "all keys": Candidate(_finished(engine, partial(run, 0)), len(work)),
        },
        chosen.rounds,
    )
    name = "searches, attention to the question from the log-sum-exp over from all keys, time"
    details = {"variable_length": engine.runner.traits.varlen}
    return [ratio(name, timed["log-sum-exp"], timed["all keys"], **details)]


STEPS: dict[str, Callable[[Engine, Size], list[Measurement]]] = {
    "serving": _serving,
    "prefill": prefill,
    "capture": _capture,
    "prefix": _prefix,
    "search_attention": _search_attention,
}
"""What is measured, by name, the most wanted first."""


def _finished(engine: Engine, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work, waited for where the device works by itself."""

    def run() -> Any:
        value = work()
        if engine.runner.model.device.type == "cuda":
            import torch

            torch.cuda.synchronize()
        return value

    return run
