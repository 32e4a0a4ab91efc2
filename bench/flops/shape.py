"""What a transformer's cost depends on: its sizes, however they were read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.errors import ConfigError


@dataclass(frozen=True)
class Architecture:
    """The shape of a transformer as far as its cost depends on it."""

    family: str
    """Transformers' ``model_type``."""
    kind: Literal["decoder", "encoder"]
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    parameters: int
    """Every parameter, as ``sum(p.numel())``: what memory holds."""
    layer_weights: int
    """Elements of all weight matrices that each token is multiplied by, over all layers."""
    head_weights: int
    """Elements of the matrix that each logit row is multiplied by: output head, or an encoder's pooler."""
    state: int = 0
    """Elements of recurrent states that a token is multiplied with, over all layers; 0: attention alone."""
    attention_layers: int | None = None
    """Layers whose tokens attend to all before them; None: every layer."""
    idle_parameters: int = 0
    """Of the parameters, those that a token does not meet: of the experts that its router does not choose."""
    attended: int | None = None
    """Of heads that differ in size from layer to layer, or between keys and values: ``attended_elements``,
    counted layer by layer."""

    @property
    def active_parameters(self) -> int:
        """N: the parameters that a token meets, all of a dense model's."""
        return self.parameters - self.idle_parameters

    @property
    def attention_width(self) -> int:
        """d: heads x head size, the width of queries."""
        return self.heads * self.head_dim

    @property
    def attended_elements(self) -> int:
        """Elements of keys and values that a token meets for each token it attends to: 2*L*d."""
        if self.attended is not None:
            return self.attended
        layers = self.layers if self.attention_layers is None else self.attention_layers
        return 2 * layers * self.attention_width


class UnknownFamilyError(ConfigError):
    """A ``model_type`` without a closed form here; its modules can still be counted."""
