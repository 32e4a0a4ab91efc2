"""The metrics by name: every value is in 0..1, more is better; tables print it times 100.

A :class:`QuestionMetric` has a value per question, the best over its references; a table shows the
plain mean. A :class:`CorpusMetric` (BLEU-4) has counts per question and one value for all of them.
A prediction without text counts 0 and is never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.errors import UnknownNameError
from bench.metrics.bleu import bleu_statistics, corpus_bleu_4
from bench.metrics.choices import choice_accuracy
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.metrics.rouge import rouge_l, rouge_stemmed
from bench.metrics.squad import exact_match, f1


@dataclass(frozen=True)
class QuestionMetric:
    """A metric with one value per question; over a data set, their mean."""

    name: str
    summary: str
    """What it is and where it comes from, in one line."""
    score: Callable[[str, Sequence[str]], float]
    """Prediction and at least one reference to a value in 0..1, the best over the references."""


@dataclass(frozen=True)
class CorpusMetric:
    """A metric that is defined over all questions at once, from counts that add up."""

    name: str
    summary: str
    """What it is and where it comes from, in one line."""
    statistics: Callable[[str, Sequence[str]], NDArray[np.int64]]
    """Prediction and at least one reference to the question's counts, shape (k,)."""
    value: Callable[[NDArray[np.number]], NDArray[np.float64]]
    """Summed counts, shape (..., k), to the metric in 0..1, shape (...)."""


Metric: TypeAlias = QuestionMetric | CorpusMetric


def _stemmed(name: str, variant: str) -> QuestionMetric:
    about = f"ROUGE-{variant} F, rouge-score with stemmer (Graph of Records)"
    return QuestionMetric(name, about, partial(rouge_stemmed, f"rouge{variant}"))


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        QuestionMetric("f1", "token F1 on SQuAD-normalised text (LongBench qa_f1_score)", f1),
        QuestionMetric("exact_match", "equality of SQuAD-normalised text (SQuAD v1.1)", exact_match),
        QuestionMetric(
            "choice_accuracy", "share of right choices by their letter (LongBench v2)", choice_accuracy
        ),
        QuestionMetric("rouge_l", "ROUGE-L F, rouge-score without stemmer", rouge_l),
        CorpusMetric(
            "bleu_4",
            "corpus BLEU-4, 13a tokens, no smoothing, shortest reference (Hugging Face evaluate)",
            bleu_statistics,
            corpus_bleu_4,
        ),
        _stemmed("rouge_1", "1"),
        _stemmed("rouge_2", "2"),
        _stemmed("rouge_l_f1_stem", "L"),
    )
}
"""Metric name -> metric."""


def get_metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of those names in that order, each once; raises UnknownNameError."""
    distinct = list(dict.fromkeys(names))
    for name in distinct:
        if name not in METRICS:
            raise UnknownNameError("metric", name, METRICS)
    return tuple(METRICS[name] for name in distinct)


METRIC_LABELS: Mapping[str, str] = {
    "f1": "F1",
    "rouge_l": "ROUGE-L",
    "bleu_4": "BLEU-4",
    "exact_match": "EM",
    "choice_accuracy": "Accuracy",
    "rouge_1": "R-1",
    "rouge_2": "R-2",
    "rouge_l_f1_stem": "R-L",
    "tflops": "TFLOPs",
    **RETRIEVAL_MEASURES,
}
"""Metric, measure or cost -> label of its column."""


def label_of(metric: str) -> str:
    """The label of its column; of a metric that is not ours, its name."""
    return METRIC_LABELS.get(metric, metric)
