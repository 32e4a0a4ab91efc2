"""One packed forward pass of a model over the steps of many requests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from bench.engine.attention import Batch, serving
from bench.engine.heads import Heads
from bench.engine.kernel import PackedRow, Watch
from bench.engine.kv_cache import KVCache
from bench.engine.output_head import OutputHead
from bench.engine.placement import index_device
from bench.engine.scheduler import Outcome, Step
from bench.engine.traits import Traits


class Runner:
    """Runs the passes of one model."""

    def __init__(self, model: Any, kv_cache: KVCache, head: OutputHead | None = None) -> None:
        """model: a transformers causal model whose packed passes :mod:`bench.engine.setup` has checked.

        head: reads the logits of choices; None: they are read as the model gives them.
        """
        self.model, self.kv_cache, self.head = model, kv_cache, head
        self.attends = True
        self.traits = Traits.of(model)
        self.passes = 0
        """Forward passes so far."""
        self.tokens = 0
        """New tokens forwarded so far."""

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        """The outcome of each step; one that raises has changed no request."""
        rows = _packed(steps)
        asking = [at for at, step in enumerate(steps) if step.asks]
        outcomes = [Outcome() for _ in steps]
        with torch.inference_mode():
            batch = Batch(rows, self.kv_cache, self.model.device, self.traits)
            tokens = [token for step in steps for token in step.tokens]
            logits = self.logits(batch, tokens, [rows[at].first + rows[at].new - 1 for at in asking])
            # Three small transfers for the whole batch, however many rows it has.
            valid = (~(torch.isnan(logits) | torch.isposinf(logits)).any(-1)).tolist()
            likeliest = logits.argmax(-1).tolist()
            for i, at in enumerate(asking):
                outcomes[at].valid, outcomes[at].token, request = valid[i], likeliest[i], steps[at].request
                if request.sampling is not None and valid[i]:
                    outcomes[at].token = request.sampling.draw(logits[i], len(request.answer))
            read = [(i, choice) for i, at in enumerate(asking) for choice in steps[at].request.choices]
            if read:
                places = [i for i, _ in read], [choice for _, choice in read]
                if self.head is not None:
                    logits[places] = self.head.logits(*places).to(logits.device)
                values = iter(logits[places].tolist())
                masses = torch.logsumexp(logits.double(), -1).tolist()
                for i, at in enumerate(asking):
                    outcomes[at].logits = tuple(next(values) for _ in steps[at].request.choices)
                    outcomes[at].log_mass = masses[i]
            for row, outcome in zip(rows, outcomes, strict=True):
                if row.watch is not None:
                    outcome.attention = row.watch.total / layers_averaged(self.model, row.watch.heads)
        self.passes += 1
        self.tokens += sum(row.new for row in rows)
        return outcomes

    def logits(self, batch: Batch, tokens: Sequence[int], last: Sequence[int]) -> torch.Tensor:
        """(len(last), vocabulary), fp32, at these positions of the packed sequence; tokens: all of it."""
        device = self.model.device
        with serving(batch, self.model), nullcontext() if self.head is None else self.head.listening():
            out = self.model(
                input_ids=torch.tensor([tokens], device=device),
                position_ids=batch.positions[None],
                use_cache=False,
                logits_to_keep=torch.tensor(last, dtype=torch.long, device=index_device(self.model)),
            )
        logits: torch.Tensor = out.logits[0].float()
        return logits


def _packed(steps: Sequence[Step]) -> list[PackedRow]:
    """The steps' tokens one after the other."""
    rows, first = [], 0
    for step in steps:
        request, new = step.request, len(step.tokens)
        cached = request.slot.length
        row = PackedRow(first, new, cached, request.slot.range.start, kept=request.slot.kept)
        begin = max(0, request.watch_from - cached)
        if request.watched and begin < new:
            row.watch = Watch(request.watched, slice(begin, new), request.heads)
        rows.append(row)
        first += new
    return rows


def layers_averaged(model: Any, heads: Heads | None) -> float:
    """Number of layers over which attention is averaged; of chosen heads, as many as they would fill."""
    if heads is not None:
        return len(heads) / int(model.config.num_attention_heads)
    return int(model.config.num_hidden_layers)
