"""Runs of the stand-ins, into which the tests of this folder inject their faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.results.finished import FinishedCell
from bench.results.index_store import IndexStore
from bench.run.cell import Cell
from tests.stand_ins import WordModels, run_cells

REPOSITORY = Path(__file__).parents[3]


def run(cell: Any, folder: Path, **options: Any) -> FinishedCell:
    store = IndexStore(folder / "indexes")
    (result,) = run_cells([(cell, folder / "cell")], store, WordModels, **options)
    return result


def records_of(cell: Path) -> list[dict[str, Any]]:
    """The records of a cell's folder without the one field that differs between two runs."""
    lines = (cell / "records.jsonl").read_text("utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "wall_s"} for line in lines]


def rows(folder: Path) -> list[dict[str, Any]]:
    """The records of the cell that :func:`run` leaves in the folder."""
    return records_of(folder / "cell")


def sharing(cell: Cell) -> Cell:
    """The cell, its index no longer depending on an option."""
    cell.method.index_options = lambda: {}  # type: ignore[method-assign]
    return cell
