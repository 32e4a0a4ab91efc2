"""What a model's device does well; it decides which attention kernels serve."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Traits:
    """Of a device with a model's format."""

    varlen: bool = False
    """Torch's variable-length attention serves it: CUDA, half precision."""
    together: bool = False
    """A call costs more than its work, so rows of one token share one: CUDA."""
    tiles: bool = False
    """Matrices are multiplied on AMX tiles: bfloat16 on such a processor."""
    rounds: bool = False
    """Half precision on a processor."""

    @classmethod
    def of(cls, model: Any) -> Traits:
        """Those of the model's device and format."""
        cuda, half = model.device.type == "cuda", model.dtype in (torch.bfloat16, torch.float16)
        tiles = not cuda and model.dtype == torch.bfloat16 and bool(torch.cpu._is_amx_tile_supported())
        return cls(varlen=_varlen_serves(model), together=cuda, tiles=tiles, rounds=half and not cuda)


def _varlen_serves(model: Any) -> bool:
    """Whether torch's variable-length attention runs this model: CUDA, half precision, a torch with pages."""
    if model.device.type != "cuda" or model.dtype not in (torch.bfloat16, torch.float16):
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    used = {"return_aux", "enable_gqa", "seqused_k", "block_table", "num_splits"}
    return used <= inspect.signature(varlen_attn).parameters.keys()
