"""Several runs that want the same cell or folder at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bench.run.cell_folder
from bench.results.index_store import IndexStore
from bench.results.records import RecordStore
from tests.bench.faults.runs import REPOSITORY, rows, sharing
from tests.bench.run.test_runner import WAITING_RUN
from tests.stand_ins import WordModels, examples, run_cells, stand_in_cell


def test_a_cell_that_is_listed_twice_is_run_once(tmp_path: Path) -> None:
    """It once waited for its own lock."""
    cell = stand_in_cell(examples(3))
    indexes = IndexStore(tmp_path / "indexes")
    places = [(cell, tmp_path / "cell"), (cell, tmp_path / "." / "cell")]
    first, second = run_cells(places, indexes, WordModels)
    assert first.summary == second.summary and first.summary.n == 3


def test_locks_are_always_taken_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sweeps over the same cells in opposite order would otherwise wait for each other forever."""
    taken: list[str] = []

    class Noted(RecordStore):
        def __init__(self, folder: Path) -> None:
            taken.append(folder.name)
            super().__init__(folder)

    monkeypatch.setattr(bench.run.cell_folder, "RecordStore", Noted)
    cells = [(sharing(stand_in_cell(examples(2), {"suffix": name})), name) for name in "bca"]
    for order, folder in ((cells, "one"), (cells[::-1], "two")):
        places = [(cell, tmp_path / folder / name) for cell, name in order]
        results = run_cells(places, IndexStore(tmp_path / "i"), WordModels)
        assert [result.folder.name for result in results] == [name for _, name in order]
    assert taken == ["a", "b", "c"] * 2


def test_a_second_run_of_a_cell_waits_and_goes_on(tmp_path: Path, undisturbed: list[dict[str, Any]]) -> None:
    def start(most: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WAITING_RUN, str(tmp_path), str(most), "6", "1"]
        return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)

    records = tmp_path / "cell" / "records.jsonl"
    first = start(2)
    while not (records.exists() and records.read_bytes().count(b"\n") == 2):
        assert first.poll() is None
        time.sleep(0.002)
    second = start(100)
    assert "is being written by another run; waiting" in second.stderr.readline()
    assert records.read_bytes().count(b"\n") == 2
    first.kill()
    first.communicate(timeout=60)
    assert second.communicate(timeout=60)[1] == "" and second.returncode == 0
    assert rows(tmp_path) == undisturbed


def test_two_different_cells_wanting_one_folder_do_not_mix(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from bench.errors import BenchError\n"
        "sys.modules.update(sklearn=None, pandas=None)\n"  # NLTK imports them if it can
        "from bench.results.index_store import IndexStore\n"
        "from tests.stand_ins import WordModels, examples, run_cell, stand_in_cell\n"
        "folder = Path(sys.argv[1]); cell = stand_in_cell(examples(20), {'suffix': sys.argv[2]})\n"
        "try: run_cell(cell, folder / 'cell', IndexStore(folder / sys.argv[2]), WordModels)\n"
        "except BenchError as error: sys.exit(str(error))\n"
    )
    commands = ([sys.executable, "-c", program, str(tmp_path), suffix] for suffix in ("a", "b"))
    both = [subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE) for command in commands]
    errors = [process.communicate(timeout=60)[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    assert any("holds the records of another cell" in error for error in errors)
    suffixes = {row["prediction"][-1] for row in rows(tmp_path)}
    assert len(rows(tmp_path)) == 20 and len(suffixes) == 1
