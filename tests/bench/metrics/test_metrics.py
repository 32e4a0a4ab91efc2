"""What holds for every metric, and each one's own rules."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bench.errors import UnknownNameError
from bench.metrics import METRICS, CorpusMetric, Metric, get_metrics
from bench.metrics.bleu import bleu_statistics, corpus_bleu_4
from bench.metrics.choices import choice_accuracy, chosen_letter
from bench.metrics.rouge import rouge_l
from bench.metrics.squad import exact_match, f1, normalize_answer

_TEXT = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from("the a cat Cat sat. ran , 3,5 Zoë".split()), max_size=12).map(" ".join),
)
_REFERENCES = st.lists(_TEXT, min_size=1, max_size=3)


def _value(metric: Metric, prediction: str, references: list[str]) -> float:
    if isinstance(metric, CorpusMetric):
        return float(metric.value(metric.statistics(prediction, references)))
    return metric.score(prediction, references)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=40, deadline=None)
@given(prediction=_TEXT, references=_REFERENCES)
def test_values_lie_in_0_1_in_any_order(name: str, prediction: str, references: list[str]) -> None:
    value = _value(METRICS[name], prediction, references)
    assert isinstance(value, float) and 0 <= value <= 1
    assert _value(METRICS[name], prediction, references[::-1]) == value
    if not isinstance(METRICS[name], CorpusMetric):
        assert value == max(_value(METRICS[name], prediction, [r]) for r in references)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u00a0"])
@pytest.mark.parametrize("reference", ["", " ", "the", "Paris"])
def test_a_prediction_without_text_scores_0(name: str, blank: str, reference: str) -> None:
    assert _value(METRICS[name], blank, [reference]) == 0


@pytest.mark.parametrize("name", METRICS)
def test_a_right_answer_scores_1(name: str) -> None:
    answer = "B" if name == "choice_accuracy" else "Anna walked to the old mill"
    assert _value(METRICS[name], answer, ["something else entirely", answer]) == pytest.approx(1)


@pytest.mark.parametrize("name", METRICS)
def test_lone_surrogates_from_broken_decoding_do_not_crash(name: str) -> None:
    assert 0 <= _value(METRICS[name], "bad \ud800 bytes here", ["bad bytes \udfff here"]) <= 1


def test_metrics_are_found_by_name_and_an_unknown_one_gets_a_guess() -> None:
    assert [m.name for m in get_metrics(["rouge_l", "f1", "rouge_l"])] == ["rouge_l", "f1"]
    assert [name for name, m in METRICS.items() if isinstance(m, CorpusMetric)] == ["bleu_4"]
    assert all(name == metric.name and metric.summary for name, metric in METRICS.items())
    with pytest.raises(UnknownNameError, match=r"Unknown metric 'rouge'\. Did you mean 'rouge_"):
        get_metrics(["rouge"])


def test_normalisation_drops_punctuation_before_articles() -> None:
    assert normalize_answer("  The A. an-other  the  ") == "another"
    assert normalize_answer("Zoë’s “cat”") == "zoë’s “cat”"


def test_bleu_takes_the_shortest_reference_length_and_keeps_case() -> None:
    assert list(bleu_statistics("Old mill", ["old mill by the river", "Old"])) == [
        *(2, 0, 0, 0),  # "Old" and "mill" match in different references, "Old mill" in none
        *(2, 1, 0, 0),
        *(2, 1),
    ]


def test_bleu_scores_many_sums_at_once() -> None:
    predictions = ("a b c d e f", "a b c d x", "", "f e d c")
    rows = np.array([bleu_statistics(prediction, ["a b c d e f"]) for prediction in predictions])
    together = corpus_bleu_4(np.stack([rows, rows[::-1]]))
    assert together.shape == (2, 4)
    assert list(together[0]) == [float(corpus_bleu_4(row)) for row in rows] == list(together[1][::-1])
    assert together[0, 0] == 1 and 0 < together[0, 1] < 1 and together[0, 2] == together[0, 3] == 0


def test_real_references_score_1_against_themselves(real_data: Path) -> None:
    for name in ("qasper", "hotpotqa", "musique_original", "narrativeqa_summaries"):
        for line in (real_data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n"):
            for answer in json.loads(line)["answers"] if line else ():
                if normalize_answer(answer):
                    assert f1(answer, ["x", answer]) == exact_match(answer, ["x", answer]) == 1
                if any(c.isascii() and c.isalnum() for c in answer):
                    assert rouge_l(answer, [answer]) == 1


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("The correct answer is (B)", "B"),
        ("I read it. **The correct answer is C.**", "C"),
        ("(D) the harbour", "D"),
        ("A", "A"),
        ("B: it was sold", "B"),
        ("A kite was hidden, so The correct answer is (D)", "D"),
        ("A kite was hidden", None),
        ("Because of rain", None),
        ("Answer: B", None),
        ("", None),
    ],
)
def test_the_letter_that_a_response_chooses(response: str, letter: str | None) -> None:
    assert chosen_letter(response) == letter
    assert choice_accuracy(response, ["B"]) == (letter == "B")


def test_a_score_leaves_the_root_logger_alone() -> None:
    script = (
        "import logging, sys; sys.modules.update(sklearn=None, scipy=None); "  # NLTK does without them
        "from bench.metrics.rouge import rouge_stemmed; rouge_stemmed('rougeL', 'a b', ['a c']); "
        "print(logging.getLogger().handlers)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
