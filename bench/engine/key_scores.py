"""How much each key of a text matters, by the rules of :mod:`bench.engine.eviction`.

What is forwarded for it is read by the model's own forward, with an attention function that hears what each
layer attends with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from bench.engine.attention import attending_by
from bench.engine.eviction import PIECE, SINKS, Repetition
from bench.errors import ConfigError

NAME = "longdoc_bench_heard"
"""The function's name in transformers' AttentionInterface."""
FUTURE = 512
"""Positions after the text that Expected Attention averages over (kvpress)."""
QUERIES = 256
"""Queries whose probabilities are formed at once."""


@dataclass(frozen=True)
class Heard:
    """What one layer attends with: a pass of one text."""

    layer: int
    query: torch.Tensor
    """(Hq, T, hd), after the rotary embedding."""
    key: torch.Tensor
    """(Hkv, tokens so far, hd)."""
    scale: float


def kvzip(
    model: Any, read: Sequence[tuple[torch.Tensor, torch.Tensor]], repeated: Sequence[Repetition]
) -> NDArray[np.float32]:
    """The most attention that repeating the text pays to each key, shape (layers, key heads, tokens), 0..1.

    read: each layer's keys and values of the text, (key heads, tokens, hd). Among the first tokens, the piece
    and its repetition alone, as kvpress has it. What is before the first piece and the first ``SINKS`` tokens
    are infinite.
    """
    with torch.inference_mode():
        cache = DynamicCache()
        for at, (keys, values) in enumerate(read):
            cache.update(keys[None], values[None], at)
        scores = torch.full((len(read), *read[0][0].shape[:2]), float("inf"))
        for piece in repeated:
            sinks = min(SINKS, piece.start)

            def hear(heard: Heard, piece: Repetition = piece, sinks: int = sinks) -> None:
                most = _most_attention(heard, piece, sinks)
                scores[heard.layer, :, piece.start : piece.end] = most.cpu()

            _forward(model, piece.tokens, cache, hear)
            cache.crop(-len(piece.tokens))
        scores[..., :SINKS] = float("inf")
    return np.asarray(scores.numpy())


def _most_attention(heard: Heard, piece: Repetition, sinks: int) -> torch.Tensor:
    """(key heads, tokens of the piece): the maximum over the queries and the heads that share a key head."""
    key, new = heard.key, len(piece.tokens)
    seen = torch.cat([key[:, :sinks], key[:, piece.start : piece.end], key[:, -new:]], 1).float()
    query = heard.query.float().view(len(key), -1, new, key.shape[-1])
    own = seen.shape[1] - new
    most = torch.zeros(len(key), piece.end - piece.start, device=key.device)
    for at in range(0, new, QUERIES):
        part = query[:, :, at : at + QUERIES]
        scores = part @ seen[:, None].transpose(-1, -2) * heard.scale
        rows = torch.arange(at, at + part.shape[2], device=key.device)[:, None]
        scores[..., own:].masked_fill_(torch.arange(new, device=key.device) > rows, float("-inf"))
        paid = scores.softmax(-1)[..., sinks:own]
        most = torch.maximum(most, paid.amax((1, 2)))
    return most


def expected_attention(model: Any, text: Sequence[int]) -> NDArray[np.float32]:
    """The attention that later queries are expected to pay, times the length of the value.

    Shape (layers, key heads, tokens), 0 or more; the first ``SINKS`` tokens are infinite. Queries are normal,
    with mean and covariance those of the text before the rotary embedding, turned by the mean rotation of the
    next ``FUTURE`` positions. Raises ConfigError for a model whose rotary embedding is not that of all
    dimensions of a head.
    """
    sums: dict[int, torch.Tensor] = {}
    products: dict[int, torch.Tensor] = {}

    def before_rotation(heard: Heard) -> tuple[torch.Tensor, int]:
        end, query = heard.key.shape[1], heard.query
        at = range(end - query.shape[1], end)
        return _turned_back(query.double(), *_rotation(model, at, query)), at.start

    def same(heard: Heard) -> None:
        one, other = before_rotation(heard)[0].unbind(1)
        if float((one - other).abs().max()) > 0.1 * float(one.abs().max()):
            where = f"layer {heard.layer} of {type(model).__name__}"
            raise ConfigError(f"evict=expected: {where} turns queries unlike Llama. Use evict=kvzip.")

    with torch.inference_mode():
        _read(model, [*text[:1]] * 2, same)  # what equal tokens ask for differs by the rotation alone

        def hear(heard: Heard) -> None:
            query, read = before_rotation(heard)
            counted = query[:, max(0, SINKS - read) :]
            at = heard.layer
            sums[at] = sums.get(at, 0) + counted.sum(1)
            products[at] = products.get(at, 0) + counted.transpose(1, 2) @ counted

        cache = _read(model, text, hear)
        counted = max(1, len(text) - SINKS)
        future = range(len(text), len(text) + FUTURE)
        scores = []
        for at, layer in enumerate(cache.layers):
            mean = sums[at] / counted
            covariance = products[at] / counted - mean[:, :, None] * mean[:, None]
            cos, sin = (part.mean(0) for part in _rotation(model, future, mean))
            identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
            turn = identity * cos + _half_turned(identity).T * sin  # mean rotation, (hd, hd)
            scores.append(_expected(layer, mean @ turn.T, turn @ covariance @ turn.T).cpu())
    return np.asarray(torch.stack(scores).float().numpy())


def _expected(layer: Any, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """A layer's scores, (key heads, tokens); mean (Hq, hd) and covariance (Hq, hd, hd) of its queries."""
    keys, values = layer.keys[0].double(), layer.values[0].double()
    kv_heads, tokens, width = keys.shape
    later = keys[:, SINKS:].repeat_interleave(len(mean) // kv_heads, 0)  # (Hq, tokens, hd)
    logits = (later @ mean[..., None])[..., 0] / width**0.5
    logits += ((later @ covariance) * later).sum(-1) / (2 * width)
    shares = logits.softmax(-1).view(kv_heads, -1, later.shape[1]).mean(1)
    first = torch.full((kv_heads, min(SINKS, tokens)), float("inf"), dtype=keys.dtype, device=keys.device)
    return torch.cat([first, shares * values[:, SINKS:].norm(dim=-1)], -1)


def _read(model: Any, text: Sequence[int], hear: Callable[[Heard], None]) -> Any:
    """The cache of the text, which is forwarded in pieces."""
    cache = DynamicCache()
    for start in range(0, len(text), PIECE):
        _forward(model, text[start : start + PIECE], cache, hear)
    return cache


def _forward(model: Any, tokens: Sequence[int], cache: Any, hear: Callable[[Heard], None]) -> None:
    ids = torch.tensor([list(tokens)], device=model.device)
    with _heard(model, hear):
        model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)


def _rotation(model: Any, positions: range, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine at these positions, (positions, hd), fp64."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        raise ConfigError(f"evict=expected: {type(model).__name__} has no rotary embedding. Use evict=kvzip.")
    at = torch.arange(positions.start, positions.stop, device=like.device)[None]
    cos, sin = rotary(torch.zeros(1, dtype=torch.float32, device=like.device), at)
    if cos.shape[-1] != like.shape[-1]:
        raise ConfigError(
            f"evict=expected: {type(model).__name__} turns {cos.shape[-1]} of a head's {like.shape[-1]} "
            "dimensions, and the rule is for all of them. Use evict=kvzip."
        )
    return cos[0].double(), sin[0].double()


def _turned_back(query: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Queries before the rotary embedding."""
    return (query * cos - _half_turned(query) * sin) / (cos**2 + sin**2)


def _half_turned(x: torch.Tensor) -> torch.Tensor:
    """The second half of the last dimension, negated, before the first half."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


_hearing: list[Callable[[Heard], None]] = []


@contextmanager
def _heard(model: Any, hear: Callable[[Heard], None]) -> Iterator[None]:
    """Inside the block ``hear`` gets what each layer of ``model`` attends with."""
    _hearing.append(hear)
    try:
        with attending_by(NAME, model):
            yield
    finally:
        _hearing.pop()


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Torch's fused attention, heard; raises ConfigError for a layer that does not attend to everything."""
    if sliding_window is not None:
        raise ConfigError(
            f"Layer {module.layer_idx} attends to the last {sliding_window} tokens: it drops keys by itself. "
            "Use ratio=0, or a reader whose layers attend to everything."
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _hearing[-1](Heard(module.layer_idx, query[0], key[0], scale))
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    return out, None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
