"""Attention over a packed batch: the only code that distinguishes conversations of different lengths.

All linear layers see the new tokens of every row as one sequence (1, T, d), without padding. In each layer
:func:`packed_attention` writes the new keys and values into the KV cache and lets the kernels serve the rows,
each row its own context. A row that watches spans also gets its mean attention to them (mean over heads,
summed over layers), or that of chosen heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from transformers import AttentionInterface

from bench.engine.decode import DecodeOneByOne, DecodeTogether
from bench.engine.kernel import Job, Kernel, Layer, PackedRow, Workspace
from bench.engine.kv_cache import KVCache
from bench.engine.prefill import Blocks, FewerKeys, Fused
from bench.engine.span_attention import NearSpans
from bench.engine.traits import Traits
from bench.engine.varlen import Varlen

NAME = "longdoc_bench_packed"
"""The function's name in transformers' AttentionInterface."""

KERNELS: tuple[type[Kernel], ...] = (
    FewerKeys,
    NearSpans,
    Varlen,
    DecodeTogether,
    DecodeOneByOne,
    Blocks,
    Fused,
)
"""In order of preference: the first that answers a row does so, and the first that records it."""


class Batch:
    """The rows of one forward pass, each with its kernels."""

    def __init__(self, rows: Sequence[PackedRow], kv_cache: KVCache, device: Any, traits: Traits) -> None:
        self.rows, self.kv_cache, self.device, self.traits = rows, kv_cache, device, traits
        positions = [(row.base, p) for row in rows for p in range(row.cached, row.total)]
        self.positions = torch.tensor([p for _, p in positions], device=device)
        self.destinations = torch.tensor([base + p for base, p in positions], device=device)
        space = Workspace(device)
        jobs: dict[type[Kernel], list[Job]] = {kernel: [] for kernel in KERNELS}
        for row in rows:
            answers = next(kernel for kernel in KERNELS if kernel.answers(row, traits))
            if row.watch is None:
                jobs[answers].append(Job(row, answers=True, records=False))
                continue
            records = next(kernel for kernel in KERNELS if kernel.records(row, traits))
            for kernel in {answers, records}:
                jobs[kernel].append(Job(row, answers=kernel is answers, records=kernel is records))
        # Those that give log-sum-exps run before the one that uses them.
        self.kernels = [of(jobs[of], kv_cache, space, traits) for of in reversed(KERNELS) if jobs[of]]
        self.calls = self.windows = 0
        self._elsewhere: dict[Any, Batch] = {}

    def on(self, device: Any) -> Batch:
        """This batch for layers on ``device``; the copy for another device is made on first use."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            watches = [row.watch and replace(row.watch, total=None) for row in self.rows]
            rows = [replace(row, watch=watch) for row, watch in zip(self.rows, watches, strict=True)]
            self._elsewhere[device] = Batch(rows, self.kv_cache, device, self.traits)
        return self._elsewhere[device]

    def settle(self) -> None:
        """Give every row's watch its total over the layers of all devices."""
        for kernel in self.kernels:
            kernel.settle()
        for other in self._elsewhere.values():
            other.settle()
            for row, other_row in zip(self.rows, other.rows, strict=True):
                if row.watch is not None and other_row.recording.total is not None:
                    row.watch.add(other_row.recording.total.to(self.device))


_batches: list[Batch] = []


@contextmanager
def attending_by(name: str, model: Any) -> Iterator[None]:
    """Inside the block ``model`` attends by the function that transformers knows as ``name``."""
    config = model.config
    own = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = own


@contextmanager
def serving(batch: Batch, model: Any) -> Iterator[None]:
    """Inside the block ``model`` attends by :func:`packed_attention`, to the contexts of ``batch``.

    Outside the block its own attention is restored, so that libraries may call it directly.
    """
    _batches.append(batch)
    try:
        with attending_by(NAME, model):
            yield
    finally:
        _batches.pop()
    batch.settle()


class UnservableError(Exception):
    """A layer requires attention that the packed kernels do not support."""


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Serve one layer's attention in a packed batch; returns ((1, T, Hq, hd), None).

    query: (1, Hq, T, hd), key and value: (1, Hkv, T, hd), after the rotary embedding. Raises UnservableError
    for soft-capped or sink attention, and outside a batch.
    """
    if softcap is not None or s_aux is not None:
        kind = "soft-capped" if softcap is not None else "sink"
        raise UnservableError(f"its layers use {kind} attention")
    if not _batches:
        raise UnservableError("it was called outside of the engine while set up for it")
    _batches[-1].calls += 1
    _batches[-1].windows += sliding_window is not None
    batch = _batches[-1].on(query.device)
    cache, index = batch.kv_cache, module.layer_idx
    cache.write(index, batch.destinations, key[0], value[0])
    layer = Layer(
        index=index,
        query=query[0],
        keys=cache.keys[index],
        values=cache.values[index],
        keys_transposed=cache.keys_transposed[index] if cache.keys_transposed else None,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        out=torch.empty_like(query[0].transpose(0, 1), memory_format=torch.contiguous_format),
        lse=query.new_empty(query.shape[1:3] if batch.traits.tiles else 0, dtype=torch.float32),
    )
    for kernel in batch.kernels:
        kernel.run(layer)
    return layer.out[None], None


# Without a mask function on purpose: an implementation that has none gets no mask, as a packed batch needs
# it, whose rows are separated here.
AttentionInterface.register(NAME, packed_attention)
