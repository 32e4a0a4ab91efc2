"""How the next token is chosen."""

from __future__ import annotations

from dataclasses import dataclass

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
