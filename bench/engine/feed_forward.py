"""A gated feed-forward layer in half precision on a processor, some of its columns at a time.

What lies between its products then stays in a core's cache. Measured with bfloat16 on AMX, 512 tokens of
Qwen2.5-0.5B's shape at once: prefill is a fifth faster.
"""

from __future__ import annotations

import weakref
from functools import partial
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
    for module in model.modules():
        if _is_gated(module) and _agrees(module):
            module.forward = partial(_forward, weakref.ref(module))  # a cycle would keep the weights


def _is_gated(module: Any) -> bool:
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    plain = all(type(part) is torch.nn.Linear and part.bias is None for part in parts)
    return plain and callable(getattr(module, "act_fn", None)) and not hasattr(module, "_hf_hook")


def _agrees(module: Any) -> bool:
    """Whether the layer is down(act(gate x) * up x), by what it makes of drawn states."""
    weight = module.gate_proj.weight
    states = torch.randn(1, LEAST_TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(0))
    states = states.to(weight.dtype)
    with torch.inference_mode():
        own, ours = type(module).forward(module, states), _in_columns(module, states)
    return bool((own - ours).abs().max() <= TOLERANCE * own.abs().max())


def _forward(reference: weakref.ref[Any], states: torch.Tensor) -> torch.Tensor:
    module: Any = reference()
    if states.shape[-2] < LEAST_TOKENS:
        return type(module).forward(module, states)  # type: ignore[no-any-return]
    return _in_columns(module, states)


def _in_columns(module: Any, states: torch.Tensor) -> torch.Tensor:
    gate, up = module.gate_proj.weight, module.up_proj.weight
    hidden = states.new_empty(*states.shape[:-1], len(gate))
    for start in range(0, len(gate), COLUMNS):
        columns = slice(start, start + COLUMNS)
        gated = module.act_fn(F.linear(states, gate[columns]))
        torch.mul(gated, F.linear(states, up[columns]), out=hidden[..., columns])
    return module.down_proj(hidden)  # type: ignore[no-any-return]
