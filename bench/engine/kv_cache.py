"""Keys and values of all contexts of a model, in one allocation at start-up.

Every context holds one contiguous range of token positions for its lifetime. Layout per layer:
(tokens, kv_heads, head_dim), so that a context is a view, ranges at equal distances are one strided
view, and pages of 256 tokens are what paged attention kernels on a GPU expect.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PAGE = 256
"""Ranges start and end at multiples of this many tokens."""


@dataclass(frozen=True)
class Reservation:
    """Token positions ``[start, start + tokens)`` of the KV cache."""

    start: int
    tokens: int


class Pages:
    """Token positions of a KV cache, reserved first-fit in whole pages."""

    def __init__(self, tokens: int) -> None:
        """tokens: rounded down to pages."""
        self.tokens = tokens // PAGE * PAGE
        self._free: list[Reservation] = [Reservation(0, self.tokens)] if self.tokens else []

    @property
    def free_tokens(self) -> int:
        """Positions that no context holds."""
        return sum(gap.tokens for gap in self._free)

    def reserve(self, tokens: int) -> Reservation | None:
        """The lowest free range of at least ``tokens`` positions, in whole pages; None if there is none."""
        page_tokens = -(-tokens // PAGE) * PAGE
        for at, gap in enumerate(self._free):
            if gap.tokens >= page_tokens:
                rest = Reservation(gap.start + page_tokens, gap.tokens - page_tokens)
                self._free[at : at + 1] = [rest] if rest.tokens else []
                return Reservation(gap.start, page_tokens)
        return None

    def release(self, range_: Reservation) -> None:
        """Free a range; neighbouring gaps are joined."""
        gaps = sorted([*self._free, range_], key=lambda gap: gap.start)
        joined: list[Reservation] = []
        for gap in gaps:
            if joined and joined[-1].start + joined[-1].tokens > gap.start:
                raise ValueError(f"range {range_} was released twice")
            if joined and joined[-1].start + joined[-1].tokens == gap.start:
                joined[-1] = Reservation(joined[-1].start, joined[-1].tokens + gap.tokens)
            else:
                joined.append(gap)
        self._free = joined

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy what ``tokens`` positions of one range hold to another."""


class KVCache(Pages):
    """Pre-allocated key and value memory.

    Memory is zero-filled: a NaN in memory that was never written would leak through a mask.
    """

    def __init__(
        self,
        *,
        layers: int,
        tokens: int,
        kv_heads: int,
        head_dim: int,
        dtype: Any,
        device: Any,
        key_centres: Sequence[Any] = (),
    ) -> None:
        """Allocate :func:`bytes_per_token` for every token; tokens is rounded down to pages.

        device: of keys and values; a list gives one per layer.
        key_centres: subtracted from each layer's keys (:mod:`bench.engine.key_centres`); empty: nothing is.

        On a CPU the operating system allocates a page when it is first written. There a second copy of the
        keys has the tokens in the last dimension, which makes one query times all keys of a context three
        times as fast.
        """
        import torch

        super().__init__(tokens)
        shape = (self.tokens, kv_heads, head_dim)
        devices = device if isinstance(device, list) else [device] * layers
        self.keys = [_zeros(shape, dtype, device) for device in devices]
        self.values = [_zeros(shape, dtype, device) for device in devices]
        transposed = (kv_heads, head_dim, self.tokens)
        on_cpu = all(torch.device(device).type == "cpu" for device in devices)
        self.keys_transposed = [_zeros(transposed, dtype, device) for device in devices] if on_cpu else []
        self.key_centres = key_centres or [None] * layers

    def write(self, layer: int, positions: Any, keys: Any, values: Any) -> None:
        """Store a layer's keys and values, (kv_heads, T, head_dim), at the given positions, (T,)."""
        centre = self.key_centres[layer]
        if centre is not None:
            keys = (keys.float() - centre[:, None]).to(keys.dtype)
        self.keys[layer].index_copy_(0, positions, keys.transpose(0, 1))
        self.values[layer].index_copy_(0, positions, values.transpose(0, 1))
        if self.keys_transposed:
            self.keys_transposed[layer].index_copy_(2, positions, keys.transpose(1, 2))

    def read(self, layer: int, start: int, tokens: int) -> tuple[Any, Any]:
        """Keys and values that were written to these positions, (kv_heads, tokens, head_dim)."""
        held = (pool[layer][start : start + tokens] for pool in (self.keys, self.values))
        keys, values = (part.transpose(0, 1) for part in held)
        centre = self.key_centres[layer]
        return keys if centre is None else (keys.float() + centre[:, None]).to(keys.dtype), values

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy keys and values of ``tokens`` positions from one range to another, in all layers."""
        for pool in (*self.keys, *self.values):
            pool[target : target + tokens] = pool[source : source + tokens]
        for keys in self.keys_transposed:
            keys[:, :, target : target + tokens] = keys[:, :, source : source + tokens]


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, itemsize: int, *, on_cpu: bool) -> int:
    """Bytes of one token over all layers: value and key, on a CPU the key twice."""
    return (3 if on_cpu else 2) * layers * kv_heads * head_dim * itemsize


def _zeros(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    import torch

    count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    if torch.device(device).type != "cpu" or not count:
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Keys with the tokens last are written in short runs far apart: with pages of 2 MB a few tokens
        # would take the memory of all.
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape)
