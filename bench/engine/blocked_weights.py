"""Weights in the order in which oneDNN multiplies them: bfloat16 on a processor.

A linear layer keeps them row by row, and every product with few tokens pays for reading them in another
order. Measured on Qwen2.5-0.5B's shape (EPYC, AVX512-BF16, two cores): a layer takes 0.5 to 0.75 of the time
with 1 to 16 tokens, 0.95 with 512; outputs are the same to the bit. The copies take as much memory again. The
originals of a model that is stored in bfloat16 are pages of its file, which the system may drop.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

SHARE = 0.25
"""Most of the available memory that the copies may take; the weights stay as they are beside them."""


class Linear(torch.nn.Linear):
    """A linear layer with such a copy of its weights."""

    blocked: torch.Tensor

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """As before; with gradients by the weights themselves."""
        if torch.is_grad_enabled():
            return F.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
            states, self.blocked, self.bias, "none", [], ""
        )


def supported() -> bool:
    """Whether oneDNN is here and multiplies bfloat16 on this processor."""
    library: Any = torch.backends.mkldnn
    return bool(library.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def block_weights(model: Any) -> None:
    """Give the model's linear layers such copies, where they pay and memory allows."""
    if model.device.type != "cpu" or model.dtype != torch.bfloat16 or not supported():
        return
    layers = [
        part
        for part in model.modules()
        if type(part) is torch.nn.Linear and part.weight.dtype == model.dtype
        if not hasattr(part, "_hf_hook")
    ]
    needed = sum(layer.weight.nbytes for layer in layers)
    if needed > SHARE * psutil.virtual_memory().available:
        return
    for layer in layers:
        layer.blocked = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        layer.__class__ = Linear
