"""Attention to a few watched tokens, from the log-sum-exp that fused attention returns.

The probability that query q gives key k is exp(scale * q·k - lse(q)), where lse is the logarithm of the sum
over all keys. So a search, whose nodes watch its question, reads the question's keys alone: no other key is
read a second time, and all rows are served together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.engine.heads import selected_heads
from bench.engine.kernel import Job, Kernel, Layer, PackedRow, Workspace, additive_mask, by_heads
from bench.engine.kv_cache import KVCache
from bench.engine.traits import Traits

FEW = 512
"""Most positions from the first to the last watched token of a row: a question's tokens, not a document's."""
PIECE = 64
"""Most queries of a row in one piece; shorter pieces are padded to the longest."""


def reach_of(row: PackedRow) -> tuple[int, int]:
    """The range that holds all tokens that a row watches; (0, 0) if there are none."""
    full = [(start, end) for start, end in row.recording.spans if start < end]
    return (min(a for a, _ in full), max(b for _, b in full)) if full else (0, 0)


class SpanAttention:
    """Sums over layers of the mean attention over heads, of all rows that watch a few tokens each.

    Rows are cut into P pieces of at most N queries; K is the longest reach, S the most spans of a row.
    """

    def __init__(self, rows: Sequence[PackedRow], device: torch.device, most: int) -> None:
        """rows: such that watch spans; most: probabilities formed at once."""
        self.rows, self.most = rows, most
        pieces = [(row, at) for row in rows for at in row.watching[::PIECE]]
        counts = [min(PIECE, row.watching.stop - at) for row, at in pieces]
        spans = max(len(row.recording.spans) for row in rows)
        watched = [row.recording.spans for row, _ in pieces]
        padded = [[*of_row, *[(0, 0)] * (spans - len(of_row))] for of_row in watched]

        def column(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, device=device)[:, None]

        queries = torch.minimum(torch.arange(max(counts), device=device)[None], column(counts) - 1)
        reaches = [reach_of(row) for row, _ in pieces]
        low, high = (column([reach[end] for reach in reaches]) for end in (0, 1))
        reach = low + torch.arange(max(end - start for start, end in reaches), device=device)[None]
        keys = torch.minimum(reach, high - 1)
        starts, ends = torch.tensor(padded, device=device).unbind(-1)  # (P, S)
        self._queries = column([row.first + at for row, at in pieces]) + queries  # (P, N)
        self._positions = column([row.cached + at for row, at in pieces]) + queries
        self._keys = column([row.base for row, _ in pieces]) + keys  # (P, K)
        self._reach = reach
        inside = (reach[..., None] >= starts[:, None]) & (reach[..., None] < ends[:, None])
        self._averaging = inside / (ends - starts).clamp_(min=1)[:, None].float()  # (P, K, S)
        self._masks: dict[int | None, torch.Tensor] = {}
        self._sums = torch.zeros(len(pieces), max(counts), spans, device=device)

    def add(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        lse: torch.Tensor,
        scale: float,
        window: int | None,
        only: Sequence[int] | None = None,
    ) -> None:
        """Add a layer's attention, summed over heads and divided by their number.

        query: (Hq, T, hd); keys: (positions, Hkv, hd); lse: (Hq, T), fp32, over all keys of a query; only:
        the heads that enter the sum, None for all.
        """
        if only is not None and not only:
            return
        heads, (kv_heads, width) = len(query), keys.shape[1:]
        share, key_heads = 1.0, list[int]()
        if only is not None:
            share, key_heads = len(only) / heads, [head * kv_heads // heads for head in only]
            query, lse = query[list(only)], lse[list(only)]
            heads = kv_heads = len(only)
        queries, reach = self._queries.shape[1], self._keys.shape[1]
        if window not in self._masks:
            self._masks[window] = additive_mask(self._positions[..., None], self._reach[:, None], window)
        mask = self._masks[window]  # (P, N, K)
        step = max(1, self.most // (heads * queries * reach))
        for at in range(0, len(self._queries), step):
            part = slice(at, at + step)
            chosen = self._queries[part]
            pieces = len(chosen)
            q = query[:, chosen].view(kv_heads, -1, pieces, queries, width).permute(2, 0, 1, 3, 4)
            watched = self._keys[part]
            k = (keys[watched[..., None], key_heads] if key_heads else keys[watched]).permute(0, 2, 3, 1)
            scores = _product(
                q.reshape(pieces * kv_heads, -1, width), k.reshape(pieces * kv_heads, width, reach)
            )
            scores = scores.view(pieces, heads, queries, reach).mul_(scale)
            scores -= lse[:, chosen].transpose(0, 1)[..., None]
            scores += mask[part, None]
            attended = torch.bmm(scores.exp_().mean(1), self._averaging[part])
            self._sums[part] += attended if only is None else attended * share

    def totals(self) -> list[torch.Tensor]:
        """Each row's (queries, spans), fp32."""
        of_rows, at = [], 0
        for row in self.rows:
            count, spans = len(row.watching), len(row.recording.spans)
            pieces = -(-count // PIECE)  # only the last is padded
            of_rows.append(self._sums[at : at + pieces].flatten(0, 1)[:count, :spans])
            at += pieces
        return of_rows


class NearSpans(Kernel):
    """Records rows whose spans lie close together, after others have answered them."""

    @staticmethod
    def records(row: PackedRow, traits: Traits) -> bool:
        """Rows with spans near each other, where the kernel that answers them gives log-sum-exps."""
        start, end = reach_of(row)
        return (traits.varlen or (traits.tiles and row.new > 1)) and 0 < end - start <= FEW

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        super().__init__(jobs, cache, space, traits)
        groups = by_heads(job.row for job in jobs)
        self._groups = [SpanAttention(rows, space.device, space.most) for rows in groups]

    def run(self, layer: Layer) -> None:
        """Rows with the same choice of heads together."""
        for spans in self._groups:
            only = selected_heads(spans.rows[0].recording.heads, layer.index, len(layer.query))
            spans.add(layer.query, layer.keys, layer.lse, layer.scale, layer.window, only)

    def settle(self) -> None:
        """Give every row its total."""
        for spans in self._groups:
            for row, total in zip(spans.rows, spans.totals(), strict=True):
                row.recording.add(total)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batched matrix product in fp32; of half precision, not rounded to it."""
    if a.dtype == torch.float32:
        return torch.bmm(a, b)
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())
