"""A few logits read before half precision rounds them.

A logit of about 20 is a multiple of 1/8 in bfloat16, so that the probability of Yes against No moves in steps
of 3 points and many passages tie. The model's last hidden states and the two rows of its output matrix have
what is lost; their product costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

TOLERANCE = 2e-2
"""Most that a logit may differ from the model's own rounded one, as a share of the largest: bfloat16 keeps
2^-9, and the model sums in another order. A model that scales or caps its logits differs by more."""
_COMPARED = 512
"""Tokens whose logits are compared."""


class OutputHead:
    """The output layer of a model in half precision."""

    def __init__(self, layer: Any) -> None:
        """layer: linear, with its weights at hand."""
        self._layer = layer
        self._states: Any = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block each forward leaves its last hidden states."""

        def keep(_: Any, inputs: tuple[Any, ...]) -> None:
            self._states = inputs[0]

        handle = self._layer.register_forward_pre_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def logits(self, rows: Sequence[int], tokens: Sequence[int]) -> Any:
        """Logits in fp32, (n,), of each token at the row of the last forward's logits beside it."""
        states = self._states[0, list(rows)].float()
        weights = self._layer.weight[list(tokens)].float()
        bias = self._layer.bias
        return (states * weights).sum(-1) + (0 if bias is None else bias[list(tokens)].float())


def output_head(model: Any) -> OutputHead | None:
    """The model's output layer; None in full precision, and where its logits are no plain product of it."""
    layer = model.get_output_embeddings()
    if model.dtype not in (torch.bfloat16, torch.float16) or not isinstance(layer, torch.nn.Linear):
        return None
    if not layer.weight.is_floating_point() or layer.weight.is_meta:
        return None
    head = OutputHead(layer)
    with torch.inference_mode(), head.listening():
        own = model(torch.tensor([[1, 2, 3]], device=model.device), use_cache=False).logits[0, -1].float()
        tokens = range(min(len(own), _COMPARED))
        read = head.logits([-1] * len(tokens), tokens).to(own.device)
    worst = float((read - own[: len(tokens)]).abs().max() / own.abs().max().clamp_min(1e-6))
    return head if worst <= TOLERANCE else None
