"""Tokens of content words, whose attention may say more than that of "the" or "of" (PECAN, Limitations)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FUNCTION_WORDS = frozenset(
    """
    a about above after again against all also although always am among an and any are as at back be
    because been before being below between both but by can could did do does doing done down during
    each either else ever every few for from further had has have having he her here hers herself
    him himself his how however i if in into is it its itself just least less let like many may me
    might mine more most much must my myself neither never no nor not now of off often on once one
    only or other others our ours ourselves out over own per perhaps quite rather s same shall she
    should since so some still such t than that the their theirs them themselves then there these
    they this those though through thus to too toward towards under until up upon us very was we
    were what when where whether which while who whom whose why will with within without would yet
    you your yours yourself yourselves
    """.split()
)
"""English articles, pronouns, prepositions, conjunctions, auxiliaries, and the commonest adverbs."""

_WORD = re.compile(r"\w+")


def content_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Whether each token touches a content word; all of them if there is none. Shape (tokens,).

    offsets: the character range of each token in the text.
    """
    inside = np.zeros(len(text) + 1, dtype=np.int64)
    for word in _WORD.finditer(text):
        if word[0].lower() not in FUNCTION_WORDS:
            inside[word.start() + 1 : word.end() + 1] = 1
    before = inside.cumsum()  # characters of content words before each position
    ranges = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    touches = before[ranges[:, 1]] > before[ranges[:, 0]]
    return touches if touches.any() else np.ones(len(ranges), dtype=bool)
