"""The losses against their formulas, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from methods.gor.losses import Losses, graph_losses, mean_losses


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
) -> tuple[float, float, float]:
    """Eq. 5 to 7 as they are written, with the mean over pairs."""

    def s(one: torch.Tensor, other: torch.Tensor) -> float:
        return math.exp(float(one @ other) / tau)

    contrastive, ranking, entropy = [], [], []
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
        own = [s(query, node) for node in h]
        entropy.append(-sum(x / sum(own) * math.log(x / sum(own)) for x in own))
    return tuple(sum(x) / len(x) for x in (contrastive, ranking, entropy))  # type: ignore[return-value]


def values(losses: Losses) -> list[float]:
    return [x.item() for x in (losses.contrastive, losses.ranking, losses.entropy)]


@pytest.mark.parametrize("tau", [1.0, 0.3])
@pytest.mark.parametrize("others", [5, 0])
def test_the_losses_are_their_formulas(tau: float, others: int) -> None:
    parts = case(others=others)
    assert values(graph_losses(*parts, tau=tau)) == pytest.approx(slow(*parts, tau), rel=1e-9)


def test_nodes_of_other_graphs_count_against_the_positive_and_not_in_the_ranking() -> None:
    q, h, order, others = case()
    without = graph_losses(q, h, order, others[:0], 1.0)
    with_them = graph_losses(q, h, order, others, 1.0)
    assert with_them.contrastive > without.contrastive
    assert with_them.ranking == without.ranking and with_them.entropy == without.entropy


def test_the_gradients_are_those_of_small_differences() -> None:
    q, h, order, others = case(queries=2, nodes=4, others=2, dim=3)

    def both(nodes: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        losses = graph_losses(q, nodes, order, away, 0.7)
        return losses.contrastive + 0.9 * losses.ranking

    assert torch.autograd.gradcheck(both, (h.requires_grad_(), others.requires_grad_()))


def test_a_step_down_brings_the_positive_nearer_and_the_rest_into_order() -> None:
    q, h, order, others = case(queries=1)
    h = h.requires_grad_()
    for _ in range(400):
        losses = graph_losses(q, h, order, others, 1.0)
        (gradient,) = torch.autograd.grad(losses.contrastive + losses.ranking, h)
        h = (h - 0.2 * gradient).detach().requires_grad_()
    own = (q @ h.T)[0]
    assert own.argmax() == order[0, 0]
    assert torch.equal(own.argsort(descending=True), order[0])


def test_a_ratio_is_held_within_bounds() -> None:
    q, h = torch.tensor([[1000.0]]), torch.tensor([[-1.0], [1.0]])
    losses = graph_losses(q, h, torch.tensor([[0, 1]]), h[:0], 1.0)
    assert float(losses.ranking) == pytest.approx(50.0)
    assert float(losses.contrastive) == pytest.approx(2000.0), "not infinite"


def test_one_node_alone_teaches_nothing_and_breaks_nothing() -> None:
    q, h, order, others = case(queries=3, nodes=1, others=0)
    losses = graph_losses(q, h.requires_grad_(), order, others, 1.0)
    assert values(losses) == [0.0, 0.0, 0.0]
    (losses.contrastive + losses.ranking).backward()  # type: ignore[no-untyped-call]
    assert h.grad is not None and not h.grad.any()


def test_the_mean_is_over_graphs() -> None:
    losses = [graph_losses(*case(seed=seed), tau=1.0) for seed in range(3)]
    mean = [sum(x) / 3 for x in zip(*(values(loss) for loss in losses), strict=True)]
    assert values(mean_losses(losses)) == pytest.approx(mean)
    with pytest.raises(ValueError, match="no graphs"):
        mean_losses([])
