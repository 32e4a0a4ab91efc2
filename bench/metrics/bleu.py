"""Corpus BLEU-4 as Hugging Face evaluate computes it, split into counts per question and their score.

BLEU has no value per question: counts are summed over questions and scored once. An interval comes
from summing resampled counts (:func:`bench.metrics.statistics.clustered_bootstrap_of`), which needs no text.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ORDERS = 4
"""Longest n-gram."""

STATISTICS = 2 * ORDERS + 2
"""Counts per question: n-grams matched, n-grams predicted, prediction length, reference length."""

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_SEPARATE = "".join(c for c in string.punctuation if c not in "',-.")
_RULES = (
    (re.compile(f"([{re.escape(_SEPARATE)}])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # a point or comma stays in a number, as in 1,000.5
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def tokenize_13a(text: str) -> list[str]:
    """Tokens of mteval-v13a, case kept: punctuation split off, points and commas inside numbers kept.

    Source: NIST mteval-v13a; in Hugging Face evaluate: metrics/bleu/tokenizer_13a.py.
    """
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.split()


def bleu_statistics(prediction: str, references: Sequence[str]) -> NDArray[np.int64]:
    """Counts of one question, shape (10,): matched 1..4-grams, predicted 1..4-grams, two lengths.

    A match is clipped at its largest count in any one reference; the last entry is the length of the
    shortest reference. Source: nmt/scripts/bleu.py, compute_bleu.
    """
    predicted_tokens = tokenize_13a(prediction)
    reference_tokens = [tokenize_13a(reference) for reference in references]
    counts = np.zeros(STATISTICS, dtype=np.int64)
    for order in range(1, ORDERS + 1):
        predicted = _ngrams(predicted_tokens, order)
        allowed: Counter[tuple[str, ...]] = Counter()
        for tokens in reference_tokens:
            allowed |= _ngrams(tokens, order)
        counts[order - 1] = (predicted & allowed).total()
        counts[ORDERS + order - 1] = predicted.total()
    counts[-2:] = len(predicted_tokens), min(len(tokens) for tokens in reference_tokens)
    return counts


def corpus_bleu_4(statistics: NDArray[np.number]) -> NDArray[np.float64]:
    """BLEU-4 of summed counts, in 0..1: shape (..., 10) to shape (...).

    Geometric mean of the four precisions times the brevity penalty; no smoothing, so 0 as soon as one
    order has no match. Source: nmt/scripts/bleu.py, compute_bleu; Papineni et al. 2002.
    """
    matched = statistics[..., :ORDERS].astype(np.float64)
    predicted = statistics[..., ORDERS : 2 * ORDERS].astype(np.float64)
    predicted_length = statistics[..., -2].astype(np.float64)
    reference_length = statistics[..., -1].astype(np.float64)
    defined = (matched > 0).all(axis=-1) & (reference_length > 0)
    precision = np.divide(matched, predicted, out=np.ones_like(matched), where=defined[..., None])
    shortfall = np.divide(
        reference_length, predicted_length, out=np.ones_like(predicted_length), where=defined
    )
    penalty = np.exp(np.minimum(0.0, 1.0 - shortfall))
    return np.asarray(np.where(defined, np.exp(np.log(precision).mean(axis=-1)) * penalty, 0.0))


def _ngrams(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))
