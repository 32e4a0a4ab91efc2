"""All rows in one launch: torch's variable-length attention over pages of the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from bench.engine.kernel import Job, Kernel, Layer, PackedRow, Workspace
from bench.engine.kv_cache import PAGE, KVCache
from bench.engine.traits import Traits


class Varlen(Kernel):
    """Answers every row of a GPU in half precision."""

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Every row, where it serves at all."""
        return traits.varlen

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        super().__init__(jobs, cache, space, traits)
        rows, device = [job.row for job in jobs], space.device
        ends = [0, *(row.first + row.new for row in rows)]
        self._cumulative = torch.tensor(ends, device=device, dtype=torch.int32)
        self._used = torch.tensor([row.total for row in rows], device=device, dtype=torch.int32)
        # What lies between two rows, served by another kernel, counts to the second.
        self._longest_query = max(end - start for start, end in pairwise(ends))
        self._longest = max(row.total for row in rows)
        starts = torch.tensor([row.base // PAGE for row in rows], device=device)
        pages = starts[:, None] + torch.arange(-(-self._longest // PAGE), device=device)[None]
        self._pages = pages.clamp_(max=cache.tokens // PAGE - 1).to(torch.int32)

    def run(self, layer: Layer) -> None:
        """Outputs and log-sum-exps of all rows."""
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        kv_heads, width = layer.keys.shape[1:]
        out, lse = varlen_attn(
            layer.query.transpose(0, 1).contiguous(),
            layer.keys.view(-1, PAGE, kv_heads, width),
            layer.values.view(-1, PAGE, kv_heads, width),
            self._cumulative,
            None,
            self._longest_query,
            self._longest,
            return_aux=AuxRequest(lse=True),
            scale=layer.scale,
            window_size=(-1 if layer.window is None else layer.window - 1, 0),
            enable_gqa=len(layer.query) != kv_heads,
            seqused_k=self._used,
            block_table=self._pages,
            num_splits=1,  # the result of a row must not depend on its neighbours
        )
        layer.out.copy_(out)
        layer.lse = lse
