"""Two cells beside what a paper prints of them."""

from __future__ import annotations

from typing import Any

import pytest

from bench.cli.compare import describe_printed
from bench.method.options import build_config
from bench.method.registry import load_method
from bench.results.comparison import paired
from bench.results.models import CellDescription
from bench.results.records import FlopCounts, Record, TokenCounts
from bench.tables.printed_pairs import printed_pair
from tests import cells


def cell(method: str, dataset: str = "hotpotqa", **options: Any) -> CellDescription:
    config = build_config(load_method(method).Config, options, method).model_dump(mode="json")
    return cells.description(method=method, dataset=dataset, config=config)


def records(scores: list[float], flops: int) -> list[Record]:
    return [
        Record(
            example_id=f"q{n}",
            document_ids=[f"d{n}"],
            question="?",
            answers=["a"],
            prediction="a",
            scores={"f1": score},
            context=[],
            tokens=TokenCounts(prompt=1, completion=1, forwarded=2),
            flops=FlopCounts(query=flops, index=0, convention="paper", query_by_model={}, index_by_model={}),
            truncated=False,
            flags=[],
            wall_s=0.1,
            error=None,
            trace={},
        )
        for n, score in enumerate(scores)
    ]


PAIRS = paired(records([1.0, 1.0, 0.0], 16), records([0.0, 1.0, 0.0], 23))


def test_two_rows_of_a_paper_have_its_values_and_whether_the_order_is_the_same() -> None:
    pecan, bm25 = cell("pecan"), cell("bm25", k=5)
    printed = printed_pair(pecan, bm25, PAIRS, "f1")
    assert printed is not None
    assert (printed.source, printed.first, printed.second) == ("PECAN, Table 1", 43.5, 40.8)
    assert (printed.tau.mean, printed.tau.low) == (1.0, 0.0)  # documents without the first one have no order
    cost = printed_pair(pecan, bm25, PAIRS, "tflops")
    assert cost is not None and (cost.first, cost.second, cost.tau.mean) == (16.0, 22.9, 1.0)
    turned = printed_pair(bm25, pecan, PAIRS, "f1")
    assert turned is not None and turned.tau.mean == -1.0


def test_the_papers_own_choice_of_k_and_chunks_of_a_smaller_reader_are_its_rows() -> None:
    top_x = printed_pair(cell("pecan"), cell("bm25", k=4), PAIRS, "f1")
    five = printed_pair(cell("pecan"), cell("bm25", k=5, prompt="longbench"), PAIRS, "f1")
    assert top_x is not None and five is not None and top_x.second != five.second
    lengths = {"chunk_tokens": 64, "overlap_tokens": 8, "join_documents": "off"}  # of chunks of 75, not 300
    contriever = cell("contriever", "wcep", k=6, similarity="cosine", **lengths)
    printed = printed_pair(contriever, cell("gor", "wcep"), PAIRS, "tflops")
    assert printed is None, "the paper prints no cost"
    scored = [pair.first.model_copy(update={"scores": {"rouge_1": 1.0}}) for pair in PAIRS]
    printed = printed_pair(contriever, cell("gor", "wcep"), paired(scored, scored), "rouge_1")
    assert printed is not None and (printed.first, printed.second, printed.tau.mean) == (23.5, 25.4, 0.0)


@pytest.mark.parametrize(
    ("other", "metric"),
    [
        (cell("bm25", k=6), "f1"),  # no row of any table
        (cell("bm25", k=5, order="document"), "f1"),
        (cell("bm25", "qasper", k=5), "f1"),  # another data set
        (cell("bm25", k=5), "rouge_1"),
    ],
)
def test_what_no_paper_prints_has_nothing_beside_it(other: CellDescription, metric: str) -> None:
    assert printed_pair(cell("pecan"), other, PAIRS, metric) is None


def test_the_line_says_values_source_and_tau() -> None:
    printed = printed_pair(cell("pecan"), cell("bm25", k=5), PAIRS, "tflops")
    assert printed is not None
    assert describe_printed(printed, "pecan", "bm25:k=5") == (
        "paper       pecan 16 TFLOPs, bm25:k=5 22.9 TFLOPs (PECAN, Table 1); the same order here: "
        "Kendall's tau 1 [1, 1]"
    )
