"""Kendall's tau between our order of the rows and the paper's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from bench.tables.caption import about_order
from bench.tables.cells import TableCell, TableData
from bench.tables.order import kendall_tau, order_agreement, order_agreements
from bench.tables.published import Published
from tests import cells


def table(folder: Path, rows: dict[str, tuple[list[float], int]]) -> TableData:
    """rows: the scores of each, and what each of its questions costs."""
    records = {}
    for name, (scores, cost) in rows.items():
        one = partial(cells.record, flops=cells.flops(cost))
        records[name] = [one(number, scores={"f1": score}) for number, score in enumerate(scores)]
    return cells.table_of_records(folder, records)


def printed(**values: tuple[float, float]) -> dict[tuple[str, str, str], Published]:
    return {
        (row, "qasper", metric): Published(value, "S", row)
        for row, pair in values.items()
        for metric, value in zip(("f1", "tflops"), pair, strict=True)
    }


def test_tau_is_scipys_with_ties_too() -> None:
    rng = np.random.default_rng(3)
    theirs = rng.integers(0, 4, 9)
    ours = rng.integers(0, 5, (20, 9))
    expected = [kendalltau(row, theirs).statistic for row in ours]
    assert kendall_tau(ours, theirs) == pytest.approx(expected)


def test_scores_may_agree_where_costs_are_reversed(tmp_path: Path) -> None:
    ours = table(tmp_path, {"a": ([0.9] * 6, 1), "b": ([0.5] * 6, 2), "c": ([0.1] * 6, 3)})
    paper = printed(a=(60, 30), b=(50, 20), c=(40, 10))
    score, cost = (order_agreement(ours, paper, "qasper", metric) for metric in ("f1", "tflops"))
    assert (score.tau.mean, score.tau.low, score.tau.high, score.rows) == (1, 1, 1, 3)
    assert cost.tau.mean == -1
    notes = about_order(order_agreements(ours, paper))
    assert "by F1" in notes[0] and "qasper 1.00 [1.00, 1.00] (3 rows)" in notes[0]
    assert "by TFLOPs" in notes[1] and "qasper −1.00 [−1.00, −1.00] (3 rows)" in notes[1]


def test_the_interval_is_wide_where_documents_disagree(tmp_path: Path) -> None:
    scores = {"a": [1, 1, 0, 0, 1, 0], "b": [0, 1, 1, 0, 1, 1], "c": [0, 0, 1, 1, 0, 0]}
    ours = table(tmp_path, {row: (of_row, 1) for row, of_row in scores.items()})
    agreement = order_agreement(ours, printed(a=(60, 1), b=(50, 1), c=(40, 1)), "qasper", "f1")
    assert agreement.tau.low < agreement.tau.mean < agreement.tau.high


def test_two_rows_are_no_order_and_rows_not_run_are_left_out(tmp_path: Path) -> None:
    ours = table(tmp_path, {"a": ([1, 0], 1), "b": ([0, 1], 2), "c": ([0, 0], 3)})
    paper = printed(a=(60, 1), b=(50, 2), c=(40, 3))
    missing = TableCell(ours.cells["c", "qasper"].row, "qasper", None, "not run yet")
    without = TableData(ours.definition, {**ours.cells, ("c", "qasper"): missing})
    assert order_agreement(without, paper, "qasper", "f1") is None
    assert order_agreements(without, paper) == []
