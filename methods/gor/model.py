"""The graph neural network: two layers of GAT, or of another kind, over the texts' embeddings.

As in the released code: per layer a dropout on the features, the convolution, BatchNorm and PReLU over all
heads together; a layer's output is the mean of its heads, and the node's embedding the larger of the layers'
outputs, element by element (JumpingKnowledge, max). Its width is that of the embeddings, since queries are
compared with it as they are. The convolutions are torch-geometric's; GCN, SGC, GIN and GraphSAGE (Graph of
Records, Fig. 4) take the place of GAT with one head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch_geometric.nn import BatchNorm, GATConv, GCNConv, GINConv, JumpingKnowledge, SAGEConv, SGConv

NetworkKind = Literal["gat", "gcn", "sgc", "gin", "sage"]


@dataclass(frozen=True)
class Shape:
    """What a network looks like."""

    kind: NetworkKind
    dim: int
    """Of the embeddings, given and learned."""
    layers: int
    heads: int
    """Of GAT; the other kinds have one."""
    dropout: float
    attention_dropout: float


class GraphEncoder(nn.Module):
    """Learned embeddings of nodes from their texts' embeddings and their neighbours'."""

    def __init__(self, shape: Shape) -> None:
        """Random weights, drawn from torch's generator."""
        super().__init__()
        self.shape = shape
        self.heads = shape.heads if shape.kind == "gat" else 1
        width = shape.dim * self.heads
        self.convolutions, self.norms, self.activations = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for layer in range(shape.layers):
            self.convolutions.append(_convolution(shape, width if layer else shape.dim))
            # One node has no spread: it is normalised with the running statistics.
            self.norms.append(BatchNorm(width, allow_single_element=True))
            self.activations.append(nn.PReLU(width))
        self.dropout = nn.Dropout(shape.dropout)
        self.jump = JumpingKnowledge("max")

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Learned embeddings, shape (nodes, dim); features: (nodes, dim), edges: arcs as (2, arcs)."""
        hidden, outputs = features, []
        layers = zip(self.convolutions, self.norms, self.activations, strict=True)
        for convolution, norm, activation in layers:
            hidden = activation(norm(convolution(self.dropout(hidden), edges)))
            outputs.append(hidden.view(len(features), self.heads, self.shape.dim).mean(dim=1))
        joined: torch.Tensor = self.jump(outputs)
        return joined

    @property
    def forward_flops(self) -> int:
        """FLOPs per node of a forward: 2 for every weight of the linear maps.

        Sums over edges, attention scores, norms and activations are left out, as norms and softmax are
        where language models are counted. A backward pass costs twice as much.
        """
        return 2 * sum(weight.numel() for weight in self.parameters() if weight.dim() == 2)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All weights and running statistics, by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.state_dict().items()}

    def load(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over what :meth:`arrays` gave; raises RuntimeError for arrays of another shape."""
        self.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in arrays.items()})


def _convolution(shape: Shape, width: int) -> Any:
    dim = shape.dim
    match shape.kind:
        case "gat":
            return GATConv(width, dim, heads=shape.heads, dropout=shape.attention_dropout)
        case "gcn":
            return GCNConv(width, dim)
        case "sgc":
            return SGConv(width, dim)
        case "gin":
            return GINConv(nn.Sequential(nn.Linear(width, dim), nn.ReLU(), nn.Linear(dim, dim)))
        case "sage":
            return SAGEConv(width, dim)


def message_edges(arcs: NDArray[np.int64], *, undirected: bool) -> NDArray[np.int64]:
    """The arcs along which messages pass: as given, or in both directions; shape (2, arcs).

    Graph of Records speaks of an undirected graph; its code has arcs from what was read to the answer only,
    so that chunks hear nothing from answers. Convolutions add a node's own voice themselves.
    """
    return np.concatenate([arcs, arcs[::-1]], axis=1) if undirected else arcs
