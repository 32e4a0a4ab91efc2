"""Every metric against values that its official scorer gave (see "how" in official_cases.json)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.metrics import METRICS, CorpusMetric
from bench.metrics.bleu import ORDERS, bleu_statistics, corpus_bleu_4, tokenize_13a

_OFFICIAL = json.loads((Path(__file__).parent / "official_cases.json").read_text(encoding="utf-8"))
_CASES: list[dict[str, Any]] = _OFFICIAL["cases"]

_OF_TEXT = [name for name in METRICS if name != "choice_accuracy"]
"""Letters have cases of their own, in test_metrics.py."""


@pytest.mark.parametrize("name", _OF_TEXT)
def test_every_case_has_the_official_value(name: str) -> None:
    metric = METRICS[name]
    wrong = []
    for case in _CASES:
        prediction, references = case["prediction"], case["references"]
        if isinstance(metric, CorpusMetric):
            ours = float(metric.value(metric.statistics(prediction, references)))
        else:
            ours = metric.score(prediction, references)
        if name == "exact_match" and not prediction.strip():
            assert ours == 0  # our choice: a prediction without text never scores
        elif ours != pytest.approx(case["expected"][name], rel=1e-12, abs=1e-15):
            wrong.append((prediction[:60], references[0][:60], ours, case["expected"][name]))
    assert not wrong


@pytest.mark.parametrize("corpus", _OFFICIAL["corpora"], ids=lambda c: f"{len(c['cases'])} questions")
def test_corpus_bleu_has_the_official_value(corpus: dict[str, Any]) -> None:
    counts = np.sum(
        [bleu_statistics(_CASES[i]["prediction"], _CASES[i]["references"]) for i in corpus["cases"]], axis=0
    )
    assert list(counts[-2:]) == [corpus["prediction_length"], corpus["reference_length"]]
    predicted = np.maximum(counts[ORDERS : 2 * ORDERS], 1)
    assert counts[:ORDERS] / predicted == pytest.approx(corpus["precisions"], rel=1e-12)
    assert float(corpus_bleu_4(counts)) == pytest.approx(corpus["bleu_4"], rel=1e-12)


def test_13a_tokens_are_the_official_ones() -> None:
    for case in _OFFICIAL["tokens_13a"]:
        assert tokenize_13a(case["text"]) == case["tokens"]
