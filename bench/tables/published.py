"""The values that the papers print, from ``paper_tables/published/<table>.csv``, each with its source.

Values are in the units of the papers' tables: scores times 100, cost in TFLOPs, ratios as printed.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bench.errors import UnknownNameError
from bench.files.paths import TABLES
from bench.tables.definition import TableDefinition
from bench.tables.formats import DASH

FOLDER = TABLES / "published"
METRICS = (
    *("f1", "rouge_l", "bleu_4", "tflops", "ratio"),
    *("rouge_l_f1_stem", "rouge_1", "rouge_2", "win_rate", "against_win_rate", "seconds"),
    *("tokens", "samples", "setting"),
)
"""Metrics of published values: ``ratio`` is the row's TFLOPs over those of the paper's own method,
``win_rate`` the share of pairs that the row wins against Graph of Records and ``against_win_rate`` the share
that it loses, both in percent, ``seconds`` the time of an answer; ``tokens`` and ``samples`` describe the
data, ``setting`` is a hyper-parameter."""

Cell: TypeAlias = tuple[str, str, str]
"""Row id, data set, metric."""


@dataclass(frozen=True)
class Published:
    """One printed value."""

    value: float
    source: str
    """Paper, table, and the place of the value in it."""
    method: str
    """The row's label."""


PublishedValues: TypeAlias = Mapping[Cell, Published]


def published(table: str) -> PublishedValues:
    """The values that the paper prints; places that it leaves empty are absent.

    Raises UnknownNameError for a table without a file.
    """
    path = FOLDER / f"{table}.csv"
    if not path.is_file():
        raise UnknownNameError("published table", table, (p.stem for p in FOLDER.glob("*.csv")))
    with path.open(encoding="utf-8", newline="") as stream:
        return {
            (line["row"], line["dataset"], line["metric"]): Published(
                float(line["value"]), line["source"], line["method"]
            )
            for line in csv.DictReader(stream, strict=True)
            if line["value"]
        }


def as_printed(values: PublishedValues, place: Cell) -> str:
    """A value as the paper prints it; a dash where it prints none."""
    return f"{values[place].value:g}" if place in values else DASH


def places(definition: TableDefinition) -> list[Cell]:
    """Every (row, data set, metric) of the paper's table.

    ``samples`` have their own rows, which have no other metric.
    """
    rows = definition.printed_rows or tuple(row.id for row in definition.rows if row.in_paper)
    return [
        (row, dataset, metric)
        for row in rows
        for dataset in definition.datasets
        for metric in definition.printed
        if (metric == "samples") == row.endswith("_samples")
    ]
