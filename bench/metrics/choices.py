"""Accuracy on questions with lettered choices, as LongBench v2 scores them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STATED = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
_BARE = re.compile(r"\(?([A-D])(?:[).:,\n]|$)")


def chosen_letter(response: str) -> str | None:
    """The letter that a response chooses; None if it chooses none.

    LongBench v2 (pred.py, extract_answer) takes the letter after "The correct answer is", stars left out. A
    response that begins with a letter, as "B", "(B)" or "B: ..." do, chooses it as well  # our choice: only
    one prompt asks for that sentence.
    """
    text = response.replace("*", "").strip()
    stated = (pattern.search(text) for pattern in _STATED)
    choice = next(filter(None, stated), None) or _BARE.match(text)
    return choice[1] if choice else None


def choice_accuracy(prediction: str, references: Sequence[str]) -> float:
    """1 when the prediction chooses the letter that a reference is, else 0."""
    return float(chosen_letter(prediction) in references)
