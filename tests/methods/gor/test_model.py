from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from methods.gor.model import GraphEncoder, NetworkKind, Shape, message_edges

SHAPE = Shape("gat", dim=8, layers=2, heads=4, dropout=0.0, attention_dropout=0.0)
KINDS: tuple[NetworkKind, ...] = get_args(NetworkKind)
ARCS = np.array([[0, 1, 2, 3], [4, 4, 5, 5]])


def network(kind: NetworkKind = "gat", seed: int = 0, **changes: float) -> GraphEncoder:
    torch.manual_seed(seed)
    return GraphEncoder(replace(SHAPE, kind=kind, **changes))  # type: ignore[arg-type]


def features(nodes: int = 7, seed: int = 1) -> torch.Tensor:
    return torch.randn(nodes, SHAPE.dim, generator=torch.Generator().manual_seed(seed))


def edges(undirected: bool = True) -> torch.Tensor:
    return torch.from_numpy(message_edges(ARCS, undirected=undirected).copy())


def heard(kind: NetworkKind, undirected: bool) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(i, j): whether node i's learned embedding depends on node j's text."""
    model, inputs = network(kind).eval(), features().requires_grad_()
    learned = model(inputs, edges(undirected))
    rows = [torch.autograd.grad(learned[i].sum(), inputs, retain_graph=True)[0] for i in range(len(inputs))]
    return np.array([(row.abs().sum(dim=1) > 0).numpy() for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_hear_two_steps_far_along_undirected_edges(kind: NetworkKind) -> None:
    joined = np.eye(7, dtype=bool)
    joined[ARCS[0], ARCS[1]] = joined[ARCS[1], ARCS[0]] = True
    np.testing.assert_array_equal(heard(kind, undirected=True), joined @ joined)


@pytest.mark.parametrize("kind", KINDS)
def test_along_directed_edges_chunks_hear_nothing_from_answers(kind: NetworkKind) -> None:
    dependence = heard(kind, undirected=False)
    assert dependence[4, [0, 1, 4]].all() and not dependence[4, [2, 3, 5]].any()
    for chunk in range(4):
        assert dependence[chunk].nonzero()[0].tolist() == [chunk]


def test_a_gat_layer_is_attention_over_neighbours_and_oneself_and_the_mean_of_its_heads() -> None:
    model = network(layers=1).eval()
    layer, inputs = model.convolutions[0], features()
    with torch.no_grad():
        output = model(inputs, edges())
        sent = (inputs @ layer.lin.weight.T).view(7, 4, 8)  # type: ignore[operator, union-attr]
        source = (sent * layer.att_src).sum(-1)  # type: ignore[operator]
        target = (sent * layer.att_dst).sum(-1)  # type: ignore[operator]
        expected = torch.zeros(7, 4, 8)
        pairs = [*edges().T.tolist(), *([n, n] for n in range(7))]
        for node in range(7):
            near = [a for a, b in pairs if b == node]
            logits = torch.nn.functional.leaky_relu(source[near] + target[node], 0.2)
            expected[node] = (torch.softmax(logits, dim=0)[..., None] * sent[near]).sum(0)
        flat = expected.view(7, 32) + layer.bias  # type: ignore[operator]
        flat = model.norms[0](flat)  # freshly made: mean 0, variance 1
        flat = torch.where(flat > 0, flat, 0.25 * flat)
    torch.testing.assert_close(output, flat.view(7, 4, 8).mean(1))


def test_the_larger_of_the_layers_outputs_is_the_embedding() -> None:
    model = network().eval()
    seen: list[torch.Tensor] = []
    for activation in model.activations:
        activation.register_forward_hook(lambda _, __, out: seen.append(out.view(7, 4, 8).mean(1)))
    torch.testing.assert_close(model(features(), edges()), torch.maximum(*seen))


@pytest.mark.parametrize("kind", KINDS)
def test_the_flops_are_those_of_the_linear_maps(kind: NetworkKind) -> None:
    model = network(kind).eval()
    with FlopCounterMode(display=False) as counter:
        model(features(), edges())
    assert 7 * model.forward_flops == counter.get_total_flops()
