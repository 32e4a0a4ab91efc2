"""Training the graph neural network on a corpus of graphs.

Adam, learning rate from its start to 0 along a cosine, batches of whole graphs in a new random order every
epoch. Random numbers of an epoch depend on the seed and the epoch alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bench.method import BenchError, Embedder, TrainingItem, Usage, current_meter
from bench.models.spec import cuda_available
from bench.schema import Index
from methods.gor.losses import Losses, graph_losses, mean_losses
from methods.gor.model import GraphEncoder, Shape, message_edges
from methods.gor.ranking import best_first, f_scores, token_vectors
from methods.gor.records import Records, arcs, queries_of

log = logging.getLogger(__name__)

Loss = Literal["both", "cl", "rank"]
NETWORK = "gor-gnn"
"""Under which the network's cost is credited, in phases ``train`` and ``embed``."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    shape: Shape
    loss: Loss
    alpha: float
    tau: float
    in_batch_negatives: bool
    undirected: bool
    epochs: int
    batch_graphs: int
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class TrainingGraph:
    """A graph, and what its nodes' embeddings are to be like."""

    features: NDArray[np.float32]
    """(nodes, dim)."""
    arcs: NDArray[np.int64]
    """(2, arcs), as recorded."""
    queries: NDArray[np.float32]
    """(queries, dim), at least one."""
    order: NDArray[np.int64]
    """Each query's ranking of the nodes, best first, (queries, nodes)."""


@dataclass(frozen=True)
class Epoch:
    """Means over the batches of an epoch."""

    loss: float
    contrastive: float
    ranking: float
    entropy: float


async def training_graphs(
    items: Sequence[TrainingItem],
    encoder: Embedder,
    embedder: Embedder,
    *,
    supervised: bool,
    most_queries: int | None = None,
) -> list[TrainingGraph]:
    """The graphs that there is something to learn from, each query with its ranking.

    Self-supervised: the simulated queries, of each graph the first ``most_queries`` or all, ranked against
    the chunks that they were asked about. supervised: the items' own questions, ranked against their
    references; the paper repeats these as often as there are simulated queries, which changes no mean.
    """
    graphs = []
    for item in items:
        records = Records.from_index(item.index, item.documents)
        texts = [node.text for node in records.nodes]
        if supervised:
            pairs = [(r.question, answer) for r in item.references for answer in r.answers]
            asked, targets = [question for question, _ in pairs], [answer for _, answer in pairs]
        else:
            simulated = records.queries[:most_queries]
            asked, targets = [q.text for q in simulated], [texts[q.source] for q in simulated]
        if not texts or not asked:
            continue
        known = dict.fromkeys([*texts, *targets])
        vectors = dict(zip(known, token_vectors(encoder, list(known)), strict=True))
        candidates = [vectors[text] for text in texts]
        scores = {target: f_scores(candidates, vectors[target]) for target in dict.fromkeys(targets)}
        queries = await embedder.embed(asked) if supervised else records.query_embeddings[:most_queries]
        order = best_first(np.stack([scores[target] for target in targets]))
        graphs.append(TrainingGraph(records.embeddings, arcs(records.queries), queries, order))
    return graphs


class Trainer:
    """One training, from random weights."""

    def __init__(self, graphs: Sequence[TrainingGraph], recipe: Recipe) -> None:
        """graphs: at least one; weights are drawn from the recipe's seed."""
        self.recipe = recipe
        self.device = torch.device("cuda" if cuda_available() else "cpu")
        self.graphs = [_on(self.device, graph, recipe.undirected) for graph in graphs]
        self.network = initial_network(recipe.shape, recipe.seed).to(self.device)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=recipe.learning_rate)
        self.history: list[Epoch] = []

    def run(self) -> None:
        """Train up to the last epoch and credit the cost; raises BenchError when the loss is no number."""
        while len(self.history) < self.recipe.epochs:
            epoch = self.train_epoch()
            self.history.append(epoch)
            done = len(self.history)
            if not math.isfinite(epoch.loss):
                raise BenchError(
                    f"GoR's training diverged in epoch {done} (loss {epoch.loss}). Lower it with --set "
                    f"learning_rate=..., which is {self.recipe.learning_rate}."
                )
            if done == 1 or done % 10 == 0 or done == self.recipe.epochs:
                log.debug("gor: epoch %d of %d, loss %.4f", done, self.recipe.epochs, epoch.loss)
        current_meter().credit(NETWORK, "train", self.usage())

    def train_epoch(self) -> Epoch:
        """One pass over all graphs."""
        number = len(self.history)
        recipe = self.recipe
        order = np.random.default_rng([recipe.seed, number]).permutation(len(self.graphs))
        batches = [order[at : at + recipe.batch_graphs] for at in range(0, len(order), recipe.batch_graphs)]
        steps = []
        self.network.train()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(_torch_seed(recipe.seed, number))
            for at, batch in enumerate(batches):
                share = (number * len(batches) + at) / (recipe.epochs * len(batches))
                for group in self.adam.param_groups:
                    group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * share))
                losses = self.losses([self.graphs[position] for position in batch])
                loss = self.total(losses)
                self.adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call] # torch has no types for it
                self.adam.step()
                parts = (loss, losses.contrastive, losses.ranking, losses.entropy)
                steps.append([part.item() for part in parts])
        return Epoch(*np.mean(steps, axis=0).tolist())

    def losses(self, batch: Sequence[_Tensors]) -> Losses:
        """The mean losses of a batch of graphs."""
        sizes = [len(graph.features) for graph in batch]
        offsets = np.cumsum([0, *sizes[:-1]]).tolist()
        edges = torch.cat([graph.edges + offset for graph, offset in zip(batch, offsets, strict=True)], dim=1)
        learned = self.network(torch.cat([graph.features for graph in batch]), edges)
        parts = learned.split(sizes)
        none = learned[:0]
        losses = []
        for at, graph in enumerate(batch):
            negatives = self.recipe.in_batch_negatives
            others = torch.cat([none, *parts[:at], *parts[at + 1 :]]) if negatives else none
            losses.append(graph_losses(graph.queries, parts[at], graph.order, others, self.recipe.tau))
        return mean_losses(losses)

    def total(self, losses: Losses) -> torch.Tensor:
        """L = L_CL + alpha L_RANK (Eq. 8), or one of the two alone."""
        match self.recipe.loss:
            case "cl":
                return losses.contrastive
            case "rank":
                return losses.ranking
            case "both":
                return losses.contrastive + self.recipe.alpha * losses.ranking

    def usage(self) -> Usage:
        """What all epochs cost: forward and backward passes, and similarities.

        In-batch negatives compare every query with all nodes of its batch; they are counted as if every
        batch held an even share of the graphs.
        """
        nodes = sum(len(graph.features) for graph in self.graphs)
        queries = sum(len(graph.queries) for graph in self.graphs)
        batches = math.ceil(len(self.graphs) / self.recipe.batch_graphs)
        own = sum(len(graph.queries) * len(graph.features) for graph in self.graphs)
        pairs = queries * nodes // batches if self.recipe.in_batch_negatives else own
        forward = nodes * self.network.forward_flops + 2 * pairs * self.recipe.shape.dim
        return Usage(calls=batches * self.recipe.epochs, flops=3 * forward * self.recipe.epochs)


def initial_network(shape: Shape, seed: int) -> GraphEncoder:
    """The network with the weights that a training of that seed begins with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_torch_seed(seed))
        return GraphEncoder(shape)


def _torch_seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class _Tensors:
    """A training graph on a device."""

    features: torch.Tensor
    edges: torch.Tensor
    queries: torch.Tensor
    order: torch.Tensor


def _on(device: torch.device, graph: TrainingGraph, undirected: bool) -> _Tensors:
    edges = np.ascontiguousarray(message_edges(graph.arcs, undirected=undirected))
    arrays = (graph.features, edges, graph.queries, graph.order)
    return _Tensors(*(torch.from_numpy(np.array(array)).to(device) for array in arrays))


def embed_nodes(index: Index, learned: Index, *, undirected: bool) -> NDArray[np.float32]:
    """The trained network's embeddings of a stored graph's nodes, float32, shape (nodes, dim)."""
    network = GraphEncoder(Shape(**learned.data["shape"]))
    network.load(learned.arrays)
    features = torch.from_numpy(np.array(index.arrays["embeddings"], dtype=np.float32))
    edges = message_edges(arcs(queries_of(index)), undirected=undirected)
    with torch.inference_mode():
        vectors = network.eval()(features, torch.from_numpy(np.ascontiguousarray(edges)))
    usage = Usage(calls=1, flops=len(features) * network.forward_flops)
    current_meter().credit(NETWORK, "embed", usage)
    return np.asarray(vectors.numpy(), dtype=np.float32)
