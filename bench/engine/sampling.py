"""How the next token is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn instead of taking the likeliest; the same seed draws the same text."""

    temperature: float
    """Logits are divided by it; above 0, and towards 0 the likeliest token is taken."""
    seed: int

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature or seed out of range."""
        if not self.temperature > 0 or self.seed < 0:
            raise ValueError(f"temperature must be above 0 and the seed 0 or more, got {self}")

    def uniform(self, position: int) -> float:
        """The number in [0, 1) that decides the token at ``position`` of the answer."""
        return float(np.random.default_rng([self.seed, position]).random())

    def draw(self, logits: Any, position: int) -> int:
        """A token drawn from softmax(logits / temperature), shape (vocabulary,), by its cumulative sum.

        The deciding number depends on the seed and position alone, never on other rows of the pass.
        """
        import torch

        cumulative = torch.cumsum(torch.softmax((logits.double() - logits.max()) / self.temperature, -1), -1)
        token = torch.searchsorted(cumulative, self.uniform(position) * cumulative[-1:], right=True)
        return min(int(token), len(logits) - 1)
