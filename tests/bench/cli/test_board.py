"""The table on the terminal while it is made."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench.cli.board import WAITING, show_while_made
from bench.run.cell import CellRequest
from bench.run.hooks import HelperProgress
from bench.run.progress import Progress
from bench.run.session import Session
from bench.tables.definition import load_table
from bench.tables.make import TableRequest
from tests import cells


@pytest.fixture
def made(tmp_path: Path) -> tuple[TableRequest, Progress]:
    progress = Progress()
    session = Session(tmp_path, hooks=[progress])
    definition = load_table("table1").on("sample", ("qasper", "hotpotqa"))
    request = TableRequest(definition, CellRequest(), session)
    show_while_made(request)
    return request, progress


def drawn(progress: Progress) -> list[list[str]]:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(progress.above())
    return [line.split() for line in console.export_text().splitlines()]


def test_numbers_stand_in_their_row_and_data_set_whoever_measured_them(made: Any) -> None:
    request, progress = made
    bare = drawn(progress)
    assert all(line[-2:] == [WAITING, WAITING] for line in bare[2:15]), "13 rows of two data sets"
    of = {("pecan", "qasper"): "a", ("pecan", "hotpotqa"): "b", ("bm25_topx", "qasper"): "a"}
    request.places.update(of)
    board = request.session.hooks[-1]
    here = cells.finished(cells.summary(cell_id="a"), cells.description(cell_id="a"))
    board.on_cell_finished(SimpleNamespace(card=SimpleNamespace(metrics=("f1",))), here, sweep=None)
    board.on_helper_progress(HelperProgress(4, "a line", "b", 0.25, 3.0))
    board.on_helper_progress(HelperProgress(4, "a trial of k", "c", 0.9, 3.0))
    after = drawn(progress)
    changed = [line for line in after if line not in bare and len(line) > 1]
    of_both = ["BM25", "Top-X", "50.0", "1.00", WAITING]  # one cell in two rows stood in one of them
    assert changed == [of_both, ["PECAN", "50.0", "1.00", "25.0", "3.00"]]


def test_a_table_of_judgements_has_none(tmp_path: Path) -> None:
    session = Session(tmp_path, hooks=[progress := Progress()])
    show_while_made(TableRequest(load_table("gor2"), CellRequest(), session))
    assert progress.above is None
