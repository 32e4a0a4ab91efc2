"""ROUGE in the variants that the papers use: with and without stemming.

``rouge_l`` (no stemmer) reproduces PECAN and GARLIC: their ROUGE-L equals their
F1 within 0.1 on HotpotQA and MuSiQue, in both directions, which case-sensitive scoring cannot give.
The names ending in ``_stem`` and ``rouge_1``, ``rouge_2`` are Graph of Records' (with stemmer).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


def rouge_l(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F of rouge-score without stemming, best reference, in 0..1.

    Lower-cases, keeps runs of [a-z0-9] only (so text in other alphabets scores 0) and keeps articles.
    Source: package rouge-score 0.1.2, ``rougeL``, use_stemmer=False, as Hugging Face evaluate runs it.
    """
    return _rouge_score("rougeL", prediction, references, stem=False)


def rouge_1(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-1 F of rouge-score with Porter stemming, best reference, in 0..1.

    Source: Graph of Records, sum_eval.py.
    """
    return _rouge_score("rouge1", prediction, references, stem=True)


def rouge_2(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-2 F of rouge-score with Porter stemming, best reference, in 0..1.

    Source: Graph of Records, sum_eval.py.
    """
    return _rouge_score("rouge2", prediction, references, stem=True)


def rouge_l_f1_stem(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F of rouge-score with Porter stemming, best reference, in 0..1.

    Source: Graph of Records, sum_eval.py.
    """
    return _rouge_score("rougeL", prediction, references, stem=True)


def _rouge_score(kind: str, prediction: str, references: Sequence[str], *, stem: bool) -> float:
    best = _scorer(kind, stem).score_multi(references, prediction)
    return float(best[kind].fmeasure)


@cache
def _scorer(kind: str, stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # Without a tokenizer it takes this one, and logs that, which makes absl print every later log line twice.
    return RougeScorer([kind], tokenizer=DefaultTokenizer(stem))
