"""A gated feed-forward layer in half precision on a processor, some of its columns at a time.

What lies between its products then stays in a core's cache. Measured with bfloat16 on AMX, 512 tokens of
Qwen2.5-0.5B's shape at once: prefill is a fifth faster.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

COLUMNS = 1024
"""Most columns at a time; 600 to 1,200 were equally fast."""
LEAST_TOKENS = 128
"""Fewer tokens are in the cache anyway."""
TOLERANCE = 2e-2
"""Largest difference from the layer's own output that counts as rounding, as a share of the largest value."""


def by_columns(model: Any) -> None:
    """Let the model's gated layers (SwiGLU and its kin) work by columns; others stay as they are."""
    if model.device.type != "cpu" or model.dtype not in (torch.bfloat16, torch.float16):
        return
    classes: dict[type, type] = {}
    for module in model.modules():
        if _is_gated(module) and _agrees(module):
            kind = type(module)
            module.__class__ = classes.setdefault(kind, _working_by_columns(kind))


def _is_gated(module: Any) -> bool:
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    plain = all(type(part) is torch.nn.Linear and part.bias is None for part in parts)
    return plain and callable(getattr(module, "act_fn", None)) and not hasattr(module, "_hf_hook")


def _agrees(module: Any) -> bool:
    """Whether the layer is down(act(gate x) * up x), by what it makes of small and of large states."""
    weight = module.gate_proj.weight
    drawn = torch.randn(1, LEAST_TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for size in (1, 100):
            states = (size * drawn).to(weight.dtype)
            try:
                own = module(states)
            except (TypeError, RuntimeError):
                return False
            ours = _in_columns(module, states)
            if not isinstance(own, torch.Tensor) or own.shape != ours.shape:
                return False
            if not (own - ours).abs().max() <= TOLERANCE * own.abs().max():
                return False
    return True


def _working_by_columns(kind: type[Any]) -> type:
    """The layer's class with another forward; a class, so that a copy of the layer is one, too."""

    def forward(layer: Any, states: torch.Tensor) -> torch.Tensor:
        if states.shape[-2] < LEAST_TOKENS or torch.is_grad_enabled():
            return kind.forward(layer, states)  # type: ignore[no-any-return]
        return _in_columns(layer, states)

    return type(kind.__name__, (kind,), {"forward": forward})


def _in_columns(layer: Any, states: torch.Tensor) -> torch.Tensor:
    gate, up = layer.gate_proj.weight, layer.up_proj.weight
    hidden = states.new_empty(*states.shape[:-1], len(gate))
    for start in range(0, len(gate), COLUMNS):
        columns = slice(start, start + COLUMNS)
        gated = layer.act_fn(F.linear(states, gate[columns]))
        torch.mul(gated, F.linear(states, up[columns]), out=hidden[..., columns])
    return layer.down_proj(hidden)  # type: ignore[no-any-return]
