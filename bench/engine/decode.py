"""Rows of one token: one after the other on a processor, in one call on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from bench.engine.heads import selected_heads
from bench.engine.kernel import (
    ALIKE,
    Job,
    Kernel,
    Layer,
    PackedRow,
    Workspace,
    additive_mask,
    by_heads,
    product_into,
)
from bench.engine.kv_cache import PAGE, KVCache
from bench.engine.traits import Traits

DENSE_SHARE = 0.6
"""Share of a strided range that must be decoding for the range to be used as one view."""


@dataclass
class _KeyAttention:
    """Attention of one-token rows to each key of their contexts, so that spans are looked at once a pass."""

    rows: list[PackedRow]
    sums: torch.Tensor
    """(R, longest context), fp32: over the heads that count and layers."""
    heads: int = 1
    """Of a layer, whether they count or not."""

    @classmethod
    def of(cls, rows: list[PackedRow], device: Any) -> _KeyAttention:
        """Nothing attended to yet."""
        return cls(rows, torch.zeros(len(rows), max((row.total for row in rows), default=0), device=device))

    def settle(self) -> None:
        """Give every row's watch its total: sums of a span as differences of running sums, in fp64."""
        watches = [row.recording for row in self.rows]
        most = max((len(watch.spans) for watch in watches), default=0)
        if not most:
            return
        padded = [[*watch.spans, *[(0, 0)] * (most - len(watch.spans))] for watch in watches]
        starts, ends = torch.tensor(padded, device=self.sums.device).unbind(-1)
        running = F.pad(self.sums.double().cumsum(-1), (1, 0))
        seen = self.sums.shape[1]  # a span may lie in tokens of the prompt that the next pass forwards
        sums = running.gather(1, ends.clamp(max=seen)) - running.gather(1, starts.clamp(max=seen))
        means = (sums / ((ends - starts).clamp_(min=1) * self.heads)).float()
        for at, watch in enumerate(watches):
            watch.add(means[at : at + 1, : len(watch.spans)])


class DecodeOneByOne(Kernel):
    """One-token rows by explicit probabilities, which also are what is recorded.

    There may be many of them in each of many passes: what can be done once for all rows is.
    """

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Rows of one token on a processor."""
        return row.new == 1 and not traits.together

    records = answers

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        super().__init__(sorted(jobs, key=lambda job: job.records), cache, space, traits)
        rows = [job.row for job in self.jobs]
        self._positions = torch.tensor([row.first for row in rows], device=space.device)
        recording = [job.row for job in self.jobs if job.records]
        self._first_recording = len(rows) - len(recording)
        self._attended = _KeyAttention.of(recording, space.device)
        self._longest = max(row.total for row in rows)
        self._views: dict[tuple[int, int, int, torch.dtype], torch.Tensor] = {}

    def run(self, layer: Layer) -> None:
        """Outputs of all rows; the last of them record."""
        kv_heads, width = layer.values.shape[1:]
        heads = len(layer.query)
        queries = (layer.query[:, self._positions] * layer.scale).transpose(0, 1).contiguous()
        outputs = torch.empty_like(queries)
        parts = queries.view(-1, kv_heads, heads // kv_heads, width).unbind()
        results = outputs.view(-1, kv_heads, heads // kv_heads, width).unbind()
        self._attended.heads = heads
        for at, (job, q, o) in enumerate(zip(self.jobs, parts, results, strict=True)):
            row = job.row
            first = 0 if layer.window is None else max(0, row.total - layer.window)
            seen = keys = row.total - first
            if layer.values.dtype == torch.bfloat16 and not first:
                keys = -(-seen // ALIKE) * ALIKE
            # Unrecorded, half precision keeps them as its softmax rounds them, and moves half as much memory.
            dtype = torch.float32 if job.records else layer.values.dtype
            p = self._probabilities(kv_heads, heads // kv_heads, keys, dtype)
            product_into(q, layer.context_transposed(row, first, keys), p)
            if keys > seen:
                p[..., seen:] = float("-inf")
            torch.softmax(p, dim=-1, out=p)
            v = layer.values.narrow(0, row.base + first, keys).transpose(0, 1)
            product_into(p.to(v.dtype), v, o)
            if job.records:
                chosen = selected_heads(row.recording.heads, layer.index, heads)
                if chosen == []:
                    continue
                each = p.view(heads, keys)[:, :seen]
                each = each if chosen is None else each[chosen]
                self._attended.sums[at - self._first_recording, first : row.total] += each.sum(0)
        layer.out.index_copy_(0, self._positions, outputs)

    def settle(self) -> None:
        """Give the rows that record their totals."""
        self._attended.settle()

    def _probabilities(self, kv_heads: int, group: int, seen: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised memory for a row's probabilities; all layers use the same views."""
        key = (kv_heads, group, seen, dtype)
        view = self._views.get(key)
        if view is None:
            memory = self.space.memory(kv_heads * group * (self._longest + ALIKE), dtype)
            view = self._views[key] = memory[: kv_heads * group * seen].view(key[:3])
        return view


@dataclass
class _Group:
    """One-token rows, laid out for one attention call."""

    rows: list[PackedRow]
    queries: torch.Tensor
    """Their positions in the packed sequence, (R,)."""
    keys: int
    """Longest context."""
    start: int = 0
    stride: int = 0
    slots: int = 0
    """Cache view: ``slots`` contexts from ``start`` at distance ``stride``; slots 0: copied instead."""
    places: torch.Tensor | None = None
    """Slot of each row in the view, (R,)."""
    gather: torch.Tensor | None = None
    """Cache positions, (R, keys), where no view serves."""
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[PackedRow], cache_tokens: int, device: Any) -> _Group:
        """The rows as a strided view of the KV cache if their ranges are evenly spaced, else as copies."""
        rows = sorted(rows, key=lambda row: row.base)
        longest = max(row.total for row in rows)
        queries = torch.tensor([row.first for row in rows], device=device)
        steps = [b.base - a.base for a, b in zip(rows, rows[1:], strict=False)]
        stride = min(steps, default=PAGE)
        span = rows[-1].base - rows[0].base
        slots = span // stride + 1 if stride else 0
        even = stride >= longest and all(step % stride == 0 for step in steps)
        inside = rows[-1].base + longest <= cache_tokens
        if len(rows) == 1 or (even and inside and len(rows) >= DENSE_SHARE * slots):
            slots = 1 if len(rows) == 1 else slots
            places = torch.tensor([(row.base - rows[0].base) // stride for row in rows], device=device)
            return cls(rows, queries, longest, rows[0].base, stride, slots, places)
        offsets = torch.arange(longest, device=device)[None]
        bases = torch.tensor([row.base for row in rows], device=device)[:, None]
        last = torch.tensor([row.total - 1 for row in rows], device=device)[:, None]
        gather = bases + torch.minimum(offsets, last)  # never past a range: neighbours own what lies there
        return cls(rows, queries, longest, gather=gather)

    def contexts(self, pool: torch.Tensor) -> torch.Tensor:
        """Keys or values of the contexts, (R or slots, keys, Hkv, hd); a view where one serves."""
        if self.gather is not None:
            return pool[self.gather]
        token, head, element = pool.stride()
        shape = (self.slots, self.keys, *pool.shape[1:])
        return pool.as_strided(shape, (self.stride * token, token, head, element), self.start * token)

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """Values of the rows, (R, ...), at their slots in the view; zeros in the other slots."""
        if self.places is None or len(self.rows) == self.slots:
            return rows
        return rows.new_zeros(self.slots, *rows.shape[1:]).index_copy_(0, self.places, rows)

    def picked(self, slots: torch.Tensor) -> torch.Tensor:
        """The rows, (R, ...), out of the slots of the view."""
        if self.places is None or len(self.rows) == self.slots:
            return slots
        return slots[self.places]

    def mask(self, window: int | None, device: Any) -> torch.Tensor:
        """Additive mask (R or slots, 1, keys); a slot that is not decoding sees its first position only."""
        mask = self.masks.get(window)
        if mask is None:
            positions = torch.tensor([row.total - 1 for row in self.rows], device=device)
            if self.places is not None:
                per_slot = torch.zeros(self.slots, dtype=positions.dtype, device=device)
                positions = per_slot.index_copy_(0, self.places, positions)
            keys = torch.arange(self.keys, device=device)[None]
            mask = self.masks[window] = additive_mask(positions[:, None], keys, window)[:, None]
        return mask


class DecodeTogether(Kernel):
    """One-token rows in one call; contexts at uneven distances are copied for it."""

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Rows of one token on a GPU."""
        return row.new == 1 and traits.together

    records = answers

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        super().__init__(jobs, cache, space, traits)
        tokens, device = cache.tokens, space.device
        plain = [job.row for job in jobs if not job.records]
        self._plain = [_Group.of(plain, tokens, device)] if plain else []
        groups = [_Group.of(rows, tokens, device) for rows in by_heads(j.row for j in jobs if j.records)]
        self._recording = [(group, _KeyAttention.of(group.rows, device)) for group in groups]
        self._answering = any(job.answers for job in jobs)
        """Whether rows that record are answered, too; of one pass all or none."""

    def run(self, layer: Layer) -> None:
        """All rows, those that record by their choice of heads."""
        for group in self._plain:
            self._answer(layer, group)
        for group, attended in self._recording:
            self._record(layer, group, attended)

    def settle(self) -> None:
        """Give the rows that record their totals."""
        for _, attended in self._recording:
            attended.settle()

    def _answer(self, layer: Layer, group: _Group) -> None:
        """Query heads of one key head share a call row (GQA)."""
        heads, _, width = layer.query.shape
        kv_heads = layer.keys.shape[1]
        q = group.spread(layer.query[:, group.queries].transpose(0, 1))
        q = q.reshape(-1, kv_heads, heads // kv_heads, width)
        k, v = (group.contexts(pool).transpose(1, 2) for pool in (layer.keys, layer.values))
        mask = group.mask(layer.window, self.space.device)[:, None].to(q.dtype)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=layer.scale)
        layer.out.index_copy_(0, group.queries, group.picked(o.reshape(len(q), heads, width)))

    def _record(self, layer: Layer, group: _Group, attended: _KeyAttention) -> None:
        """With explicit probabilities, of the heads that count alone; a matrix product per key head."""
        heads, (kv_heads, width) = len(layer.query), layer.keys.shape[1:]
        attended.heads = heads
        chosen = selected_heads(group.rows[0].recording.heads, layer.index, heads)
        if chosen is not None and self._answering:
            self._answer(layer, group)
        if chosen == []:
            return
        key_heads = list(range(kv_heads))
        q = layer.query[:, group.queries].transpose(0, 1) * layer.scale  # (R, Hq, hd)
        if chosen is not None:
            q, key_heads = q[:, chosen], [head * kv_heads // heads for head in chosen]
        formed = q.shape[1]
        q = group.spread(q)
        q = q.reshape(-1, len(key_heads), formed // len(key_heads), width)
        k = group.contexts(layer.keys)
        p = self.space.memory(len(q) * formed * group.keys).view(len(key_heads), len(q), -1, group.keys)
        for at, head in enumerate(key_heads):
            product_into(q[:, at], k[:, :, head].transpose(1, 2), p[at])
        p += group.mask(layer.window, self.space.device)
        torch.softmax(p, dim=-1, out=p)
        if chosen is None and self._answering:
            v = group.contexts(layer.values)
            each = [torch.bmm(p[head].to(v.dtype), v[:, :, head]) for head in range(kv_heads)]
            o = torch.stack(each, 1).reshape(len(q), heads, width)
            layer.out.index_copy_(0, group.queries, group.picked(o))
        attended.sums += group.picked(p.sum(0).sum(1))
