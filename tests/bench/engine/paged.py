"""Torch's variable-length attention over pages of keys and values, in plain operations that a CPU has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.engine.engine import Engine
from bench.engine.traits import Traits


def serve_like_a_gpu(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes the path of a GPU in half precision, with its own dtype."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    engine.runner.traits = Traits(varlen=True, together=True)


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    num_splits: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (T, Hq, hd) and log-sum-exp (Hq, T); the last query of a row sits at its last used key."""
    assert return_aux.lse and num_splits == 1 and window_size[1] == 0
    assert enable_gqa == (query.shape[1] != key.shape[2])
    outputs, masses = [], []
    bounds = cu_seq_q.tolist()
    for row, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        used = int(seqused_k[row])
        assert end - start <= max_q and used <= max_k
        pages = block_table[row].long()
        repeat = query.shape[1] // key.shape[2]
        k, v = (pool[pages].flatten(0, 1)[:used].repeat_interleave(repeat, 1) for pool in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[start:end], k) * scale
        behind = torch.arange(used - (end - start), used)[:, None] - torch.arange(used)[None]
        hidden = (behind < 0) | ((behind > window_size[0]) if window_size[0] >= 0 else False)
        scores = scores.masked_fill(hidden, float("-inf"))
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
        masses.append(scores.logsumexp(-1))
    return torch.cat(outputs), torch.cat(masses, 1)
