"""How large a difference a comparison could have shown."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bench.results.power import Power, power_of


def test_one_question_a_document_is_the_textbooks_paired_test() -> None:
    differences = np.random.default_rng(0).normal(0.1, 0.4, 40)
    power = power_of(differences, [str(at) for at in range(40)])
    t = stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)
    assert power.detectable == pytest.approx(t * stats.sem(differences))


def test_questions_of_one_document_that_agree_are_one_question() -> None:
    few = np.array([0.3, -0.2, 0.1, 0.4, 0.0, -0.1])
    one, three = power_of(few, list("abcdef")), power_of(np.repeat(few, 3), list("aaabbbcccdddeeefff"))
    assert three.detectable == pytest.approx(one.detectable)


def test_a_true_difference_of_that_size_is_found_four_times_in_five() -> None:
    """By simulation: 12 documents of two questions that share half of their variance."""
    rng, documents = np.random.default_rng(1), np.repeat(np.arange(12), 2)
    names = list(map(str, documents))
    spread = [rng.normal(0, 0.3, 12)[documents] + rng.normal(0, 0.3, 24) for _ in range(400)]
    size = float(np.mean([power_of(one, names).detectable for one in spread]))  # type: ignore[union-attr]
    found = 0
    for one in spread:
        sums = np.bincount(documents, weights=one + size) / 2
        found += stats.ttest_1samp(sums, 0).pvalue < 0.05
    assert found / len(spread) == pytest.approx(0.8, abs=0.05)  # .69 by normal quantiles


def test_half_the_difference_needs_four_times_the_questions_less_what_more_documents_save_in_t() -> None:
    power = Power(detectable=0.1, n=48, documents=48)
    assert power.questions_for(0.1) == 48 and power.questions_for(0.05) == 187  # 192 by the pilot's t
    assert Power(detectable=0.108, n=7, documents=7).questions_for(0.05) == 25
    assert Power(detectable=0.1, n=14, documents=7).questions_for(0.5) == 12  # of six documents


def test_five_documents_and_equal_differences_tell_nothing_of_power() -> None:
    assert power_of([0.1, 0.2, 0.3, 0.2, 0.1], list("abcde")) is None  # no p-value is below 2 / 2^5
    assert power_of([0.2] * 6, list("abcdef")) is None
