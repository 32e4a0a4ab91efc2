"""A disk that is full, may not be written, or knows no locks."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError
from bench.files.atomic import WriteError, write_text
from bench.results.index_store import IndexStore
from bench.results.records import RecordStore, read_records
from tests.bench.faults.runs import rows, run
from tests.stand_ins import WordModels, examples, run_cells, stand_in_cell


def no_room(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], None]:
    """os.write takes half of what it is given once ``after`` calls are done, then nothing; undo returns."""
    real, calls = os.write, 0

    def write(descriptor: int, content: Any) -> int:
        nonlocal calls
        calls += 1
        if calls <= after:
            return real(descriptor, content)
        return real(descriptor, bytes(content)[: len(content) // 2]) if calls == after + 1 else no_room()

    monkeypatch.setattr(os, "write", write)
    return lambda: monkeypatch.setattr(os, "write", real)


def test_a_disk_that_fills_up_ends_the_run_and_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[dict[str, Any]]
) -> None:
    free_again = full_disk(monkeypatch, after=2)
    with pytest.raises(BenchError, match=r"records\.jsonl: No space left .*the same command continues"):
        run(stand_in_cell(examples(6)), tmp_path, in_flight=3)
    path = tmp_path / "cell" / "records.jsonl"
    assert path.read_bytes().endswith(b"\n"), "the half record was cut off again"
    assert len(list(read_records(path))) == 2
    free_again()
    assert run(stand_in_cell(examples(6)), tmp_path).answered == 4
    assert rows(tmp_path) == undisturbed
    assert not (tmp_path / "cell" / "records.damaged.jsonl").exists()


def test_a_disk_that_fills_up_while_an_index_is_kept_fails_no_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[dict[str, Any]]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bench.results.index_store.sync_folder", no_room)
        with pytest.raises(WriteError, match="indexes.*No space left on device"):
            run(stand_in_cell(examples(6)), tmp_path)
    assert rows(tmp_path) == [], "it would be recorded as the questions' own failure"
    assert list((tmp_path / "indexes" / "echo").iterdir()) == []
    run(stand_in_cell(examples(6)), tmp_path)
    assert rows(tmp_path) == undisturbed


@pytest.mark.parametrize("name", ["cell.json", "summary.json"])
def test_a_disk_that_fills_up_at_another_file_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, undisturbed: list[dict[str, Any]]
) -> None:
    real = tempfile.NamedTemporaryFile

    def full(*arguments: Any, **options: Any) -> Any:
        return no_room() if name in options["prefix"] else real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "NamedTemporaryFile", full)
        with pytest.raises(WriteError, match=rf"{name}: No space left"):
            run(stand_in_cell(examples(6)), tmp_path)
    assert run(stand_in_cell(examples(6)), tmp_path).answered == (6 if name == "cell.json" else 0)
    assert rows(tmp_path) == undisturbed


def test_a_table_that_is_not_written_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table1.md"
    write_text(path, "before")
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(WriteError, match="Make room"):
        write_text(path, "after")
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["table1.md"]


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this process may read and not write; root acts as nobody meanwhile."""
    top = Path(tempfile.mkdtemp())
    folder = top / "results"
    folder.mkdir()
    run(stand_in_cell(examples(2)), folder)  # everything is imported now: nobody may not read our code
    folders = [path for path in (top, *top.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in folders:
            path.chmod(0o755)
        shutil.rmtree(top)


def test_a_folder_that_may_not_be_written_is_one_clear_error_and_can_still_be_read(read_only: Path) -> None:
    cell = stand_in_cell(examples(2), {"suffix": "?"})
    with pytest.raises(BenchError, match="Cannot write to .*Permission denied.*--results DIR"):
        run_cells([(cell, read_only / "new")], IndexStore(read_only / "indexes"), WordModels)
    assert run(stand_in_cell(examples(2)), read_only).answered == 0
    (folder,) = (read_only / "indexes" / "echo").iterdir()
    assert IndexStore(read_only / "indexes").load("echo", folder.name) is not None


def test_a_folder_that_cannot_be_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: Any, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(BenchError, match="cannot be locked .No locks available.*--results"):
        RecordStore(tmp_path)
