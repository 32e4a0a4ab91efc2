"""Keys and values of all contexts of a model, in one allocation that is made once.

Every context holds one contiguous range of token positions for its lifetime. Layout per layer:
(tokens, kv_heads, head_dim), so that a context is a view, ranges at equal distances are one strided
view, and pages of 256 tokens are what paged attention kernels on a GPU expect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PAGE = 256
"""Ranges start and end at multiples of this many tokens."""


@dataclass(frozen=True)
class Reservation:
    """Token positions ``[start, start + tokens)`` of the arena."""

    start: int
    tokens: int


class KeyValueArena:
    """Pre-allocated key and value memory with first-fit reservations.

    Memory is zero-filled: a NaN in memory that was never written would leak through a mask.
    """

    def __init__(
        self, *, layers: int, tokens: int, kv_heads: int, head_dim: int, dtype: Any, device: Any
    ) -> None:
        """Allocate :func:`bytes_per_token` for every token; tokens is rounded down to pages.

        device: where keys and values lie; a list says it for each layer.

        On a CPU the pages of the operating system are taken only once they are written, and keys are held a
        second time with the tokens in the last dimension: one query times all keys of a context is three
        times as fast so.
        """
        import torch

        self.tokens = tokens // PAGE * PAGE
        shape = (self.tokens, kv_heads, head_dim)
        devices = device if isinstance(device, list) else [device] * layers
        self.keys = [_zeros(shape, dtype, device) for device in devices]
        self.values = [_zeros(shape, dtype, device) for device in devices]
        turned = (kv_heads, head_dim, self.tokens)
        on_cpu = all(torch.device(device).type == "cpu" for device in devices)
        self.turned_keys = [_zeros(turned, dtype, device) for device in devices] if on_cpu else []
        self._free: list[Reservation] = [Reservation(0, self.tokens)] if self.tokens else []

    @property
    def free_tokens(self) -> int:
        """Positions that nobody holds."""
        return sum(gap.tokens for gap in self._free)

    def reserve(self, tokens: int) -> Reservation | None:
        """The lowest free range of at least ``tokens`` positions, in whole pages; None if there is none."""
        wanted = -(-tokens // PAGE) * PAGE
        for at, gap in enumerate(self._free):
            if gap.tokens >= wanted:
                rest = Reservation(gap.start + wanted, gap.tokens - wanted)
                self._free[at : at + 1] = [rest] if rest.tokens else []
                return Reservation(gap.start, wanted)
        return None

    def release(self, range_: Reservation) -> None:
        """Give a range back; neighbouring gaps are joined."""
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


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, itemsize: int, *, on_cpu: bool) -> int:
    """Bytes that an arena holds of one token over all layers: value and key, on a CPU the key twice."""
    return (3 if on_cpu else 2) * layers * kv_heads * head_dim * itemsize


def _zeros(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    import numpy as np
    import torch

    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are mapped lazily by the operating system; torch's are written at once.
    count = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    return torch.from_numpy(np.zeros(count, np.uint8)).view(dtype).view(shape)
