"""The Llama of ``tiny`` in the form it is trained in: fused projections, mixed precision, sparse output head.

Same arithmetic as transformers' LlamaForCausalLM (``training.export`` slices the fused matrices into it).
Matrix products and attention run in ``compute_dtype`` (bfloat16 is several times faster than float32 on
processors with AMX, and slower than float32 on those without), everything else in float32; the weights that
are trained are always float32.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.attention import amx_serves, attention

NORM_EPS = 1e-5


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the model; the names follow LlamaConfig where it has one."""

    vocab_size: int = 2048
    hidden_size: int = 256
    layers: int = 5
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    ff_size: int = 640
    rope_theta: float = 500_000.0
    """With head_dim 32 this leaves about 6 of 16 rotary pairs nearly constant over 4,096 positions, which is
    what heads that match content need to work at lengths they were not trained on."""
    max_positions: int = 8192

    def to_dict(self) -> dict[str, int | float]:
        """Field names and values, as they are stored beside a checkpoint."""
        return asdict(self)


SIZES = {
    "tiny": ModelConfig(),
    "tiny-s": ModelConfig(hidden_size=128, heads=4, ff_size=384),
    "tiny-l": ModelConfig(hidden_size=320, layers=6, heads=10, kv_heads=5, ff_size=832),
}
"""Sizes to train: ``tiny`` (4.0 M weights), ``tiny-s`` (1.3 M, no grouped queries) and, for a GPU, ``tiny-l``
(7.3 M), which still fits a file of 16 MiB."""


class Block(nn.Module):
    """One decoder layer: attention and SwiGLU, both pre-normed."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = self.config = config
        self.attention_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.mlp_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.qkv = nn.Linear(c.hidden_size, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=False)
        self.out = nn.Linear(c.heads * c.head_dim, c.hidden_size, bias=False)
        self.gate_up = nn.Linear(c.hidden_size, 2 * c.ff_size, bias=False)
        self.down = nn.Linear(c.ff_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, compute_dtype: torch.dtype, amx: bool) -> Tensor:
        """Residual stream after the layer; x (batch, length, hidden_size) float32."""
        c = self.config
        batch, length, _ = x.shape
        fused = linear(rms_norm(x, self.attention_norm), self.qkv.weight, compute_dtype)
        fused = fused.view(batch, length, c.heads + 2 * c.kv_heads, c.head_dim)
        rotated, v = fused[:, :, : c.heads + c.kv_heads], fused[:, :, c.heads + c.kv_heads :]
        first, second = rotated[..., : c.head_dim // 2], rotated[..., c.head_dim // 2 :]
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(compute_dtype)
        q, k = rotated[:, :, : c.heads], rotated[:, :, c.heads :]
        repeat = c.heads // c.kv_heads
        k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
        y = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), amx=amx)
        x = x + linear(y.transpose(1, 2).reshape(batch, length, -1), self.out.weight, compute_dtype).float()
        gate, up = linear(rms_norm(x, self.mlp_norm), self.gate_up.weight, compute_dtype).chunk(2, -1)
        return x + linear(F.silu(gate) * up, self.down.weight, compute_dtype).float()


class TinyLlama(nn.Module):
    """Llama with tied embeddings; ``forward`` is the training loss on chosen positions."""

    def __init__(self, config: ModelConfig, compute_dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        c = self.config = config
        self.compute_dtype = compute_dtype
        self._amx = amx_serves(compute_dtype, c.head_dim)
        self.embedding = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.04)
        self.final_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        for block in self.blocks:
            for weight in (block.qkv.weight, block.gate_up.weight):
                nn.init.normal_(weight, std=0.7 * c.hidden_size**-0.5)
            for weight in (block.out.weight, block.down.weight):
                nn.init.normal_(weight, std=0.7 * weight.shape[1] ** -0.5 / math.sqrt(2 * c.layers))
        frequencies = c.rope_theta ** (-torch.arange(c.head_dim // 2).float() * 2 / c.head_dim)
        angles = torch.arange(c.max_positions).float()[:, None] * frequencies
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def hidden(self, ids: Tensor) -> Tensor:
        """Normed last hidden states, (batch, length, hidden_size), for ids (batch, length)."""
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin, self.compute_dtype, self._amx)
        return rms_norm(x, self.final_norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits of hidden states."""
        return linear(hidden, self.embedding, self.compute_dtype).float()

    def forward(
        self, ids: Tensor, positions: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted loss, the loss of each position, and whether the most likely token is the target.

        ``positions`` index the flattened (batch * length) stream at the token *before* the target: only they
        pass the output head, a fixed number per shape so that a compiled model meets one shape.
        """
        hidden = self.hidden(ids).reshape(-1, self.config.hidden_size)[positions]
        logits = self.logits(hidden)
        losses = F.cross_entropy(logits, targets, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        return loss, losses.detach(), logits.detach().argmax(-1) == targets


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm over the last axis, in float32."""
    return F.rms_norm(x, (x.shape[-1],), weight, NORM_EPS)


def linear(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrix product in the given precision; the result stays in it."""
    return F.linear(x.to(dtype), weight.to(dtype))
