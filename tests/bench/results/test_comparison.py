import io
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console
from scipy import stats

from bench.cli.compare import command_of, describe, most_different, print_pair
from bench.errors import ConfigError
from bench.method.options import parse_assignments
from bench.results.comparison import PERMUTATIONS, compare, holm, permutation_p_value
from bench.results.records import Record
from bench.run.cell import CellRequest
from tests import cells


def record(number: int, document: str, score: float, flops: int = 10, question: str = "Who?") -> Record:
    return cells.record(
        number,
        document_ids=[document],
        question=question,
        answers=["Mara"],
        prediction=f"answer {score}",
        scores={"f1": score},
        flops=cells.flops(flops, 5),
        trace=None,
    )


def cell(scores: Sequence[float], documents: str, flops: int = 10) -> list[Record]:
    return [record(i, d, s, flops) for i, (s, d) in enumerate(zip(scores, documents, strict=True))]


def test_means_counts_and_the_ratio_of_costs() -> None:
    comparison = compare(cell([1, 0.5, 0, 0.25], "aabb", 30), cell([0.5, 0.5, 0.5, 0.25], "aabb", 10), "f1")
    assert comparison.first == pytest.approx(0.4375) and comparison.second == pytest.approx(0.4375)
    assert comparison.difference.mean == pytest.approx(0)
    assert (comparison.better, comparison.equal, comparison.worse) == (1, 2, 1)
    assert comparison.flop_ratio.mean == pytest.approx(3) and comparison.documents == 2
    unanswered = [r.model_copy(update={"answers": []}) for r in cell([1, 0], "ab", 0)]
    free = compare(cell([1, 0.5], "ab"), unanswered, "f1")
    assert free.flop_ratio is None and "no ratio to those of B" in describe(free, "A", "B")
    failed = cell([1, 0, 1], "abc") + [record(3, "d", 0, 0).model_copy(update={"error": "OSError: no"})]
    text = describe(compare(failed, failed, "f1"), "A", "B")  # 1 resample in 256 costs nothing
    assert "FLOPs       1.00 times those of B" in text and "failed      scored 0: 1 of A, 1 of B" in text


def test_the_exact_test_tries_every_swap_of_documents() -> None:
    rng = np.random.default_rng(0)
    differences, clusters = rng.normal(0.1, 0.4, 12), list("aabbccddeeff")
    sums = differences.reshape(6, 2).sum(1)
    swaps = [np.dot(signs, sums) for signs in itertools.product((-1, 1), repeat=6)]
    expected = np.mean([abs(s) >= abs(sums.sum()) - 1e-12 for s in swaps])
    assert permutation_p_value(differences, clusters, rng=rng) == pytest.approx(expected)


SIGNS = st.lists(st.sampled_from([-1, 1]), min_size=2, max_size=11)


@settings(max_examples=60, deadline=None)
@given(signs=SIGNS, size=st.floats(0.01, 1), sizes=st.lists(st.integers(1, 4), min_size=11, max_size=11))
def test_equal_differences_give_the_sign_test(signs: list[int], size: float, sizes: list[int]) -> None:
    """However many questions each document's difference is divided among."""
    shares = list(zip(signs, sizes[: len(signs)], strict=True))
    differences = [sign * size / n for sign, n in shares for _ in range(n)]
    clusters = [f"d{at}" for at, (_, n) in enumerate(shares) for _ in range(n)]
    expected = stats.binomtest(signs.count(1), len(signs)).pvalue
    assert permutation_p_value(differences, clusters, rng=np.random.default_rng(0)) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(signs=SIGNS, order=st.permutations(range(1, 12)))
def test_differences_that_are_ranks_give_wilcoxons_p_value(signs: list[int], order: list[int]) -> None:
    ranks = stats.rankdata(order[: len(signs)])
    differences, clusters = ranks * signs / 16, [str(at) for at in range(len(signs))]
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert permutation_p_value(differences, clusters, rng=np.random.default_rng(0)) == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_correction_is_the_closed_test_of_bonferronis(p_values: list[float]) -> None:
    """A hypothesis falls with every intersection that it belongs to (Marcus, Peritz and Gabriel 1976)."""
    several = range(1, len(p_values) + 1)
    subsets = [s for n in several for s in itertools.combinations(range(len(p_values)), n)]
    bonferroni = {s: min(1, len(s) * min(p_values[at] for at in s)) for s in subsets}
    closed = [max(p for s, p in bonferroni.items() if at in s) for at in range(len(p_values))]
    assert holm(p_values) == pytest.approx(closed)


def test_equal_cells_have_p_1_and_a_clear_difference_a_small_one_never_0() -> None:
    documents, rng = [f"d{i}" for i in range(30)], np.random.default_rng(0)
    assert permutation_p_value(np.zeros(30), documents, rng=rng) == 1
    assert permutation_p_value(np.full(30, 0.5), documents, rng=rng) == 1 / (PERMUTATIONS + 1)  # no hit
    assert permutation_p_value(np.full(30, 0.5), ["one"] * 30, rng=rng) == 1  # one document proves nothing


def test_under_the_null_hypothesis_the_test_rejects_one_in_twenty() -> None:
    rng = np.random.default_rng(1)
    clusters = [f"d{i // 3}" for i in range(30)]
    p = [
        permutation_p_value(np.repeat(rng.normal(size=10), 3) + rng.normal(size=30), clusters, rng=rng)
        for _ in range(400)
    ]
    assert 0.02 < np.mean([x <= 0.05 for x in p]) < 0.09


def test_questions_of_one_cell_alone_are_left_out_and_counted() -> None:
    comparison = compare(cell([1, 1, 0], "abc"), cell([1, 0], "ab"), "f1")
    assert (comparison.only_first, comparison.only_second, len(comparison.pairs)) == (1, 0, 2)
    assert "left out    1 question that only A has" in describe(comparison, "A", "B")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="no question in common"):
        compare(cell([1], "a"), [record(7, "a", 1)], "f1")
    with pytest.raises(ConfigError, match="q0 is not the same one"):
        compare(cell([1], "a"), cell([1], "b"), "f1")
    corrected = [one.model_copy(update={"answers": ["other"]}) for one in cell([1], "a")]
    with pytest.raises(ConfigError, match="q0 has other reference answers in the two cells"):
        compare(cell([1], "a"), corrected, "f1")
    with pytest.raises(ConfigError, match="no value of 'bleu_4' per question; these records have: f1"):
        compare(cell([1], "a"), cell([1], "a"), "bleu_4")


def test_the_command_of_a_missing_cell_has_its_options_as_they_are_typed() -> None:
    options = {"ranker_options": {"k1": 1.2}, "t_c": None, "order": "rank", "encoder": "7"}
    words = shlex.split(command_of(CellRequest("rerank", "qasper", options=options), Path("results")))
    typed = [word for flag, word in itertools.pairwise(words) if flag == "--set"]
    assert "order=rank" in typed and parse_assignments(typed) == options


def test_the_questions_that_differ_most_come_first_and_read_side_by_side() -> None:
    comparison = compare(cell([1, 0.5, 0, 0], "abcd"), cell([0.9, 0.5, 0.6, 1], "abcd"), "f1")
    chosen = most_different(comparison, 2)
    assert [pair.first.example_id for pair in chosen] == ["q3", "q2"]
    written = io.StringIO()
    print_pair(Console(file=written, width=100, highlight=False), chosen[0], "f1", "pecan", "bm25:k=7")
    lines = [line.rstrip() for line in written.getvalue().splitlines()]
    assert lines[0].split() == ["example", "q3"] and "Mara" in lines[2]
    cells = {line.split()[0]: line.split()[1:] for line in lines[3:]}
    assert cells["pecan"] == ["bm25:k=7"] and cells["F1"] == ["0", "%", "100", "%"]
    assert cells["answer"] == ["'answer", "0'", "'answer", "1'"]
    second = zip(lines[3:6], ("bm25:k=7", "'answer 1'", "100"), strict=True)
    assert len({line.index(text) for line, text in second}) == 1 and max(map(len, lines)) <= 100


def test_the_verdict_needs_interval_and_test() -> None:
    names = "abcdefghijkl"
    for ours, theirs, documents, said in (
        ([1] * 12, [0.2] * 12, names, "A scores higher than B."),
        ([0.2] * 12, [1] * 12, names, "A scores lower than B."),
        ([1, 0] * 6, [0, 1] * 6, names, "These questions do not tell the two apart."),
        ([1] * 12, [1] * 12, names, "power       unknown: too few documents, or no spread, to plan from"),
        ([1, 1], [0, 0], "aa", "Too few documents to tell the two apart."),
    ):
        assert said in describe(compare(cell(ours, documents), cell(theirs, documents), "f1"), "A", "B")
