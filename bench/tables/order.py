"""Whether our order of the methods is the paper's: Kendall's tau per data set, for scores and for costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.metrics.statistics import Interval, clustered_bootstrap_of
from bench.tables.cells import TableData
from bench.tables.published import PublishedValues

MIN_ROWS = 3
"""Minimum number of rows for an order."""
RESAMPLES = 1000


def kendall_tau(values: ArrayLike, reference: ArrayLike) -> NDArray[np.float64]:
    """Tau-b of each row of ``values``, shape (..., k), against ``reference``, shape (k,), in -1..1.

    1 is the same order, -1 the reversed one. A row of equal values has no order; its tau is 0. Source:
    Kendall 1945, with ties.
    """
    x, y = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    first, second = np.triu_indices(y.shape[-1], k=1)
    signs, expected = np.sign(np.round(x[..., first] - x[..., second], 12)), np.sign(y[first] - y[second])
    untied = np.sqrt(np.abs(signs).sum(axis=-1) * np.abs(expected).sum())
    return np.asarray((signs * expected).sum(axis=-1) / np.maximum(untied, 1e-12))


@dataclass(frozen=True)
class OrderAgreement:
    """Tau between our order of a table's rows and the paper's on one data set."""

    metric: str
    """A metric, or ``tflops``."""
    dataset: str
    tau: Interval
    rows: int
    """Rows that have both values."""


def order_agreement(
    table: TableData, published: PublishedValues, dataset: str, metric: str
) -> OrderAgreement | None:
    """Tau between our order of the rows and the paper's on a data set.

    metric: one with a value per question, or ``tflops``. The interval resamples documents, the same ones for
    all rows, over the questions that all rows have. None if fewer than three rows have both values.
    """
    rows = [
        (cell.finished, published[place].value)
        for cell in table.of(dataset)
        if cell.finished is not None and (place := (cell.row.id, dataset, metric)) in published
    ]
    if len(rows) < MIN_ROWS:
        return None
    asked = [
        {r.example_id: {**r.scores, "tflops": r.flops.query_tflops} for r in cell.read_records()}
        for cell, _ in rows
    ]
    shared = [key for key in asked[0] if all(metric in one.get(key, ()) for one in asked)]
    if not shared:
        return None
    values = np.array([[one[key][metric] for one in asked] for key in shared])
    documents = {r.example_id: " ".join(r.document_ids) for r in rows[0][0].read_records()}
    clusters = [documents[key] for key in shared]
    tau = partial(kendall_tau, reference=[value for _, value in rows])
    rng = np.random.default_rng(0)
    interval = clustered_bootstrap_of(values, clusters, tau, rng=rng, n_resamples=RESAMPLES)
    return OrderAgreement(metric, dataset, interval, len(rows))


def order_agreements(table: TableData, published: PublishedValues) -> list[OrderAgreement]:
    """The agreement for the first metric and for the cost, on every data set that has enough rows."""
    agreements = (
        order_agreement(table, published, dataset, metric)
        for metric in (*table.definition.metrics[:1], "tflops")
        for dataset in table.definition.datasets
    )
    return [agreement for agreement in agreements if agreement is not None]
