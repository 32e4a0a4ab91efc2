"""Rows of several tokens: by torch's fused kernel, or by explicit probabilities for a block of queries.

A row that records spans needs the probabilities. A block of them stays in the processor's cache, which makes
it, but for AMX, about as fast as the fused kernel; memory is tokens x spans, never tokens x tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from bench.engine.heads import selected_heads
from bench.engine.kernel import ALIKE, Job, Kernel, Layer, PackedRow, Workspace, product_into
from bench.engine.kv_cache import KVCache
from bench.engine.span_attention import NearSpans
from bench.engine.traits import Traits

MASKED_QUERIES = 512
"""Most queries of a row in one call of the fused kernel with a mask, on a CPU."""


class Fused(Kernel):
    """One row after the other by torch's fused attention over a view of its context."""

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Any row."""
        return True

    def run(self, layer: Layer) -> None:
        """Outputs, and on AMX tiles log-sum-exps.

        In one piece where a row is plainly causal; else, on a CPU, some queries at a time, so that their mask
        stays small.
        """
        grouped = len(layer.query) != layer.keys.shape[1]
        for job in self.jobs:
            row = job.row
            from_start = row.cached == 0 and (layer.window is None or row.total <= layer.window)
            step = row.new if from_start or layer.query.is_cuda else MASKED_QUERIES
            keys, values = layer.context(row)
            for start in range(0, row.new, step):
                stop = min(start + step, row.new)
                part, seen = slice(row.first + start, row.first + stop), row.cached + stop
                mask = None
                if not from_start:
                    mask = self.space.mask(row, start, stop, seen, layer.window).to(keys.dtype)
                q, k, v = (x[None] for x in (layer.query[:, part], keys[:, :seen], values[:, :seen]))
                if self.traits.tiles:
                    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
                    o, sums = flash(q, k, v, 0.0, mask is None, attn_mask=mask, scale=layer.scale)
                    layer.lse[:, part] = sums[0]
                else:
                    o = F.scaled_dot_product_attention(
                        q, k, v, mask, is_causal=mask is None, scale=layer.scale, enable_gqa=grouped
                    )
                layer.out[part] = o[0].transpose(0, 1)


class Blocks(Kernel):
    """One row after the other by explicit probabilities, which also are what is recorded."""

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Rows whose probabilities are formed anyway, and all in half precision on a processor without AMX.

        Measured there with AVX512-BF16 alone, 512 new tokens and up to 7,680 before them, the fused kernel
        takes 1.4 to 1.9 times as long; on AMX tiles it took a half to a third of the time.
        """
        formed = row.records_all and not NearSpans.records(row, traits)
        return formed or (traits.rounds and not traits.tiles)

    @staticmethod
    def records(row: PackedRow, traits: Traits) -> bool:
        """Any row."""
        return True

    def __init__(self, jobs: Sequence[Job], cache: KVCache, space: Workspace, traits: Traits) -> None:
        super().__init__(jobs, cache, space, traits)
        self._averaging = {
            job.row.first: _averaging(job.row.recording.spans, job.row.total, space.device)
            for job in jobs
            if job.records
        }

    def run(self, layer: Layer) -> None:
        """Outputs and attention to spans, in one go where all tokens and heads record."""
        for job in self.jobs:
            once = job.answers and job.row.records_all
            if job.answers and not once:
                self._attend(layer, job.row, range(job.row.new), answer=True)
            if job.records:
                self._record(layer, job.row, answer=once)

    def _record(self, layer: Layer, row: PackedRow, *, answer: bool) -> None:
        heads = len(layer.query)
        chosen = selected_heads(row.recording.heads, layer.index, heads)
        if chosen == []:
            return
        matrix = self._averaging[row.first]
        means = self._attend(layer, row, row.watching, answer=answer, chosen=chosen, matrix=matrix)
        total = torch.cat(means) if len(means) != 1 else means[0]
        if chosen is not None:
            total *= len(chosen) / heads
        row.recording.add(total)

    def _attend(
        self,
        layer: Layer,
        row: PackedRow,
        tokens: range,
        *,
        answer: bool,
        chosen: list[int] | None = None,
        matrix: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """Attention of some of a row's new tokens, with outputs if ``answer``; no keys after their block.

        chosen: the heads to form (None: all). With the averaging ``matrix`` of spans, returns each block's
        attention to them, (block, spans), mean over these heads. Without, half precision on a processor
        keeps the probabilities as its softmax rounds them, and moves half as much memory.
        """
        heads, kv_heads = len(layer.query), layer.keys.shape[1]
        scaled = layer.query[:, row.first : row.first + row.new] * layer.scale  # (Hq, n, hd)
        k, v = layer.context_transposed(row), layer.context(row)[1]
        dropped = None if row.kept is None else ~row.kept[layer.index, :, None].to(k.device)
        if chosen is not None:
            scaled, k = scaled[chosen], k[[head * kv_heads // heads for head in chosen]]
            heads = kv_heads = len(chosen)
        step = max(1, self.space.most // (heads * row.total))
        dtype = v.dtype if matrix is None and self.traits.rounds else torch.float32
        memory = self.space.memory(heads * min(step, len(tokens)) * row.total, dtype)
        means = []
        for a in tokens[::step]:
            b = min(a + step, tokens.stop)
            seen = row.cached + b
            if self.traits.rounds:
                seen = min(-(-seen // ALIKE) * ALIKE, row.total)
            p = memory[: heads * (b - a) * seen].view(heads, b - a, seen)
            by_key_head = p.view(kv_heads, -1, seen)
            product_into(scaled[:, a:b].reshape(kv_heads, -1, scaled.shape[-1]), k[:, :, :seen], by_key_head)
            if dropped is not None:
                by_key_head[..., : dropped.shape[-1]].masked_fill_(dropped, float("-inf"))
            if layer.window is None:
                after = seen - row.cached - a
                p[:, :, row.cached + a :] += self.space.triangle(after)[: b - a].to(dtype)
            else:
                p += self.space.mask(row, a, b, seen, layer.window).to(dtype)
            torch.softmax(p, dim=-1, out=p)
            if matrix is not None:
                means.append(p.mean(0) @ matrix[:seen])
            if answer:
                o = torch.bmm(by_key_head.to(v.dtype), v[:, :seen]).view(heads, b - a, -1)
                layer.out[row.first + a : row.first + b] = o.transpose(0, 1)
        return means


class FewerKeys(Blocks):
    """Rows of contexts that dropped keys, a choice for each layer and key head; these watch no spans.

    The keys stay where they are, so nothing is saved but what a cost counts.
    """

    @staticmethod
    def answers(row: PackedRow, traits: Traits) -> bool:
        """Rows with such a choice."""
        return row.kept is not None

    records = answers


def _averaging(spans: Sequence[tuple[int, int]], positions: int, device: Any) -> torch.Tensor:
    """(positions, spans): 1/len(span) inside a span, else 0; an empty span is 0 throughout."""
    starts, ends = torch.tensor(spans, device=device).reshape(-1, 2).unbind(-1)
    at = torch.arange(positions, device=device)[:, None]
    return ((at >= starts) & (at < ends)) / (ends - starts).clamp_(min=1).float()
