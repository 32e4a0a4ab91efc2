"""Weights in the order in which they are multiplied: the same products."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench.engine import blocked_weights
from bench.engine.blocked_weights import Linear, block_weights, supported

pytestmark = pytest.mark.skipif(not supported(), reason="this processor multiplies no bfloat16")


def blocked(dtype: torch.dtype = torch.bfloat16, bias: bool = True) -> torch.nn.Linear:
    layer = torch.nn.Linear(96, 320, bias=bias).to(dtype)
    around = torch.nn.Sequential(layer)
    block_weights(SimpleNamespace(device=torch.device("cpu"), dtype=dtype, modules=around.modules))
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_layer_gives_what_it_gave(tokens: int, bias: bool) -> None:
    layer, states = blocked(bias=bias), torch.randn(1, tokens, 96).bfloat16()
    with torch.inference_mode():
        ours = layer(states)
        by_hand = torch.nn.functional.linear(states, layer.weight, layer.bias)
    assert type(layer) is Linear
    torch.testing.assert_close(ours, by_hand)


def test_with_gradients_the_weights_themselves_are_multiplied() -> None:
    layer = blocked()
    states = torch.randn(2, 96, dtype=torch.bfloat16, requires_grad=True)
    layer(states).sum().backward()
    assert states.grad is not None and layer.weight.grad is not None


def test_layers_stay_as_they_are_in_full_precision_and_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert type(blocked(torch.float32)) is torch.nn.Linear
    monkeypatch.setattr(
        blocked_weights.psutil, "virtual_memory", lambda: SimpleNamespace(available=3 * 96 * 320 * 2)
    )
    assert type(blocked()) is torch.nn.Linear
