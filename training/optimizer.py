"""Muon for the weight matrices, Adam for the embedding and the norms; the whole state is named tensors.

Muon (Jordan et al., 2024): momentum, then the update is replaced by a nearby orthogonal matrix, found with a
few Newton-Schulz steps. Query, key and value, and gate and up, are orthogonalised apart although their
matrices are fused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.model import TinyLlama

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ADAM_BETAS = (0.9, 0.95)
ADAM_EPS = 1e-8
EMBEDDING_CLIP = 1.0


@dataclass(frozen=True)
class _Piece:
    parameter: nn.Parameter
    start: int
    end: int


class MuonAdam:
    """Steps all parameters of a TinyLlama; ``state`` holds everything that a resume needs."""

    def __init__(self, model: TinyLlama) -> None:
        """State beside the weights; on CUDA momentum is kept in bfloat16: a smaller checkpoint."""
        c = model.config
        q, k = c.heads * c.head_dim, c.kv_heads * c.head_dim
        pieces = []
        for block in model.blocks:
            pieces += [_Piece(block.qkv.weight, a, b) for a, b in ((0, q), (q, q + k), (q + k, q + 2 * k))]
            pieces += [
                _Piece(block.gate_up.weight, a, b) for a, b in ((0, c.ff_size), (c.ff_size, 2 * c.ff_size))
            ]
            pieces += [_Piece(w, 0, w.shape[0]) for w in (block.out.weight, block.down.weight)]
        self._groups: dict[tuple[int, int], list[_Piece]] = {}
        for piece in pieces:
            shape = (piece.end - piece.start, piece.parameter.shape[1])
            self._groups.setdefault(shape, []).append(piece)
        self._others = {
            name: p for name, p in model.named_parameters() if p.dim() == 1 or name == "embedding"
        }
        self._embedding = model.embedding
        self._dtype = model.compute_dtype
        device = model.embedding.device
        kept = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.state: dict[str, Tensor] = {"adam.steps": torch.zeros(1)}
        for shape, members in self._groups.items():
            self.state[f"muon.{shape[0]}x{shape[1]}"] = torch.zeros(
                len(members), *shape, dtype=kept, device=device
            )
        for name, p in self._others.items():
            self.state[f"adam.first.{name}"] = torch.zeros_like(p)
            self.state[f"adam.second.{name}"] = torch.zeros_like(p)

    def load(self, state: dict[str, Tensor]) -> None:
        """Takes over a saved state.

        Raises:
            ValueError: if it belongs to a model of other sizes.
        """
        if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in self.state.items()}:
            raise ValueError(
                "the optimiser state does not fit the model: it was saved with another configuration"
            )
        for name, value in state.items():
            self.state[name].copy_(value)

    @torch.no_grad()
    def step(self, *, muon_lr: float, adam_lr: float, momentum: float) -> None:
        """One update from the gradients, which are dropped afterwards."""
        for shape, members in self._groups.items():
            gradient = torch.stack([_grad(m.parameter)[m.start : m.end] for m in members])
            buffer = self.state[f"muon.{shape[0]}x{shape[1]}"]
            buffer.lerp_(gradient.to(buffer.dtype), 1 - momentum)
            update = orthogonalize(gradient.lerp(buffer.to(gradient.dtype), momentum), self._dtype)
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            for member, u in zip(members, update, strict=True):
                member.parameter[member.start : member.end].sub_(u, alpha=muon_lr * scale)
        nn.utils.clip_grad_norm_([self._embedding], EMBEDDING_CLIP)
        steps = self.state["adam.steps"].add_(1).item()
        for name, p in self._others.items():
            gradient, (b1, b2) = _grad(p), ADAM_BETAS
            first = self.state[f"adam.first.{name}"].lerp_(gradient, 1 - b1)
            second = self.state[f"adam.second.{name}"].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            denominator = (second / (1 - b2**steps)).sqrt_().add_(ADAM_EPS)
            p.addcdiv_(first, denominator, value=-adam_lr / (1 - b1**steps))
        for p in (*(m.parameter for ms in self._groups.values() for m in ms), *self._others.values()):
            p.grad = None


def _grad(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError("a parameter has no gradient: call backward() before step()")
    return parameter.grad


def orthogonalize(matrices: Tensor, dtype: torch.dtype, steps: int = 5) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of the given ones, shape (n, rows, columns)."""
    a, b, c = NEWTON_SCHULZ
    x = (matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()
