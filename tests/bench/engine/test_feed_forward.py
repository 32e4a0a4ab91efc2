"""A gated feed-forward layer that works by columns: what the model's own layer gives, up to rounding."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench.engine import feed_forward
from bench.engine.feed_forward import LEAST_TOKENS, by_columns


class Gated(torch.nn.Module):
    """SwiGLU as transformers writes it."""

    def __init__(self, width: int = 64, columns: int = 2560, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(width, columns, bias=bias)
        self.up_proj = torch.nn.Linear(width, columns, bias=bias)
        self.down_proj = torch.nn.Linear(columns, width, bias=bias)
        self.act_fn = torch.nn.SiLU()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(self.act_fn(self.gate_proj(states)) * self.up_proj(states))
        return out


def around(layer: Gated, dtype: torch.dtype = torch.bfloat16) -> Gated:
    layer = layer.to(dtype)
    by_columns(SimpleNamespace(device=torch.device("cpu"), dtype=dtype, modules=layer.modules))
    return layer


@pytest.mark.parametrize("tokens", [1, LEAST_TOKENS - 1, LEAST_TOKENS, 300])
def test_by_columns_the_layer_gives_what_it_gave(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, states = around(Gated()), torch.randn(1, tokens, 64).bfloat16()
    pieces: list[int] = []
    linear = torch.nn.functional.linear

    def counted(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        pieces.append(len(weight))
        return linear(states, weight, bias)

    monkeypatch.setattr(feed_forward.F, "linear", counted)
    with torch.inference_mode():
        ours = layer(states)
        by_hand = Gated.forward(layer, states)
    torch.testing.assert_close(ours, by_hand, atol=2e-3, rtol=2e-2)
    in_pieces = [1024, 1024, 1024, 1024, 512, 512]
    assert (pieces[: len(in_pieces)] == in_pieces) == (tokens >= LEAST_TOKENS)


def clamped(layer: Gated, states: torch.Tensor) -> torch.Tensor:
    """Something else for large values only."""
    up = layer.up_proj(states).clamp(-7, 7)
    out: torch.Tensor = layer.down_proj(layer.act_fn(layer.gate_proj(states)) * up)
    return out


OTHERS = {
    "another function": lambda layer, states: 2 * Gated.forward(layer, states),
    "clamped": clamped,
    "more than states": lambda layer, states: (Gated.forward(layer, states), None),
}


@pytest.mark.parametrize("name", [*OTHERS, "bias", "full precision"])
def test_other_layers_stay_as_they_are(name: str) -> None:
    kind = type("Other", (Gated,), {"forward": OTHERS[name]}) if name in OTHERS else Gated
    layer = kind(bias=name == "bias")
    assert type(around(layer, torch.float32 if name == "full precision" else torch.bfloat16)) is kind
