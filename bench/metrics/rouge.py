"""ROUGE in the variants that the papers use: two packages, with and without stemming.

``rouge_l`` (package rouge-score, no stemmer) reproduces PECAN and GARLIC: their ROUGE-L equals their
F1 within 0.1 on HotpotQA and MuSiQue, in both directions, which case-sensitive scoring cannot give.
The names ending in ``_stem`` and ``rouge_1``, ``rouge_2`` are Graph of Records' (with stemmer).
"""

from __future__ import annotations

import threading
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


def rouge_l_longbench(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F as LongBench's own script scores it, best reference, in 0..1.

    Package ``rouge`` 1.0.1, summary level: case- and punctuation-sensitive, sentences split at ".".
    LongBench turns every exception into 0, and so does this function: a text of points alone, and
    recursion too deep for the interpreter (from 991 equal tokens on, or 496 on each side with nothing
    in common, at Python's default limit of 1,000).
    A prediction of white space alone is 0 (our choice: the package finds the empty word in it).
    Source: LongBench, metrics.py, rouge_score.
    """
    if not prediction.strip():
        return 0.0
    scoring = _FreshStack(prediction, references)
    scoring.start()
    scoring.join()
    return max(scoring.scores)


class _FreshStack(threading.Thread):
    """Scores in a thread of its own, as deep in the stack as LongBench's script is when it scores.

    The package recurses once per token, so that the length at which it fails depends on the caller's
    depth; on a fresh stack it does not, and the interpreter's recursion limit stays untouched.
    """

    def __init__(self, prediction: str, references: Sequence[str]) -> None:
        super().__init__(name="rouge_l_longbench", daemon=True)
        self.prediction, self.references = prediction, references
        self.scores: list[float] = []

    def run(self) -> None:
        from rouge import Rouge

        package = Rouge(metrics=["rouge-l"])
        for reference in self.references:
            try:
                scores = package.get_scores([self.prediction], [reference], avg=True)
            except Exception:  # as LongBench's bare except: part of the metric
                self.scores.append(0.0)
            else:
                self.scores.append(float(scores["rouge-l"]["f"]))


def _rouge_score(kind: str, prediction: str, references: Sequence[str], *, stem: bool) -> float:
    best = _scorer(kind, stem).score_multi(references, prediction)
    return float(best[kind].fmeasure)


@cache
def _scorer(kind: str, stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # Without a tokenizer it takes this one, and logs that, which makes absl print every later log line twice.
    return RougeScorer([kind], tokenizer=DefaultTokenizer(stem))
