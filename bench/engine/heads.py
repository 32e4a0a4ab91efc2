"""Which attention heads count where attention to spans is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Heads:
    """A choice of attention heads; equal choices are equal values."""

    pairs: tuple[tuple[int, int], ...]
    """(layer, head), both counted from 0; at least one, distinct and in ascending order."""

    def __post_init__(self) -> None:
        """Raise ValueError for pairs that are none, negative, repeated or out of order."""
        if not self.pairs or min(min(pair) for pair in self.pairs) < 0:
            raise ValueError(f"{self.pairs} are no attention heads: expected pairs (layer, head) from 0")
        if list(self.pairs) != sorted(set(self.pairs)):
            raise ValueError(f"{self.pairs}: expected each head once, in ascending order")

    @classmethod
    def parse(cls, text: str) -> Heads:
        """The heads that a text such as ``3.1+4.0`` lists, layer.head from 0; raises ValueError."""
        parts = [part.split(".") for part in text.split("+")]
        if not all(len(part) == 2 and all(n.isascii() and n.isdecimal() for n in part) for part in parts):
            raise ValueError(f"{text!r} does not list attention heads: expected layer.head, such as 3.1+4.0")
        return cls(tuple(sorted({(int(layer), int(head)) for layer, head in parts})))

    @classmethod
    def of_layers(cls, layers: Sequence[int], heads: int) -> Heads:
        """All ``heads`` heads of each of these layers."""
        return cls(tuple((layer, head) for layer in sorted(layers) for head in range(heads)))

    def __str__(self) -> str:
        """As :meth:`parse` reads it."""
        return "+".join(f"{layer}.{head}" for layer, head in self.pairs)

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.pairs)

    def fit(self, layers: int, heads: int) -> bool:
        """Whether a model of so many layers with so many heads each has all of them."""
        return all(layer < layers and head < heads for layer, head in self.pairs)

    @cached_property
    def by_layer(self) -> dict[int, list[int]]:
        """The heads of each layer that has any."""
        heads: dict[int, list[int]] = {}
        for layer, head in self.pairs:
            heads.setdefault(layer, []).append(head)
        return heads


def selected_heads(heads: Heads | None, layer: int, total: int) -> list[int] | None:
    """Those of a layer's ``total`` heads that count; None if all do."""
    if heads is None:
        return None
    chosen = heads.by_layer.get(layer, [])
    return None if len(chosen) == total else chosen
