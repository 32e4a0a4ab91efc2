"""Models with random weights, and searches of drawn tokens: what a benchmark of the engine alone needs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.engine.engine import Engine
from bench.engine.scheduler import Request
from performance.measuring import one_thread

T = TypeVar("T")
S = TypeVar("S")

TINY = "tiny"
"""The shipped model."""
MEDIUM = "random Llama, 26 M parameters"
"""Width 512, 6 layers, 8 query and 4 key heads of 64, vocabulary 8,000; random weights."""
SMALL = "random Llama, 6 M parameters"
"""Width 256, 4 layers, 8 query and 2 key heads of 32, vocabulary 4,000; random weights."""
ROOM = 8192
"""Positions of every model here."""


def model(name: str, attention: str = "sdpa") -> Any:
    """A transformers model in fp32, in eval mode, for one thread."""
    one_thread()
    if name == TINY:
        from bench.models.loader import load_causal
        from bench.models.spec import resolve

        tiny = load_causal(resolve(TINY, dtype="float32", device="cpu"))
        tiny.set_attn_implementation(attention)
        return tiny
    width, layers, kv_heads, ffn, vocab = {
        MEDIUM: (512, 6, 4, 1408, 8000),
        SMALL: (256, 4, 2, 896, 4000),
    }[name]
    shape = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
    }
    return random_llama(shape, attention)


def random_llama(shape: Mapping[str, Any], attention: str = "sdpa") -> Any:
    """A Llama with random weights on torch's current default device and dtype, in eval mode."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    defaults = {"max_position_embeddings": ROOM, "initializer_range": 0.05, "attn_implementation": attention}
    model: Any = LlamaForCausalLM(LlamaConfig(**{**defaults, **shape}))
    return model.eval().requires_grad_(False)


def random_tokens(count: int, rng: random.Random) -> list[int]:
    """Ordinary tokens; every vocabulary here has more than these."""
    return [rng.randrange(300, 2000) for _ in range(count)]


async def in_flight(work: Callable[[S], Awaitable[T]], items: Iterable[S], most: int) -> list[T]:
    """What ``work`` makes of every item, in order, with at most so many under way at a time."""
    queue, results = enumerate(items), dict[int, T]()

    async def worker() -> None:
        for at, item in queue:
            results[at] = await work(item)

    await asyncio.gather(*(worker() for _ in range(most)))
    return [results[at] for at in sorted(results)]


@dataclass(frozen=True)
class Search:
    """A question as PECAN asks it, in tokens: opening, nodes each with a probe, instruction, answer."""

    opening: list[int]
    nodes: list[list[int]]
    probe: list[int]
    instruction: list[int]
    answer: int


def searches(
    count: int, *, opening: int = 300, steps: int = 20, node: int = 25, answer: int = 12
) -> list[Search]:
    """Drawn searches of this shape, a fifth more or less; probes of 10 tokens, an instruction of 15."""
    drawn = []
    for seed in range(count):
        rng = random.Random(seed)

        def about(n: int, rng: random.Random = rng) -> list[int]:
            return random_tokens(n + rng.randrange(-(n // 5), n // 5 + 1), rng)

        nodes = [about(node) for _ in range(steps)]
        drawn.append(Search(about(opening), nodes, random_tokens(10, rng), random_tokens(15, rng), answer))
    return drawn


QUESTION = (10, 40)
"""Where the question stands in a drawn search; every node records its attention to it."""
CHOICES = (5, 6)


@dataclass(frozen=True)
class Searched:
    """What a drawn search came to."""

    logits: tuple[tuple[float, ...], ...]
    """Of the two choices, at each step."""
    answer: tuple[int, ...]


def run_searches(engine: Engine, work: Sequence[Search], most: int) -> list[Searched]:
    """Drawn searches on the engine, at most so many at a time."""

    async def search(one: Search) -> Searched:
        needed = (
            len(one.opening) + sum(map(len, one.nodes)) + len(one.probe) + len(one.instruction) + one.answer
        )
        slot = await engine.reserve(needed)
        try:
            results = [await engine.run(Request(slot, one.opening, one.probe, CHOICES))]
            for node in one.nodes:
                request = Request(slot, node, one.probe, CHOICES, watched=[QUESTION], watch_from=slot.length)
                results.append(await engine.run(request))
            last = await engine.run(Request(slot, one.instruction, decode=one.answer, limit=needed))
            return Searched(tuple(result.logits for result in results), last.answer)
        finally:
            engine.release(slot)

    return asyncio.run(in_flight(search, work, most))
