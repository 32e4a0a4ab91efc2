"""Two cells beside what a paper prints of them: which rows they are, and whether the order is the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.data.cards import load_card
from bench.errors import BenchError
from bench.method.options import build_config
from bench.method.registry import load_method, registered_methods
from bench.metrics.statistics import Interval, clustered_bootstrap_of
from bench.models.presets import PAPER_CHUNK_TOKENS
from bench.results.comparison import Pair
from bench.results.models import CellDescription
from bench.results.records import Record
from bench.tables.definition import Row, TableDefinition, list_tables
from bench.tables.order import RESAMPLES, kendall_tau
from bench.tables.published import has_published, published


@dataclass(frozen=True)
class PrintedPair:
    """What a paper prints of two cells, and Kendall's tau between its order of them and ours."""

    source: str
    metric: str
    """A metric, or ``tflops``."""
    first: float
    second: float
    """As printed: scores times 100, cost in TFLOPs."""
    tau: Interval
    """1: the same order, -1: the reversed one, 0: equal; documents resampled."""


def printed_pair(
    first: CellDescription, second: CellDescription, pairs: Sequence[Pair], metric: str
) -> PrintedPair | None:
    """What the first table that has both cells prints of a metric, or of ``tflops``; None if no table has.

    pairs: the records of the questions that both cells have.
    """
    for definition, *rows in _tables_of(first, second):
        values = published(definition.id)
        printed = [values.get((row.id, first.dataset, metric)) for row in rows]
        if printed[0] is None or printed[1] is None:
            continue
        reference = (printed[0].value, printed[1].value)
        measured = [[_value(pair.first, metric), _value(pair.second, metric)] for pair in pairs]
        tau = clustered_bootstrap_of(
            np.array(measured),
            [" ".join(pair.first.document_ids) for pair in pairs],
            partial(kendall_tau, reference=reference),
            rng=np.random.default_rng(0),
            n_resamples=RESAMPLES,
        )
        return PrintedPair(printed[0].source, metric, *reference, tau)
    return None


def _tables_of(first: CellDescription, second: CellDescription) -> Iterator[tuple[TableDefinition, Row, Row]]:
    """The tables of scores in which both are rows of the paper, with these rows."""
    if first.dataset != second.dataset:
        return
    for definition in list_tables():
        is_paper_table = (
            definition.kind == "cells"
            and definition.published_as == definition.id
            and has_published(definition.id)
        )
        if is_paper_table and first.dataset in definition.datasets:
            rows = [_row_of(cell, definition) for cell in (first, second)]
            if rows[0] is not None and rows[1] is not None:
                yield definition, rows[0], rows[1]


def _row_of(cell: CellDescription, definition: TableDefinition) -> Row | None:
    """The paper's row with the method and options of a cell, its prompt aside; None if the table has none."""
    return next(
        (row for row in definition.rows if row.in_paper and row.model is None and _is_row(cell, row)), None
    )


def _is_row(cell: CellDescription, row: Row) -> bool:
    if row.method != cell.method or row.method not in registered_methods():
        return False
    method, card = load_method(row.method), load_card(cell.dataset)
    chunk_tokens = cell.geometry.get("chunk_tokens", PAPER_CHUNK_TOKENS)
    for as_published in (True, False):  # what the paper chose for its reader, or what holds for any other
        try:
            options = row.options(card, as_published=as_published, chunk_tokens=chunk_tokens)
            config = build_config(method.Config, options, row.method).model_dump(mode="json")
        except BenchError:  # it waits for another cell's cost, or names a model that goes with one reader
            continue
        if {**config, "prompt": ""} == {**cell.config, "prompt": ""}:
            return True
    return False


def _value(record: Record, metric: str) -> float:
    """The score of a question by a metric, or with ``tflops`` its cost, in any unit."""
    return float(record.flops.query) if metric == "tflops" else record.scores[metric]
