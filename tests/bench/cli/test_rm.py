"""``bench rm``: what it removes, and what it says before."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from bench.cli.main import command
from bench.errors import BenchError, ConfigError
from bench.results.finished import find_cells
from bench.results.records import RecordStore
from bench.run.cell import CellRequest
from tests.bench.report.finished import bm25, finish


def rm(results: Path, *arguments: str) -> str:
    words = ["rm", *arguments, "--results", str(results)]
    return CliRunner().invoke(command, words, catch_exceptions=False).output


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for k in (2, 5):
        finish(tmp_path, bm25(k=k), [1, 0])
    finish(tmp_path, CellRequest("bm25", "musique", limit=1, options={"k": 2}), [1])
    return tmp_path


def left(results: Path) -> list[str]:
    return sorted(folder.name.rpartition("--")[0] for folder in find_cells(results))


def test_cells_are_listed_and_removed_only_with_consent(results: Path) -> None:
    listed = rm(results, "bm25:k=2", "--dataset", "hotpotqa", "--dry-run")
    assert "bm25 k=2 on hotpotqa (sample)" in listed and "1 cell, 0.0 MB; nothing was removed." in listed
    with pytest.raises(BenchError, match="say --yes"):
        rm(results, "bm25:k=2")
    assert len(left(results)) == 3
    assert "Removed 1 cell" in rm(results, "bm25:k=2", "--dataset", "hotpotqa", "--yes")
    assert left(results) == ["bm25--hotpotqa", "bm25--musique"]
    rm(results, "--dataset", "musique", "--yes")
    assert left(results) == ["bm25--hotpotqa"]


def test_a_folder_of_another_data_set_stays(results: Path) -> None:
    folder = next(folder for folder in find_cells(results) if "hotpotqa" in folder.name)
    assert rm(results, str(folder), "--dataset", "musique", "--yes") == "There is nothing to remove.\n"
    assert len(left(results)) == 3
    assert "Removed 1 cell" in rm(results, str(folder), os.path.relpath(folder), "--yes"), "once, named twice"


def test_cells_behind_a_link_are_found_once(results: Path) -> None:
    """On another disk they were run into, and shown by no command."""
    other = results / "other"
    other.mkdir()
    (other / "cells").symlink_to(results / "cells")
    (other / "again").symlink_to(other)
    assert left(other) == left(results)


def test_a_cell_in_use_is_not_removed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Name what to remove"):
        rm(results, "--yes")
    assert rm(results, "--unfinished", "--yes") == "There is nothing to remove.\n"
    folder = next(find_cells(results))
    with RecordStore(folder), pytest.raises(BenchError, match="Stop it first"):
        rm(results, str(folder), "--yes")
    with monkeypatch.context() as patched, pytest.raises(BenchError, match="has begun to write"):
        patched.setattr("bench.cli.rm.is_locked", Mock(side_effect=[False, True]))
        rm(results, str(folder), "--yes")
    assert len(left(results)) == 3
    (folder / "records.jsonl").write_text("")
    assert "Removed 1 cell" in rm(results, "--unfinished", "--yes") and not folder.exists()
