"""The finished cells below a results folder, and unfinished ones as far as they have come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.files.hashing import file_sha256
from bench.results.json_lines import valid_rows
from bench.results.models import CellDescription, Summary, read_description, read_summary
from bench.results.records import CELL_FILE, RECORDS_FILE, SUMMARY_FILE, Record, believed, read_records
from bench.results.summary import summarize

ARTIFACT_FOLDER = "mlflow-artifacts"
"""Where MLflow keeps the files of its runs, below the results folder."""


@dataclass(frozen=True)
class FinishedCell:
    """A cell whose every question has a record, or, while its run goes on, the part that has been asked."""

    folder: Path
    description: CellDescription
    summary: Summary
    answered: int = 0
    """Questions that were answered for it just now; 0 if it was finished before."""
    asked: tuple[str, ...] = ()
    """Of an unfinished cell: ids of the questions that the summary is of, in the data's order."""

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """Its records in the order of the data; read on first use. Raises BenchError like read_records."""
        return tuple(self.read_records())

    def read_records(self) -> Iterator[Record]:
        """Its records in the order of the data, one at a time. Raises BenchError like read_records."""
        if not self.asked:
            return read_records(self.folder / RECORDS_FILE)
        found = records_so_far(self.folder)
        return (found[example] for example in self.asked)

    @property
    def is_whole(self) -> bool:
        """Whether every question has a record."""
        return not self.asked

    @property
    def id(self) -> str:
        """The hash of its identity."""
        return self.description.cell_id


def so_far(cells: Iterable[FinishedCell]) -> str:
    """How far the cells that are not whole have come, in words; empty if all are whole."""
    asked = {(cell.summary.n, cell.description.n_examples) for cell in cells if not cell.is_whole}
    if len(asked) > 1:
        return "not all questions of every cell"
    return "".join(f"{n} of {of_all} questions a cell" for n, of_all in asked)


def find_finished(results: Path) -> tuple[list[FinishedCell], int]:
    """The finished cells below ``results``, sorted by path, and how many are not finished.

    A cell is finished if its summary matches its records; one that exists twice is listed once.
    """
    finished: dict[str, FinishedCell] = {}
    unfinished = 0
    for folder in find_cells(results):
        cell = read_finished(folder)
        if cell is None:
            unfinished += 1
        else:
            finished.setdefault(cell.id, cell)
    return list(finished.values()), unfinished


def read_finished(folder: Path) -> FinishedCell | None:
    """The cell in ``folder``; None unless its summary matches its records."""
    try:
        description, summary = read_description(folder), read_summary(folder)
        digest = file_sha256(folder / RECORDS_FILE)
    except (BenchError, OSError):
        return None
    is_finished = summary.cell_id == description.cell_id and summary.records_sha256 == digest
    is_finished &= summary.checksum in ("", summary.sealed().checksum)
    is_finished &= not summary.n_scored or set(description.metrics) <= summary.metrics.keys()
    return FinishedCell(folder, description, summary) if is_finished else None


def records_so_far(folder: Path) -> dict[str, Record]:
    """The valid records of a cell that may still be written, by example id; empty without any.

    Scores that do not follow from prediction and references are computed again, with a warning.
    """
    path = folder / RECORDS_FILE
    try:
        return {record.example_id: record for record in believed(valid_rows(path, Record), path)}
    except OSError:
        return {}


def changed_since_summary(folder: Path) -> bool:
    """Whether the records are not those the folder's summary is of: edited, or added to by a run since."""
    try:
        return read_summary(folder).records_sha256 != file_sha256(folder / RECORDS_FILE)
    except (BenchError, OSError):
        return False


def write_summary(folder: Path, records: Sequence[Record], metrics: Sequence[str], cell_id: str) -> Summary:
    """Write and return the summary of all records of a cell, which are those in its file."""
    digest = file_sha256(folder / RECORDS_FILE)
    summary = summarize(records, metrics, cell_id=cell_id, records_sha256=digest).sealed()
    write_json(folder / SUMMARY_FILE, summary.to_json())
    return summary


_NO_CELLS = {ARTIFACT_FOLDER, "indexes", "asked"}
"""Folders without cells that may have many files; the search skips them."""


def find_cells(results_dir: Path) -> Iterator[Path]:
    """Cell folders below (or at) ``results_dir``, sorted by path; links are followed once."""
    seen = set[str]()
    for folder, below, files in os.walk(results_dir, followlinks=True):
        if (place := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(place)
        if CELL_FILE in files:
            below.clear()
            yield Path(folder)
        below[:] = sorted(n for n in below if n not in _NO_CELLS and not n.startswith("."))
