"""Kendall's tau between our order of the rows and the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from bench.results.records import FlopCounts, Record, RecordStore, TokenCounts
from bench.tables.caption import about_order
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row, TableDefinition
from bench.tables.order import kendall_tau, order_agreement, order_agreements
from bench.tables.published import Published
from tests import cells


def record(number: int, f1: float, cost: int) -> Record:
    return Record(
        example_id=f"q{number}",
        document_ids=[f"d{number // 2}"],
        question="?",
        answers=["a"],
        prediction="a",
        scores={"f1": f1},
        context=[],
        tokens=TokenCounts(prompt=1, completion=1, forwarded=2),
        flops=FlopCounts(query=cost, index=0, convention="paper", query_by_model={}, index_by_model={}),
        truncated=False,
        flags=[],
        wall_s=0.1,
        error=None,
        trace={},
    )


def table(folder: Path, rows: dict[str, tuple[list[float], int]]) -> TableData:
    shown = {}
    for name, (scores, cost) in rows.items():
        (folder / name).mkdir()
        with RecordStore(folder / name) as store:
            for number, score in enumerate(scores):
                store.append(record(number, score, cost))
        row = Row(id=name, label=name, method="bm25")
        finished = replace(cells.finished(cells.summary(n=len(scores))), folder=folder / name)
        shown[name, "qasper"] = TableCell(row, "qasper", finished)
    definition = TableDefinition(
        id="t",
        title="T",
        source="S",
        datasets=("qasper",),
        metrics=("f1",),
        rows=tuple(cell.row for cell in shown.values()),
    )
    return TableData(definition, shown)


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
    assert score is not None and cost is not None
    assert (score.tau.mean, score.tau.low, score.tau.high, score.rows) == (1, 1, 1, 3)
    assert (cost.tau.mean, cost.tau.clusters) == (-1, 3)
    notes = about_order(order_agreements(ours, paper))
    assert "by F1" in notes[0] and "qasper 1.00 [1.00, 1.00] (3 rows)" in notes[0]
    assert "by TFLOPs" in notes[1] and "qasper −1.00 [−1.00, −1.00] (3 rows)" in notes[1]


def test_the_interval_is_wide_where_documents_disagree(tmp_path: Path) -> None:
    ours = table(
        tmp_path, {"a": ([1, 1, 0, 0, 1, 0], 1), "b": ([0, 1, 1, 0, 1, 1], 1), "c": ([0, 0, 1, 1, 0, 0], 1)}
    )
    agreement = order_agreement(ours, printed(a=(60, 1), b=(50, 1), c=(40, 1)), "qasper", "f1")
    assert agreement is not None and agreement.tau.low is not None and agreement.tau.high is not None
    assert agreement.tau.low < agreement.tau.mean < agreement.tau.high


def test_two_rows_are_no_order_and_rows_not_run_are_left_out(tmp_path: Path) -> None:
    ours = table(tmp_path, {"a": ([1, 0], 1), "b": ([0, 1], 2), "c": ([0, 0], 3)})
    paper = printed(a=(60, 1), b=(50, 2), c=(40, 3))
    missing = TableCell(ours.cells["c", "qasper"].row, "qasper", None, "not run yet")
    without = TableData(ours.definition, {**ours.cells, ("c", "qasper"): missing})
    assert order_agreement(without, paper, "qasper", "f1") is None
    assert order_agreements(without, paper) == []
