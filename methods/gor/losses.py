"""What the graph neural network is trained for (Graph of Records, Sec. 2.3, Eq. 5 to 8).

A query q and a node's learned embedding h are as similar as s(q, h) = exp(q.h / tau) (Eq. 5). Every query
has its ranking of the nodes of its own graph, best first; the first is its positive.

``contrastive`` (Eq. 6)
    InfoNCE: the positive against the other nodes, and all nodes of the other graphs of the batch.
``ranking`` (Eq. 7)
    For every pair of nodes of which i is ranked above j: log(1 + s(q, h_j) / s(q, h_i)). The mean over pairs,
    with the log-ratio within +-50, as in the released code; the paper writes a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import softplus

LARGEST_RATIO = 50.0
"""Of the logarithm of s / s in the ranking loss (released code)."""


@dataclass(frozen=True)
class Losses:
    """Means over the queries of a graph, or over the graphs of a batch."""

    contrastive: torch.Tensor
    ranking: torch.Tensor
    entropy: torch.Tensor
    """Of softmax(q.h / tau) over the nodes of the query's graph, in nats; looked at, not minimised."""


def graph_losses(
    queries: torch.Tensor, nodes: torch.Tensor, order: torch.Tensor, others: torch.Tensor, tau: float
) -> Losses:
    """Both losses of one graph.

    queries: (queries, dim); nodes: learned embeddings, (nodes, dim); order: each query's ranking as
    positions in ``nodes``, best first, (queries, nodes); others: learned embeddings of the other graphs'
    nodes, (others, dim), possibly none.
    """
    own = queries @ nodes.T / tau
    ranked = own.gather(1, order)
    everything = torch.cat([ranked, queries @ others.T / tau], dim=1)
    contrastive = (torch.logsumexp(everything, dim=1) - ranked[:, 0]).mean()
    above, below = torch.triu_indices(ranked.shape[1], ranked.shape[1], offset=1, device=ranked.device)
    if len(above):
        log_ratio = (ranked[:, below] - ranked[:, above]).clamp(-LARGEST_RATIO, LARGEST_RATIO)
        ranking = softplus(log_ratio).mean()
    else:
        ranking = ranked.sum() * 0  # one node: nothing to order
    log_shares = torch.log_softmax(own, dim=1)
    entropy = -(log_shares.exp() * log_shares).sum(dim=1).mean()
    return Losses(contrastive, ranking, entropy.detach())


def mean_losses(losses: list[Losses]) -> Losses:
    """The mean over graphs."""
    return Losses(
        torch.stack([loss.contrastive for loss in losses]).mean(),
        torch.stack([loss.ranking for loss in losses]).mean(),
        torch.stack([loss.entropy for loss in losses]).mean(),
    )
