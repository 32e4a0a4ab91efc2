"""What an attention kernel takes and gives.

A kernel serves some rows of a batch in every layer: it answers a row (writes the outputs of its new tokens),
records a row (adds up its attention to watched spans), or both. Which it takes stands in the kernel, beside
the arithmetic; :data:`bench.engine.attention.KERNELS` has them in order of preference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.engine.heads import Heads
from bench.engine.kv_cache import KVCache
from bench.engine.traits import Traits

CPU_BLOCK_ELEMENTS = 1 << 21
CUDA_BLOCK_ELEMENTS = 1 << 25
"""Most attention probabilities held at once (fp32: 8 MB, a processor's cache; 128 MB)."""

ALIKE = 128
"""Keys of a product in half precision are as many times this: torch compiles one for each number of keys,
which takes longer than a query's product. It divides a page, so that these lie in a row's own."""


@dataclass
class Watch:
    """The spans whose attention a row's tokens record."""

    spans: Sequence[tuple[int, int]]
    """Half-open ranges of positions in the row's context."""
    rows: slice
    """Which of the row's new tokens record it."""
    heads: Heads | None = None
    """The heads that count; None: all."""
    total: Any = None
    """Sum over layers of the sum over the heads that count, divided by a layer's number of heads; shape
    (len(rows), len(spans)), fp32. None before the pass, and where no layer has a head that counts."""

    def add(self, total: torch.Tensor) -> None:
        """Add the attention of a layer, or of the layers of a device."""
        self.total = total if self.total is None else self.total + total


@dataclass
class PackedRow:
    """The new tokens of one context in a batch."""

    first: int
    """Position of its first token in the packed sequence."""
    new: int
    cached: int
    """Tokens of its context that the KV cache already holds."""
    base: int
    """First position of its context in the KV cache."""
    watch: Watch | None = None
    kept: Any = None
    """Of its first tokens, which keys are attended to, (layers, kv_heads, tokens) bool; None: all."""

    @property
    def total(self) -> int:
        """Length of its context after this batch."""
        return self.cached + self.new

    @property
    def recording(self) -> Watch:
        """Its watch; only of a row that has one."""
        assert self.watch is not None
        return self.watch

    @property
    def watching(self) -> range:
        """Those of its new tokens that record."""
        return range(self.new)[self.recording.rows]

    @property
    def records_all(self) -> bool:
        """Whether all its new tokens record all heads."""
        return self.watch is not None and self.watch.heads is None and len(self.watching) == self.new


@dataclass(frozen=True)
class Job:
    """What a kernel does for a row."""

    row: PackedRow
    answers: bool
    records: bool


@dataclass
class Layer:
    """One layer's part of a pass; P: positions of the KV cache."""

    index: int
    query: torch.Tensor
    """(Hq, T, hd), after the rotary embedding."""
    keys: torch.Tensor
    """(P, Hkv, hd)."""
    values: torch.Tensor
    """(P, Hkv, hd)."""
    keys_transposed: torch.Tensor | None
    """(Hkv, hd, P), on a CPU."""
    scale: float
    window: int | None
    """Most positions back that a query attends to."""
    out: torch.Tensor
    """(T, Hq, hd), to be written."""
    lse: torch.Tensor
    """(Hq, T) fp32: log-sum-exp of each query's scores, where the kernel that answers it gives them."""

    def context(self, row: PackedRow) -> tuple[torch.Tensor, torch.Tensor]:
        """A row's keys and values so far, this batch's included, as views (Hkv, total, hd)."""
        end = row.base + row.total
        return self.keys[row.base : end].transpose(0, 1), self.values[row.base : end].transpose(0, 1)

    def context_transposed(self, row: PackedRow, first: int = 0, count: int | None = None) -> torch.Tensor:
        """A row's keys from ``first`` on, all or ``count``, the tokens last, as a view (Hkv, hd, count)."""
        start, count = row.base + first, row.total - first if count is None else count
        if self.keys_transposed is not None:
            return self.keys_transposed.narrow(2, start, count)
        return self.keys.narrow(0, start, count).permute(1, 2, 0)


class Workspace:
    """Masks and memory that the kernels and layers of a pass share, on one device."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.most = CUDA_BLOCK_ELEMENTS if torch.device(device).type == "cuda" else CPU_BLOCK_ELEMENTS
        """Most probabilities formed at once."""
        self._masks: dict[tuple[int, int, int, int | None], torch.Tensor] = {}
        self._memory = torch.empty(0, device=device)
        self._triangle = torch.empty(0, 0, device=device)

    def mask(self, row: PackedRow, start: int, stop: int, keys: int, window: int | None) -> torch.Tensor:
        """Additive causal mask (stop - start, keys) of a row's new tokens ``start..stop``, cached."""
        key = (row.first + start, row.first + stop, keys, window)
        mask = self._masks.get(key)
        if mask is None:
            queries = torch.arange(row.cached + start, row.cached + stop, device=self.device)[:, None]
            mask = additive_mask(queries, torch.arange(keys, device=self.device)[None], window)
            self._masks[key] = mask
        return mask

    def triangle(self, size: int) -> torch.Tensor:
        """Additive causal mask (size, size) of new tokens among themselves."""
        if len(self._triangle) < size:
            self._triangle = torch.full((size, size), float("-inf"), device=self.device).triu_(1)
        return self._triangle[:size, :size]

    def memory(self, count: int, dtype: Any = torch.float32) -> torch.Tensor:
        """Uninitialised memory for ``count`` numbers; valid until the next call."""
        if len(self._memory) < count:
            self._memory = torch.empty(count, device=self.device)
        return self._memory.view(dtype)[:count]


class Kernel:
    """Attention of some rows of a batch; made once a pass, run in every layer."""

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Whether it can write the outputs of the row's new tokens."""
        return False

    @staticmethod
    def records(row: PackedRow, traits: Traits) -> bool:
        """Whether it can record the attention of a row that watches spans."""
        return False

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        self.jobs, self.space, self.traits = jobs, space, traits

    def run(self, layer: Layer) -> None:
        """Do the jobs in one layer."""
        raise NotImplementedError

    def settle(self) -> None:
        """Give watches what was summed up over the layers, where :meth:`run` has not."""


def additive_mask(queries: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    """0 where a query position may attend to a key position, else minus infinity, fp32."""
    allowed = keys <= queries
    if window is not None:
        allowed = allowed & (queries - keys < window)
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, float("-inf"))


def product_into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Batched matrix product into memory of its own format or fp32; of half precision, its rounded product.

    On a processor that one matrix after the other: of keys, which lie token by token, torch's batched product
    in half precision takes twice to twenty times as long (measured with AMX, 700 to 6,000 keys).
    """
    if a.dtype == torch.float32:
        torch.bmm(a, b, out=out)
    elif a.is_cuda:
        out.copy_(torch.bmm(a, b))
    elif a.dtype == out.dtype:
        for left, right, result in zip(a, b, out, strict=True):
            torch.mm(left, right, out=result)
    else:
        for left, right, result in zip(a, b, out, strict=True):
            result.copy_(left @ right)


def by_heads(rows: Iterable[PackedRow]) -> Iterator[list[PackedRow]]:
    """Rows that watch spans, those with the same choice of heads together."""
    groups: dict[Heads | None, list[PackedRow]] = {}
    for row in rows:
        groups.setdefault(row.recording.heads, []).append(row)
    yield from groups.values()
