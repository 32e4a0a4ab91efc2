"""Top groups and rank intervals against plain loops over the same definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.results import comparison
from bench.results.comparison import holm, permutation_p_value
from bench.results.standing import standings


def rows_of(documents: int, *shifts: float) -> tuple[NDArray[np.float64], list[str]]:
    """Two questions per document; each row is the first one, shifted, with noise of its own."""
    rng = np.random.default_rng(5)
    values = rng.random((2 * documents, 1)) + 0.05 * rng.standard_normal((2 * documents, len(shifts)))
    return values + np.array(shifts), [f"d{i // 2}" for i in range(2 * documents)]


@pytest.mark.parametrize("documents", [12, 40])
def test_the_top_group_is_the_best_row_and_its_equals(documents: int) -> None:
    values, clusters = rows_of(documents, 0.0, -0.5, 0.0, -1.0)
    found = standings(values, clusters, rng=np.random.default_rng(0))
    assert [of.top for of in found] == [True, False, True, False]
    assert sorted(of.rank for of in found[::2]) == [1, 2]
    assert [(of.rank, of.low, of.high) for of in found[1::2]] == [(3, 3, 3), (4, 4, 4)]


def test_documents_that_could_tell_no_rows_apart_mark_none() -> None:
    """Of 7 documents the smallest p-value is 2 / 2^7, above .05 for each of six pairs; 528 get more swaps."""
    for documents, others, marked in ((7, 1, True), (7, 3, False), (40, 32, True)):
        values, clusters = rows_of(documents, 0.0, *[-5.0] * others)
        found = standings(values, clusters, rng=np.random.default_rng(0))
        assert [of.top for of in found] == [marked, *[False] * others]


def test_the_top_group_is_that_of_one_test_for_each_pair_and_holms_correction() -> None:
    values, clusters = rows_of(11, 0.0, -0.03, -0.06, -0.09, -0.12)
    pairs = list(itertools.combinations(range(5), 2))
    rng = np.random.default_rng(0)
    p_values = [permutation_p_value(values[:, i] - values[:, j], clusters, rng=rng) for i, j in pairs]
    best = int(values.mean(axis=0).argmax())
    told = {pair for pair, p in zip(pairs, holm(p_values), strict=True) if p < 0.05}
    expected = [(min(i, best), max(i, best)) not in told for i in range(5)]
    assert [of.top for of in standings(values, clusters, rng=rng)] == expected
    assert True in expected and False in expected


def test_a_rank_interval_is_that_of_all_resamples() -> None:
    """Four documents have 4^4 resamples, each as likely; ties take the better rank."""
    values, clusters = np.array([[3.0, 2, 1], [0, 2, 2], [1, 1, 1], [2, 1, 0]]), list("abcd")
    ranks = [
        [1 + sum(b > a for b in totals) for a in totals]
        for drawn in itertools.product(range(4), repeat=4)
        for totals in [values[list(drawn)].sum(axis=0)]
    ]
    ordered = np.sort(np.array(ranks), axis=0)
    found = standings(values, clusters, rng=np.random.default_rng(1))
    ends = [int(np.ceil(share * 256)) - 1 for share in (0.025, 0.975)]
    assert [[of.low, of.high] for of in found] == ordered[ends].T.tolist()
    assert [of.rank for of in found] == [1, 1, 3]


def test_blocks_change_nothing_but_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = rows_of(20, 0.0, -0.5, -1.0)
    whole = standings(values, clusters, rng=np.random.default_rng(0))
    monkeypatch.setattr(comparison, "_BLOCK", 7 * 20)
    assert standings(values, clusters, rng=np.random.default_rng(0)) == whole


def test_equal_rows_share_the_first_rank() -> None:
    values = np.repeat(np.random.default_rng(0).random((30, 1)), 3, axis=1)
    found = standings(values, [str(i) for i in range(30)], rng=np.random.default_rng(0))
    assert {(of.top, of.rank, of.low, of.high) for of in found} == {(True, 1, 1, 1)}
