"""Attention to a few tokens from the log-sum-exp, against the softmax over all keys."""

from __future__ import annotations

import pytest
import torch

from bench.engine.kernel import PackedRow, Watch
from bench.engine.span_attention import FEW, PIECE, NearSpans, SpanAttention
from bench.engine.traits import Traits

HEADS, KV_HEADS, WIDTH, SCALE = 4, 2, 8, 0.5
SPANS = {40: [(3, 9)], 90: [(0, 5), (12, 12), (10, 30)], 7: [(6, 7)]}
"""Spans of three contexts by length: one, several with an empty one, and one that a query is in."""


@pytest.mark.parametrize("most", [1, 1 << 25], ids=["piece by piece", "together"])
@pytest.mark.parametrize("window", [None, 11])
@pytest.mark.parametrize("only", [None, [1, 2, 3], []], ids=["all heads", "three of four", "none"])
def test_layer_sums_are_those_of_softmax(window: int | None, most: int, only: list[int] | None) -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    news = {40: 1, 90: PIECE + 20, 7: 3}
    rows, first = [], 5  # other rows stand before them in the pass
    for at, (total, spans) in enumerate(SPANS.items()):
        watch = Watch(spans, slice(0, news[total]))
        rows.append(PackedRow(first, news[total], total - news[total], 100 * at, watch))
        first += news[total]
    attention = SpanAttention(rows, torch.device("cpu"), most)
    expected = [torch.zeros(row.new, len(row.recording.spans)) for row in rows]
    for _ in range(2):
        query, keys = drawn(HEADS, first, WIDTH), drawn(300, KV_HEADS, WIDTH)
        lse = torch.zeros(HEADS, first)
        for row, sums in zip(rows, expected, strict=True):
            own = slice(row.first, row.first + row.new)
            k = keys[row.base : row.base + row.total].repeat_interleave(HEADS // KV_HEADS, 1)
            scores = torch.einsum("hqd,khd->hqk", query[:, own], k) * SCALE
            behind = torch.arange(row.cached, row.total)[:, None] - torch.arange(row.total)[None]
            scores[:, (behind < 0) | (behind >= (window or row.total))] = float("-inf")
            lse[:, own] = scores.logsumexp(-1)
            p = scores.softmax(-1)[range(HEADS) if only is None else only].sum(0) / HEADS
            for at, (start, end) in enumerate(row.recording.spans):
                sums[:, at] += p[:, start:end].sum(-1) / max(1, end - start)
        attention.add(query, keys, lse, SCALE, window, only)
    for total_, sums in zip(attention.totals(), expected, strict=True):
        torch.testing.assert_close(total_, sums, atol=1e-6, rtol=1e-5)


def test_spans_are_near_if_all_watched_tokens_fit_the_reach() -> None:
    def near(*spans: tuple[int, int]) -> bool:
        row = PackedRow(0, 1, 5000, 0, Watch(spans, slice(0, 1)))
        return NearSpans.records(row, Traits(varlen=True))

    assert near((10, 40)) and near((4000, 4000 + FEW)) and near((3, 3), (900, 901))
    assert not near((0, 1), (FEW, FEW + 1)) and not near((4, 4))
