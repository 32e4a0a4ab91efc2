"""Rows of several tokens by blocks of explicit probabilities, against attention over a whole matrix."""

from __future__ import annotations

import pytest
import torch

from bench.engine.kernel import ALIKE, Job, Layer, PackedRow, Watch, Workspace, additive_mask
from bench.engine.kv_cache import KVCache
from bench.engine.prefill import Blocks
from bench.engine.traits import Traits

CACHED, NEW, HEADS, KEY_HEADS, WIDTH = ALIKE + 50, 2 * ALIKE + 30, 4, 2, 16
SPANS = [(0, 40), (CACHED, CACHED + 7), (0, 0)]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("window", [None, 90])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_attend_as_a_whole_matrix(dtype: torch.dtype, window: int | None, watched: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    total = CACHED + NEW
    query = torch.randn(HEADS, NEW, WIDTH, generator=draw).to(dtype)
    # What lies behind the context is another row's, or nothing yet.
    keys, values = torch.full((2, total + 9, KEY_HEADS, WIDTH), float("nan"), dtype=dtype)
    keys[:total], values[:total] = torch.randn(2, total, KEY_HEADS, WIDTH, generator=draw).to(dtype)
    row = PackedRow(0, NEW, CACHED, 0, Watch(SPANS, slice(0, NEW)) if watched else None)
    out, lse = torch.empty(NEW, HEADS, WIDTH, dtype=dtype), torch.empty(0)
    layer = Layer(0, query, keys, values, None, WIDTH**-0.5, window, out, lse)
    space = Workspace("cpu")
    space.most = 13 * HEADS * total  # thirteen queries at once
    cache = KVCache(tokens=512, dtype=dtype, device="cpu", layers=1, kv_heads=KEY_HEADS, head_dim=WIDTH)
    Blocks([Job(row, True, watched)], cache, space, Traits(rounds=dtype != torch.float32)).run(layer)
    k, v = (pool[:total].float().transpose(0, 1).repeat_interleave(2, 0) for pool in (keys, values))
    mask = additive_mask(torch.arange(CACHED, total)[:, None], torch.arange(total)[None], window)
    p = torch.softmax(query.float() @ k.transpose(1, 2) * WIDTH**-0.5 + mask, -1)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(out.float(), (p @ v).transpose(0, 1), atol=tolerance, rtol=tolerance)
    if watched:
        means = torch.stack([p.mean(0)[:, a:b].sum(-1) / max(b - a, 1) for a, b in SPANS], -1)
        torch.testing.assert_close(row.recording.total, means, atol=tolerance / 10, rtol=tolerance)


def test_a_mask_has_as_many_keys_as_are_asked_for() -> None:
    """Two kernels that answer and record one row shared it, though one rounds its keys up to blocks."""
    row, space = PackedRow(0, 4, 6, 0), Workspace("cpu")
    assert [space.mask(row, 0, 4, keys, None).shape[1] for keys in (10, 16)] == [10, 16]
