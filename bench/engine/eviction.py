"""Which keys and values of a text can go before any question about it is known: two rules.

Both score every key of every layer and key head (:mod:`bench.engine.key_scores`) as NVIDIA's kvpress does:

- Expected Attention (Devoto et al. 2025, arXiv 2510.00636): the attention that queries at the next positions
  would pay, if they were distributed as those of the text, times the length of the value.
- KVzip (Kim et al. 2025, arXiv 2505.23416): the most attention that any token pays when the model is made to
  repeat the text. The chat template's opening is not repeated and stays; kvpress drops it before the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Eviction = Literal["kvzip", "expected"]
SINKS = 4
"""First tokens, which attention falls on whatever they say; never dropped (kvpress)."""
PIECE = 2048
"""Most tokens of the text that are read, or repeated, at once (KVzip)."""
OVERLAP = 8
"""Tokens of the piece before that the request to repeat a later piece ends with (KVzip)."""
REPEAT = "\n\nRepeat the previous context exactly."
REPEAT_FROM = "\n\nRepeat the part of the previous context exactly, starting with"


@dataclass(frozen=True)
class Repetition:
    """A piece of the text, and the tokens by which the model is made to repeat it."""

    start: int
    end: int
    """Half-open range of positions."""
    tokens: tuple[int, ...]


def repetitions(
    text: Sequence[int], opening: int, ask: Sequence[int], ask_from: Sequence[int], closing: Sequence[int]
) -> list[Repetition]:
    """What KVzip forwards behind a text whose first ``opening`` tokens are not repeated.

    ask, ask_from: tokens of ``REPEAT`` and ``REPEAT_FROM``; closing: of the end of the user's turn.
    """
    found = []
    for start in range(opening, len(text), PIECE):
        end = min(start + PIECE, len(text))
        request = ask if start == opening else (*ask_from, *text[start - OVERLAP : start])
        found.append(Repetition(start, end, (*request, *closing, *text[start:end])))
    return found


def kept_keys(scores: NDArray[np.float32], ratio: float, rule: Eviction) -> NDArray[np.bool_]:
    """Which keys stay if the share ``ratio`` of them is dropped, the lowest scores first; as ``scores``.

    KVzip drops the lowest of all layers and heads, Expected Attention as many in each head (kvpress). Those
    of infinite score stay, whatever the ratio.
    """
    if rule == "kvzip":
        rows, dropped = scores.reshape(1, -1), int(scores.size * ratio)
    else:
        rows = scores.reshape(-1, scores.shape[-1])
        dropped = rows.shape[1] - int(rows.shape[1] * (1 - ratio))
    stays = np.ones(rows.shape, dtype=bool)
    np.put_along_axis(stays, np.argsort(rows, axis=1, kind="stable")[:, :dropped], False, axis=1)
    return stays.reshape(scores.shape) | np.isinf(scores)
