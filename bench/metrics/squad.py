"""Token F1 and exact match on SQuAD-normalised text, as LongBench and Qasper score answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation and articles, single-spaced.

    Punctuation goes before the articles do: "A." normalises to "", "a-b" to "ab". Other alphabets,
    accents and typographic quotes stay. Source: SQuAD v1.1 evaluation, adopted by LongBench
    (metrics.py, normalize_answer) and Qasper.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def f1(prediction: str, references: Sequence[str]) -> float:
    """Multiset F1 of the normalised tokens, best reference, in 0..1.

    0 when no token is shared, also when both sides normalise to nothing. An unanswerable question
    has the reference "Unanswerable" and needs no rule of its own.
    Source: LongBench, metrics.py, qa_f1_score; the maximum over references: eval.py, scorer.
    """
    return max(_token_f1(prediction, reference) for reference in references)


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """1 when the normalised prediction equals a normalised reference, else 0.

    A prediction without text is 0 even if a reference normalises to nothing (our choice: a missing
    answer is never right). Source: SQuAD v1.1 evaluation, exact_match_score.
    """
    if not prediction.strip():
        return 0.0
    normalized = normalize_answer(prediction)
    return float(any(normalized == normalize_answer(reference) for reference in references))


def _token_f1(prediction: str, reference: str) -> float:
    predicted = normalize_answer(prediction).split()
    expected = normalize_answer(reference).split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)
