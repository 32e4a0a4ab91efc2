"""ROUGE in the variants that the papers use: with and without stemming.

``rouge_l`` (no stemmer) reproduces PECAN and GARLIC: their ROUGE-L equals their
F1 within 0.1 on HotpotQA and MuSiQue, in both directions, which case-sensitive scoring cannot give.
The names ending in ``_stem`` and ``rouge_1``, ``rouge_2`` are Graph of Records' (with stemmer).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F of rouge-score without stemming, best reference, in 0..1.

    Lower-cases, keeps runs of [a-z0-9] only (so text in other alphabets scores 0) and keeps articles.
    Source: package rouge-score 0.1.2, ``rougeL``, use_stemmer=False, as Hugging Face evaluate runs it. Not
    through the package: it imports NLTK, which takes several times as long as scoring a table.
    """
    words = _WORD.findall(prediction.lower())
    return max(_f1_of_common(words, _WORD.findall(reference.lower())) for reference in references)


def rouge_stemmed(kind: str, prediction: str, references: Sequence[str]) -> float:
    """ROUGE F of rouge-score with Porter stemming, best reference, in 0..1.

    kind: ``rouge1``, ``rouge2`` or ``rougeL``. Source: Graph of Records, sum_eval.py.
    """
    return float(_scorer(kind).score_multi(references, prediction)[kind].fmeasure)


def _f1_of_common(words: Sequence[str], reference: Sequence[str]) -> float:
    """The harmonic mean of the shares of both texts that their longest common subsequence is."""
    common = _longest_common(words, reference)
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(reference)
    return 2 * precision * recall / (precision + recall)  # the package's own rounding


def _longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    lengths = [0] * (len(second) + 1)
    for word in first:
        before = 0  # the length for the words before this one in both texts
        for j, other in enumerate(second, start=1):
            above = lengths[j]
            lengths[j] = before + 1 if word == other else max(above, lengths[j - 1])
            before = above
    return lengths[-1]


@cache
def _scorer(kind: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # Without a tokenizer it takes this one, and logs that, which makes absl print every later log line twice.
    return RougeScorer([kind], tokenizer=DefaultTokenizer(use_stemmer=True))
