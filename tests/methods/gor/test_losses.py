"""The losses against their formulas, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from methods.gor.losses import Losses, graph_losses


def case(
    queries: int = 4, nodes: int = 6, others: int = 5, dim: int = 7, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(queries, dim, generator=generator, dtype=torch.float64)
    h = torch.randn(nodes, dim, generator=generator, dtype=torch.float64)
    order = torch.stack([torch.randperm(nodes, generator=generator) for _ in range(queries)])
    return q, h, order, torch.randn(others, dim, generator=generator, dtype=torch.float64)


def slow(
    q: torch.Tensor, h: torch.Tensor, order: torch.Tensor, others: torch.Tensor, tau: float
) -> tuple[float, float]:
    """Eq. 5 to 7 as they are written, with the mean over pairs."""

    def s(one: torch.Tensor, other: torch.Tensor) -> float:
        return math.exp(float(one @ other) / tau)

    contrastive, ranking = [], []
    for query, ranked in zip(q, order.tolist(), strict=True):
        positive = s(query, h[ranked[0]])
        everything = [s(query, node) for node in (*h, *others)]
        contrastive.append(-math.log(positive / sum(everything)))
        pairs = [
            math.log(1 + s(query, h[ranked[j]]) / s(query, h[ranked[i]]))
            for i in range(len(ranked))
            for j in range(i + 1, len(ranked))
        ]
        ranking.append(sum(pairs) / len(pairs))
    return tuple(sum(x) / len(x) for x in (contrastive, ranking))  # type: ignore[return-value]


def values(losses: Losses) -> list[float]:
    return [x.item() for x in (losses.contrastive, losses.ranking)]


@pytest.mark.parametrize("tau", [1.0, 0.3])
@pytest.mark.parametrize("others", [5, 0])
def test_the_losses_are_their_formulas(tau: float, others: int) -> None:
    parts = case(others=others)
    losses = graph_losses(*parts, tau=tau)
    assert values(losses) == pytest.approx(slow(*parts, tau), rel=1e-9)
    shares = torch.distributions.Categorical(logits=parts[0] @ parts[1].T / tau)
    assert float(losses.entropy) == pytest.approx(float(shares.entropy().mean()))


def test_a_ratio_is_held_within_bounds() -> None:
    q, h = torch.tensor([[1000.0]]), torch.tensor([[-1.0], [1.0]])
    losses = graph_losses(q, h, torch.tensor([[0, 1]]), h[:0], 1.0)
    assert float(losses.ranking) == pytest.approx(50.0)
    assert float(losses.contrastive) == pytest.approx(2000.0), "not infinite"


def test_one_node_alone_teaches_nothing_and_breaks_nothing() -> None:
    q, h, order, others = case(queries=3, nodes=1, others=0)
    losses = graph_losses(q, h.requires_grad_(), order, others, 1.0)
    assert values(losses) == [0.0, 0.0]
    (losses.contrastive + losses.ranking).backward()  # type: ignore[no-untyped-call]
    assert h.grad is not None and not h.grad.any()
