"""The values that the papers print, from ``paper_tables/published/<table>.csv``, each with its source.

Values are in the units of the papers' tables: scores times 100, cost in TFLOPs, ratios as printed.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench.errors import DataError, UnknownNameError
from bench.files.paths import TABLES
from bench.tables.definition import TableDefinition, load_table

FOLDER = TABLES / "published"
COLUMNS = ("table", "row", "method", "dataset", "metric", "value", "source")
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

_ID = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Published:
    """One printed value."""

    value: float
    source: str
    """Paper, table, and the place of the value in it."""
    method: str
    """The row's label."""


def published(
    table: str, folder: Path = FOLDER, definition: TableDefinition | None = None
) -> Mapping[Cell, Published]:
    """The values that the paper prints; places that it leaves empty are absent.

    definition: of the table, if it is not the shipped one with that id. Raises UnknownNameError for a table
    without a file, DataError (file:line) for a file that violates the format in ``paper_tables/README.md``
    or names a row, data set or metric that the definition does not have.
    """
    path = folder / f"{table}.csv"
    if not path.is_file():
        raise UnknownNameError("published table", table, (p.stem for p in folder.glob("*.csv")))
    try:
        return _read(path, definition or load_table(table))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}.") from None


def has_published(table: str) -> bool:
    """Whether a paper prints values of this table."""
    return (FOLDER / f"{table}.csv").is_file()


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


def _read(path: Path, definition: TableDefinition) -> dict[Cell, Published]:
    known = tuple(dict.fromkeys(values) for values in zip(*places(definition), strict=True)) or ({}, {}, {})
    cells: dict[Cell, Published] = {}
    seen: dict[Cell, int] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise DataError(f"{path}:1: columns {reader.fieldnames}; expected {', '.join(COLUMNS)}.")
        for record in reader:
            place = f"{path}:{reader.line_num}"
            if len(record) != len(COLUMNS) or None in record.values():
                raise DataError(f"{place}: expected {len(COLUMNS)} fields: {', '.join(COLUMNS)}.")
            cell = _cell(record, definition.id, place)
            _require_known(cell, known, definition.id, place)
            if cell in seen:
                raise DataError(f"{place}: {' / '.join(cell)} repeats line {seen[cell]}. Remove one of them.")
            seen[cell] = reader.line_num
            if record["value"]:
                cells[cell] = Published(_value(record, place), record["source"], record["method"])
            elif record["source"]:
                raise DataError(f"{place}: a source without a value; fill in both or neither.")
    return cells


def _cell(record: Mapping[str, str], table: str, place: str) -> Cell:
    if record["table"] != table:
        raise DataError(f"{place}: table {record['table']!r}; expected {table!r}, the name of the file.")
    for column in ("row", "dataset"):
        if not _ID.fullmatch(record[column]):
            raise DataError(f"{place}: {column} {record[column]!r}; expected an id such as bm25_top5.")
    if record["metric"] not in METRICS:
        raise DataError(f"{place}: metric {record['metric']!r}; expected one of {', '.join(METRICS)}.")
    return record["row"], record["dataset"], record["metric"]


def _require_known(cell: Cell, known: Sequence[Collection[str]], table: str, place: str) -> None:
    for what, value, names in zip(("row", "data set", "metric"), cell, known, strict=True):
        if value not in names:
            raise DataError(
                f"{place}: the paper's {table} has no {what} {value!r}; expected one of {', '.join(names)}."
            )


def _value(record: Mapping[str, str], place: str) -> float:
    if not record["source"]:
        raise DataError(f"{place}: a value without a source; name paper, table and place.")
    try:
        value = float(record["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise DataError(f"{place}: value {record['value']!r}; expected a number such as 43.5, or nothing.")
    return value


PublishedValues = Mapping[tuple[str, str, str], Published]
"""(row id, data set, metric or ``tflops``) -> published value."""
