"""Attention over a packed batch: the only code that distinguishes conversations of different lengths.

All linear layers see the new tokens of every row as one sequence (1, T, d), without padding. This
function is called by each layer with query (1, Hq, T, hd), key and value (1, Hkv, T, hd) after the
rotary embedding; it writes keys and values into the KV cache and lets every row attend to its own context.

On a CPU rows are served one by one. On a GPU, where a call costs more than its work, rows of one token
(decoding) are served together, and all rows by torch's variable-length attention in half precision. A row
that watches spans also gets its mean attention to them (mean over heads, summed over layers), or that of
chosen heads, and then a layer that has none of them forms no probabilities for it: memory is tokens x spans,
never tokens x tokens, since the probabilities are formed for a block of queries at a time, in memory that the
blocks and layers of a pass share. On a CPU such a block stays in a core's cache, which makes it, but for AMX,
about as fast as the fused kernel, whose probabilities nobody sees. Where variable-length attention serves,
and in bfloat16 on AMX, spans that lie close together are left to :mod:`bench.engine.span_attention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from transformers import AttentionInterface

from bench.engine.heads import Heads, counted
from bench.engine.kv_cache import PAGE, KVCache
from bench.engine.span_attention import SpanAttention, Watching

NAME = "longdoc_bench_packed"
"""The function's name in transformers' AttentionInterface."""

CPU_BLOCK_ELEMENTS = 1 << 19
CUDA_BLOCK_ELEMENTS = 1 << 25
"""Most attention probabilities of a row held at once while spans are watched (fp32: 2 MB, a core's cache, and
128 MB)."""

MASKED_QUERIES = 512
"""Most queries of a row in one call of the fused kernel with a mask, on a CPU."""

DENSE_SHARE = 0.6
"""Share of a strided range that must be decoding for the range to be used as one view."""


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
    matrix: Any = None
    """Averaging matrix of a row of several tokens; see :func:`_averaging`."""


@dataclass
class Row:
    """The new tokens of one context in a batch."""

    first: int
    """Position of its first token in the packed sequence."""
    new: int
    cached: int
    """Tokens of its context that the KV cache already holds."""
    base: int
    """First position of its context in the KV cache."""
    watch: Watch | None = None

    @property
    def total(self) -> int:
        """Length of its context after this batch."""
        return self.cached + self.new

    @property
    def heads(self) -> Heads | None:
        """The heads whose attention counts in what it watches; None: all, or it watches nothing."""
        return None if self.watch is None else self.watch.heads

    @property
    def watching(self) -> Watching:
        """Its tokens that watch spans; it has a watch."""
        assert self.watch is not None
        start, stop, _ = self.watch.rows.indices(self.new)
        return Watching(self.first + start, stop - start, self.cached + start, self.base, self.watch.spans)


@dataclass
class _Decoding:
    """One-token rows, laid out for one attention call."""

    rows: list[Row]
    queries: torch.Tensor
    """Their positions in the packed sequence, (R,)."""
    keys: int
    """Longest context."""
    start: int
    stride: int
    slots: int
    """Cache view: ``slots`` contexts from ``start`` at distance ``stride``; slots 0: copied instead."""
    places: torch.Tensor | None
    """Slot of each row in the view, (R,)."""
    gather: torch.Tensor | None
    """Cache positions, (R, keys), where no view serves."""
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)


@dataclass
class _Attended:
    """Attention of one-token rows that watch spans to each key of their contexts."""

    rows: list[Row]
    sums: torch.Tensor
    """(R, longest context), fp32: over the heads that count and layers, so that spans are looked at once a
    pass."""
    heads: int = 1
    """Of a layer, whether they count or not."""

    @classmethod
    def of(cls, rows: list[Row], device: Any) -> _Attended:
        """Nothing attended to yet."""
        return cls(rows, torch.zeros(len(rows), max(row.total for row in rows), device=device))

    def settle(self) -> None:
        """Give every row's watch its total: sums of a span as differences of running sums, in fp64."""
        watches = [row.watch for row in self.rows if row.watch is not None]
        most = max(len(watch.spans) for watch in watches)
        padded = [[*watch.spans, *[(0, 0)] * (most - len(watch.spans))] for watch in watches]
        starts, ends = torch.tensor(padded, device=self.sums.device).unbind(-1)
        running = F.pad(self.sums.double().cumsum(-1), (1, 0))
        seen = self.sums.shape[1]  # a span may lie in tokens of the prompt that the next pass forwards
        sums = running.gather(1, ends.clamp(max=seen)) - running.gather(1, starts.clamp(max=seen))
        means = (sums / ((ends - starts).clamp_(min=1) * self.heads)).float()
        for at, watch in enumerate(watches):
            watch.total = means[at : at + 1, : len(watch.spans)]


class Batch:
    """The rows of one forward pass, laid out for its layers."""

    def __init__(self, rows: Sequence[Row], kv_cache: KVCache, device: Any, *, varlen: bool) -> None:
        """varlen: serve outputs by torch's variable-length attention (CUDA, half precision)."""
        self.rows, self.kv_cache, self.device, self.varlen = rows, kv_cache, device, varlen
        self.positions = torch.tensor(
            [p for row in rows for p in range(row.cached, row.total)], device=device
        )
        self.destinations = torch.tensor(
            [row.base + p for row in rows for p in range(row.cached, row.total)], device=device
        )
        watched = [row for row in rows if row.watch is not None]
        tiles = on_tiles(device, kv_cache.keys[0].dtype)
        fused = [(row, (varlen or (tiles and row.new > 1)) and row.watching.near) for row in watched]
        near, watched = (
            [row for row, is_near in fused if is_near],
            [row for row, is_near in fused if not is_near],
        )
        most = CPU_BLOCK_ELEMENTS if tiles else CUDA_BLOCK_ELEMENTS
        self.near = [
            (alike, SpanAttention([row.watching for row in alike], device, most)) for alike in _by_heads(near)
        ]
        self.wide = [row for row in rows if row.new > 1 and row.watch is None]
        self.watching_wide = [row for row in watched if row.new > 1]
        for row in self.watching_wide:
            assert row.watch is not None
            row.watch.matrix = _averaging(row.watch.spans, row.total, device)
        plain = [] if varlen else [row for row in rows if row.new == 1 and row.watch is None]
        watching = [row for row in watched if row.new == 1]
        together = decodes_together(device)
        self.decoding = _lay_out(plain, kv_cache.tokens, device) if plain and together else None
        self.single = [] if together else [*plain, *watching]
        self.first_watching = len(plain)
        self.single_positions = torch.tensor([row.first for row in self.single], device=device)
        groups = _by_heads(watching) if together else []
        laid_out = [_lay_out(alike, kv_cache.tokens, device) for alike in groups]
        self.watching_decode = [(group, _Attended.of(group.rows, device)) for group in laid_out]
        self.attended = _Attended.of(watching, device) if watching and not together else None
        self.calls = 0
        self._masks: dict[tuple[int, int, int | None], torch.Tensor] = {}
        self._elsewhere: dict[Any, Batch] = {}
        self._scratch = torch.empty(0, device=device)
        self._views: dict[tuple[int, int, int], torch.Tensor] = {}
        self._triangle = torch.empty(0, 0, device=device)
        if varlen:
            self.cumulative = torch.tensor(
                [0, *(row.first + row.new for row in rows)], device=device, dtype=torch.int32
            )
            self.used = torch.tensor([row.total for row in rows], device=device, dtype=torch.int32)
            pages = max(-(-row.total // PAGE) for row in rows)
            starts = torch.tensor([row.base // PAGE for row in rows], device=device)
            table = starts[:, None] + torch.arange(pages, device=device)[None]
            self.pages = table.clamp_(max=kv_cache.tokens // PAGE - 1).to(torch.int32)
            self.longest_query = max(row.new for row in rows)
            self.longest_context = max(row.total for row in rows)

    def on(self, device: Any) -> Batch:
        """This batch for layers on ``device``; the copy for another device is made on first use."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            watches = [row.watch and replace(row.watch, total=None, matrix=None) for row in self.rows]
            rows = [replace(row, watch=watch) for row, watch in zip(self.rows, watches, strict=True)]
            self._elsewhere[device] = Batch(rows, self.kv_cache, device, varlen=self.varlen)
        return self._elsewhere[device]

    def settle(self) -> None:
        """Give every row's watch its total over the layers of all devices."""
        if self.attended is not None:
            self.attended.settle()
        for _, attended in self.watching_decode:
            attended.settle()
        for rows, near in self.near:
            for row, total in zip(rows, near.totals(), strict=True):
                assert row.watch is not None
                row.watch.total = total
        for other in self._elsewhere.values():
            other.settle()
            for row, other_row in zip(self.rows, other.rows, strict=True):
                watch = other_row.watch
                if row.watch is not None and watch is not None and watch.total is not None:
                    total = watch.total.to(self.device)
                    row.watch.total = total if row.watch.total is None else row.watch.total + total

    def mask(self, row: Row, start: int, stop: int, keys: int, window: int | None) -> torch.Tensor:
        """Additive causal mask (stop - start, keys) of a row's new tokens ``start..stop``, cached."""
        key = (row.first + start, row.first + stop, window)
        mask = self._masks.get(key)
        if mask is None:
            queries = torch.arange(row.cached + start, row.cached + stop, device=self.device)[:, None]
            mask = _additive(queries, torch.arange(keys, device=self.device)[None], window)
            self._masks[key] = mask
        return mask

    def triangle(self, size: int) -> torch.Tensor:
        """Additive causal mask (size, size) of new tokens among themselves."""
        if len(self._triangle) < size:
            self._triangle = torch.full((size, size), float("-inf"), device=self.device).triu_(1)
        return self._triangle[:size, :size]

    def probabilities(self, kv_heads: int, group: int, seen: int) -> torch.Tensor:
        """Uninitialised memory for a row's probabilities, as :meth:`scratch`; layers use the same views."""
        shape = (kv_heads, group, seen)
        view = self._views.get(shape)
        if view is None:
            needed = kv_heads * group * max(row.total for row in self.single)
            view = self._views[shape] = self.scratch(needed)[: kv_heads * group * seen].view(shape)
        return view

    def scratch(self, count: int) -> torch.Tensor:
        """Uninitialised memory for ``count`` fp32 numbers; valid until the next call."""
        if len(self._scratch) < count:
            self._scratch = torch.empty(count, device=self.device)
        return self._scratch[:count]


_batches: list[Batch] = []


@contextmanager
def serving(batch: Batch, model: Any) -> Iterator[None]:
    """Inside the block ``model`` attends by :func:`packed_attention`, to the contexts of ``batch``.

    Outside the block its own attention is restored, so that libraries may call it directly.
    """
    config = model.config
    own = config._attn_implementation
    _batches.append(batch)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = own
        _batches.pop()
    batch.settle()


class UnservableError(Exception):
    """A layer requires attention that the packed kernel does not support."""


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

    Raises UnservableError for soft-capped or sink attention, and outside a batch.
    """
    if softcap is not None or s_aux is not None:
        kind = "soft-capped" if softcap is not None else "sink"
        raise UnservableError(f"its layers use {kind} attention")
    if not _batches:
        raise UnservableError("it was called outside of the engine while set up for it")
    _batches[-1].calls += 1
    batch = _batches[-1].on(query.device)
    layer = module.layer_idx
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    keys, values = batch.kv_cache.keys[layer], batch.kv_cache.values[layer]
    batch.kv_cache.write(layer, batch.destinations, key[0], value[0])
    out = torch.empty_like(query[0].transpose(0, 1), memory_format=torch.contiguous_format)  # (T, Hq, hd)
    lse = None
    if batch.varlen:
        lse = _varlen(batch, query, keys, values, scale, sliding_window, out)
    else:
        if batch.decoding is not None:
            _decode(batch.decoding, query, keys, values, scale, sliding_window, out)
        if batch.single:
            _single(batch, layer, query, scale, sliding_window, out)
        for row in batch.wide:
            _wide(batch, layer, row, query, scale, sliding_window, out)
        if batch.near:
            lse = _wide_near(batch, layer, query, scale, sliding_window, out)
    for rows, near in batch.near:
        assert lse is not None
        near.add(query[0], keys, lse, scale, sliding_window, counted(rows[0].heads, layer, query.shape[1]))
    outputs = None if batch.varlen else out
    for group, attended in batch.watching_decode:
        _decode_watching(batch, layer, group, attended, query, keys, values, scale, sliding_window, outputs)
    for row in batch.watching_wide:
        _wide_watching(batch, layer, row, query, scale, sliding_window, outputs)
    return out[None], None


def register() -> None:
    """Register the function with transformers, without a mask function on purpose.

    An implementation without mask function gets no mask, as a packed batch needs it: the rows are
    separated here.
    """
    AttentionInterface.register(NAME, packed_attention)


def _by_heads(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that watch spans, those with the same choice of heads together."""
    groups: dict[Heads | None, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.heads, []).append(row)
    return list(groups.values())


def _averaging(spans: Sequence[tuple[int, int]], positions: int, device: Any) -> torch.Tensor:
    """(positions, spans): 1/len(span) inside a span, else 0; an empty span is 0 throughout."""
    starts, ends = torch.tensor(spans, device=device).reshape(-1, 2).unbind(-1)
    at = torch.arange(positions, device=device)[:, None]
    return ((at >= starts) & (at < ends)) / (ends - starts).clamp_(min=1).float()


def _additive(queries: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    """0 where a query position may attend to a key position, else minus infinity, fp32."""
    allowed = keys <= queries
    if window is not None:
        allowed = allowed & (queries - keys < window)
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, float("-inf"))


def decodes_together(device: Any) -> bool:
    """Whether one-token rows share one call; contexts at uneven distances are copied for it."""
    return torch.device(device).type == "cuda"


def on_tiles(device: Any, dtype: torch.dtype) -> bool:
    """Whether a processor multiplies this format on AMX tiles."""
    return (
        torch.device(device).type == "cpu"
        and dtype == torch.bfloat16
        and bool(torch.cpu._is_amx_tile_supported())
    )


def _lay_out(rows: Sequence[Row], cache_tokens: int, device: Any) -> _Decoding:
    """One-token rows as a strided view of the KV cache if their ranges are evenly spaced, else as copies."""
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
        return _Decoding(list(rows), queries, longest, rows[0].base, stride, slots, places, None)
    offsets = torch.arange(longest, device=device)[None]
    bases = torch.tensor([row.base for row in rows], device=device)[:, None]
    last = torch.tensor([row.total - 1 for row in rows], device=device)[:, None]
    gather = bases + torch.minimum(offsets, last)  # never past a range: neighbours own what lies there
    return _Decoding(list(rows), queries, longest, 0, 0, 0, None, gather)


def _decoding_mask(group: _Decoding, window: int | None, device: Any) -> torch.Tensor:
    """Additive mask (R or slots, 1, keys); a slot that is not decoding sees its first position only."""
    mask = group.masks.get(window)
    if mask is None:
        positions = torch.tensor([row.total - 1 for row in group.rows], device=device)
        if group.places is not None:
            per_slot = torch.zeros(group.slots, dtype=positions.dtype, device=device)
            positions = per_slot.index_copy_(0, group.places, positions)
        keys = torch.arange(group.keys, device=device)[None]
        mask = _additive(positions[:, None], keys, window)[:, None]
        group.masks[window] = mask
    return mask


def _decode(
    group: _Decoding,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor,
) -> None:
    """All one-token rows in one call; query heads of one key head share a call row (GQA)."""
    _, heads, _, width = query.shape
    kv_heads = keys.shape[1]
    q = query[0, :, group.queries].transpose(0, 1)  # (R, Hq, hd)
    q = _spread(group, q).reshape(-1, kv_heads, heads // kv_heads, width)
    k, v = (_contexts(group, pool).transpose(1, 2) for pool in (keys, values))
    mask = _decoding_mask(group, window, query.device)[:, None].to(q.dtype)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).reshape(len(q), heads, width)
    out.index_copy_(0, group.queries, _picked(group, o))


def _decode_watching(
    batch: Batch,
    layer: int,
    group: _Decoding,
    attended: _Attended,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor | None,
) -> None:
    """All one-token rows that watch spans, with explicit probabilities; a matrix product per key head.

    If not all heads of the layer count, only theirs are formed. ``out`` None: the outputs are computed
    elsewhere; only the spans are recorded.
    """
    heads, (kv_heads, width) = query.shape[1], keys.shape[1:]
    attended.heads = heads
    chosen = counted(group.rows[0].heads, layer, heads)
    if chosen is not None and out is not None:
        _decode(group, query, keys, values, scale, window, out)
        out = None
    if chosen == []:
        return
    key_heads = list(range(kv_heads))
    q = query[0, :, group.queries].transpose(0, 1) * scale
    if chosen is not None:
        q, key_heads = q[:, chosen], [head * kv_heads // heads for head in chosen]
    formed = q.shape[1]
    q = _spread(group, q)
    q = q.reshape(-1, len(key_heads), formed // len(key_heads), width)
    k = _contexts(group, keys)
    p = batch.scratch(len(q) * formed * group.keys).view(len(key_heads), len(q), -1, group.keys)
    for at, head in enumerate(key_heads):
        _product(q[:, at], k[:, :, head].transpose(1, 2), p[at])
    p += _decoding_mask(group, window, query.device)
    torch.softmax(p, dim=-1, out=p)
    if out is not None:
        v = _contexts(group, values)
        each = [torch.bmm(p[head].to(v.dtype), v[:, :, head]) for head in range(kv_heads)]
        o = torch.stack(each, 1).reshape(len(q), heads, width)
        out.index_copy_(0, group.queries, _picked(group, o))
    attended.sums += _picked(group, p.sum(0).sum(1))


def _single(
    batch: Batch, layer: int, query: torch.Tensor, scale: float, window: int | None, out: torch.Tensor
) -> None:
    """Rows of one token, one after the other, with explicit probabilities; the last of them watch spans.

    There may be many of them in each of many passes: what can be done once for all rows is.
    """
    values = batch.kv_cache.values[layer]
    kv_heads, width = values.shape[1:]
    heads = query.shape[1]
    queries = (query[0, :, batch.single_positions] * scale).transpose(0, 1).contiguous()
    outputs = torch.empty_like(queries)
    exact = values.dtype == torch.float32
    parts = queries.view(-1, kv_heads, heads // kv_heads, width).unbind()
    results = outputs.view(-1, kv_heads, heads // kv_heads, width).unbind()
    for at, (row, q, o) in enumerate(zip(batch.single, parts, results, strict=True)):
        first = 0 if window is None else max(0, row.total - window)
        seen = row.total - first
        p = batch.probabilities(kv_heads, heads // kv_heads, seen)
        _product(q, _keys_transposed(batch, layer, row, first), p)
        torch.softmax(p, dim=-1, out=p)
        v = values.narrow(0, row.base + first, seen).transpose(0, 1)
        if exact:
            torch.bmm(p, v, out=o)
        else:
            o.copy_(torch.bmm(p.to(v.dtype), v))
        watching = at - batch.first_watching
        if watching >= 0:
            assert batch.attended is not None
            batch.attended.heads = heads
            chosen = counted(row.heads, layer, heads)
            if chosen == []:
                continue
            each = p.view(heads, seen)
            each = each if chosen is None else each[chosen]
            batch.attended.sums[watching, first : row.total] += each.sum(0)
    out.index_copy_(0, batch.single_positions, outputs)


def _contexts(group: _Decoding, pool: torch.Tensor) -> torch.Tensor:
    """Keys or values of a group's contexts, (R or slots, keys, Hkv, hd); a view where one serves."""
    if group.gather is not None:
        return pool[group.gather]
    token, head, element = pool.stride()
    shape = (group.slots, group.keys, *pool.shape[1:])
    return pool.as_strided(shape, (group.stride * token, token, head, element), group.start * token)


def _spread(group: _Decoding, rows: torch.Tensor) -> torch.Tensor:
    """Values of a group's rows, (R, ...), at their slots in its view; zeros in the other slots."""
    if group.places is None or len(group.rows) == group.slots:
        return rows
    return rows.new_zeros(group.slots, *rows.shape[1:]).index_copy_(0, group.places, rows)


def _picked(group: _Decoding, slots: torch.Tensor) -> torch.Tensor:
    """The rows of a group, (R, ...), out of the slots of its view."""
    if group.places is None or len(group.rows) == group.slots:
        return slots
    return slots[group.places]


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Batched matrix product into fp32 memory; of half precision, its rounded product.

    On a processor that one matrix after the other: of keys, which lie token by token, torch's batched product
    in half precision takes twice to twenty times as long (measured with AMX, 700 to 6,000 keys).
    """
    if a.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    elif a.is_cuda:
        out.copy_(torch.bmm(a, b))
    else:
        for left, right, product in zip(a, b, out, strict=True):
            product.copy_(left @ right)


def _wide(
    batch: Batch,
    layer: int,
    row: Row,
    query: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor,
) -> None:
    """One row of several new tokens: fused attention over a view of its context.

    In half precision on a CPU by blocks, unless the fused kernel multiplies on AMX tiles: measured with 512
    new tokens and up to 1,536 before them, it is 2 to 3 times as fast with these, and a third as fast with
    AVX512-BF16 alone.
    """
    rounds = query.device.type == "cpu" and query.dtype != torch.float32
    if rounds and not on_tiles(query.device, query.dtype):
        _by_blocks(batch, layer, row, query, scale, window, out)
        return
    for part, q, k, v, mask in _by_queries(batch, layer, row, query, window):
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        out[part] = o[0].transpose(0, 1)


def _wide_near(
    batch: Batch, layer: int, query: torch.Tensor, scale: float, window: int | None, out: torch.Tensor
) -> torch.Tensor:
    """Rows of several new tokens that watch spans near each other, on AMX tiles.

    Returns the log-sum-exp of their queries' scores, (Hq, T), fp32; of other rows it is undefined.
    """
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    lse = query.new_empty(query.shape[1:3], dtype=torch.float32)
    for row in (row for rows, _ in batch.near for row in rows):
        for part, q, k, v, mask in _by_queries(batch, layer, row, query, window):
            o, sums = fused(q, k, v, 0.0, mask is None, attn_mask=mask, scale=scale)
            out[part], lse[:, part] = o[0].transpose(0, 1), sums[0]
    return lse


def _by_queries(
    batch: Batch, layer: int, row: Row, query: torch.Tensor, window: int | None
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """A row's place in the pass, queries, keys, values, (1, heads, tokens, hd), and mask, in pieces.

    In one piece without a mask (None) where it is plainly causal; else, on a CPU, some queries at a time, so
    that their mask stays small.
    """
    from_start = row.cached == 0 and (window is None or row.total <= window)
    step = row.new if from_start or query.is_cuda else MASKED_QUERIES
    keys, values = (_context(row, pool[layer]) for pool in (batch.kv_cache.keys, batch.kv_cache.values))
    for start in range(0, row.new, step):
        stop = min(start + step, row.new)
        part, seen = slice(row.first + start, row.first + stop), row.cached + stop
        mask = None if from_start else batch.mask(row, start, stop, seen, window).to(query.dtype)
        yield part, query[:, :, part], keys[:, :, :seen], values[:, :, :seen], mask


def _wide_watching(
    batch: Batch,
    layer: int,
    row: Row,
    query: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor | None,
) -> None:
    """A row of several new tokens that watches spans.

    ``out`` None: the outputs are computed elsewhere; only the spans are recorded.
    """
    assert row.watch is not None
    heads = query.shape[1]
    start, stop, _ = row.watch.rows.indices(row.new)
    chosen = counted(row.heads, layer, heads)
    if out is not None and (chosen is not None or (start, stop) != (0, row.new)):
        _wide(batch, layer, row, query, scale, window, out)
        out = None
    if chosen == []:
        return
    means = _by_blocks(batch, layer, row, query, scale, window, out, (start, stop), chosen, row.watch.matrix)
    total = torch.cat(means) if len(means) != 1 else means[0]
    if chosen is not None:
        total *= len(chosen) / heads
    row.watch.total = total if row.watch.total is None else row.watch.total + total


def _by_blocks(
    batch: Batch,
    layer: int,
    row: Row,
    query: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor | None,
    tokens: tuple[int, int] | None = None,
    chosen: list[int] | None = None,
    matrix: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Attention of a row's new tokens by explicit probabilities, a block of queries at a time.

    Keys after a block are left out, and heads other than ``chosen`` (None: all). tokens: which of the new
    tokens (None: all). With the averaging ``matrix`` of spans, returns each block's attention to them,
    (block, spans), mean over these heads.
    """
    keys, values = batch.kv_cache.keys[layer], batch.kv_cache.values[layer]
    heads, kv_heads = query.shape[1], keys.shape[1]
    start, stop = tokens or (0, row.new)
    scaled = query[0, :, row.first : row.first + row.new] * scale  # (Hq, n, hd)
    k, v = _keys_transposed(batch, layer, row), _context(row, values)[0]
    if chosen is not None:
        scaled, k = scaled[chosen], k[[head * kv_heads // heads for head in chosen]]
        heads = kv_heads = len(chosen)
    most = CUDA_BLOCK_ELEMENTS if query.is_cuda else CPU_BLOCK_ELEMENTS
    step = max(1, most // (heads * row.total))
    memory = batch.scratch(heads * min(step, stop - start) * row.total)
    means = []
    for a in range(start, stop, step):
        b = min(a + step, stop)
        seen = row.cached + b
        p = memory[: heads * (b - a) * seen].view(heads, b - a, seen)
        by_key_head = p.view(kv_heads, -1, seen)
        _product(scaled[:, a:b].reshape(kv_heads, -1, scaled.shape[-1]), k[:, :, :seen], by_key_head)
        if window is None:
            p[:, :, row.cached + a :] += batch.triangle(b - a)
        else:
            p += batch.mask(row, a, b, seen, window)
        torch.softmax(p, dim=-1, out=p)
        if matrix is not None:
            means.append(p.mean(0) @ matrix[:seen])
        if out is not None:
            o = torch.bmm(by_key_head.to(v.dtype), v[:, :seen]).view(heads, b - a, -1)
            out[row.first + a : row.first + b] = o.transpose(0, 1)
    return means


def _varlen(
    batch: Batch,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    window: int | None,
    out: torch.Tensor,
) -> torch.Tensor:
    """All rows in one launch: torch's variable-length attention over pages of the KV cache.

    Returns the log-sum-exp of each query's scores, (Hq, T), fp32.
    """
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    kv_heads, width = keys.shape[1:]
    o, lse = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        keys.view(-1, PAGE, kv_heads, width),
        values.view(-1, PAGE, kv_heads, width),
        batch.cumulative,
        None,
        batch.longest_query,
        batch.longest_context,
        return_aux=AuxRequest(lse=True),
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != kv_heads,
        seqused_k=batch.used,
        block_table=batch.pages,
        num_splits=1,  # the result of a row must not depend on its neighbours
    )
    out.copy_(o)
    return lse


def _context(row: Row, pool: torch.Tensor) -> torch.Tensor:
    """A row's keys or values so far, this batch's included, as a view (1, Hkv, total, hd)."""
    return pool[row.base : row.base + row.total].transpose(0, 1)[None]


def _keys_transposed(batch: Batch, layer: int, row: Row, first: int = 0) -> torch.Tensor:
    """A row's keys from ``first`` on with the tokens last, as a view (Hkv, hd, total - first)."""
    start, count = row.base + first, row.total - first
    if batch.kv_cache.keys_transposed:
        keys: torch.Tensor = batch.kv_cache.keys_transposed[layer]
        return keys.narrow(2, start, count)
    own: torch.Tensor = batch.kv_cache.keys[layer]
    return own.narrow(0, start, count).permute(1, 2, 0)
