"""Weights in the order in which they are multiplied: the same products, and no second copy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench.engine import blocked_weights
from bench.engine.blocked_weights import Linear, OnlyBlocked, block_weights, supported

pytestmark = pytest.mark.skipif(not supported(), reason="this processor multiplies no bfloat16")


class Model(torch.nn.Module):
    """A layer and an output layer that is tied to an embedding."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 320)
        self.layer = torch.nn.Linear(96, 320, bias=bias)
        self.head = torch.nn.Linear(320, 64, bias=False)
        self.head.weight = self.embedding.weight

    device = torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.head


def blocked(dtype: torch.dtype = torch.bfloat16, bias: bool = True) -> Model:
    model = Model(bias).to(dtype).requires_grad_(False)
    block_weights(model)
    return model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_layer_gives_what_it_gave(tokens: int, bias: bool) -> None:
    model, states = Model(bias).bfloat16().requires_grad_(False), torch.randn(1, tokens, 96).bfloat16()
    by_hand, weight = model.head(model.layer(states)), model.layer.weight
    block_weights(model)
    assert type(model.layer) is OnlyBlocked and type(model.head) is Linear
    torch.testing.assert_close(model.head(model.layer(states)), by_hand)
    assert torch.equal(model.layer.weight, weight)


def test_old_weights_go_but_for_what_is_read_by_rows() -> None:
    file = torch.randn(320 * 96 + 320 * 64).bfloat16()  # both in one piece of memory, as in a mapped file
    model = Model().bfloat16().requires_grad_(False)
    model.layer.weight.data = file[: 320 * 96].view(320, 96)
    model.embedding.weight.data = file[320 * 96 :].view(64, 320)
    block_weights(model)
    assert list(model.layer._parameters) == ["bias"] and model.head.weight is model.embedding.weight
    assert torch.equal(model.embedding.weight, file[320 * 96 :].view(64, 320))
    storages = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    assert file.untyped_storage().data_ptr() not in storages


def test_layers_stay_as_they_are_in_full_precision_or_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(blocked(torch.float32).layer) is torch.nn.Linear
    little = SimpleNamespace(available=3 * 2 * (96 * 320 + 64 * 320))
    monkeypatch.setattr(blocked_weights.psutil, "virtual_memory", lambda: little)
    assert type(blocked().layer) is torch.nn.Linear
