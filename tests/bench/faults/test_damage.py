"""Files that were damaged or left behind: indexes, records, summaries, drafts."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError
from bench.files.atomic import STALE_DRAFT_S, write_text
from bench.results.finished import read_finished
from bench.results.index_store import IndexStore
from bench.run.cell_folder import finished_cell
from tests.bench.faults.runs import rows, run
from tests.stand_ins import examples, stand_in_cell


def test_a_changed_cost_in_an_index_is_damage_too(tmp_path: Path) -> None:
    run(stand_in_cell(examples(1)), tmp_path)
    (folder,) = (tmp_path / "indexes" / "echo").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["meter"]["words"]["prefill"]["flops"] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert IndexStore(tmp_path / "indexes").load("echo", folder.name) is None


def test_an_index_that_cannot_be_read_now_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(stand_in_cell(examples(1)), tmp_path)
    (folder,) = (tmp_path / "indexes" / "echo").iterdir()
    shutil.rmtree(tmp_path / "cell")

    def too_many(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", too_many)
        with pytest.raises(BenchError, match="Cannot read the index .*Too many open files"):
            IndexStore(tmp_path / "indexes").load("echo", folder.name)
    assert IndexStore(tmp_path / "indexes").load("echo", folder.name) is not None


def test_drafts_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    parent = tmp_path / "indexes" / "echo"
    old, young = parent / ".key.old", parent / ".key.young"
    for draft in (old, young):
        draft.mkdir(parents=True)
        (draft / "index.json").write_text("{}")
    hours_ago = time.time() - 2 * STALE_DRAFT_S
    os.utime(old, (hours_ago, hours_ago))
    cell_drafts = [tmp_path / "cell" / f".{name}.k1ll" for name in ("records.jsonl", "cell.json")]
    cell_drafts[0].parent.mkdir()
    for draft in cell_drafts:
        draft.write_text("half")
    run(stand_in_cell(examples(1)), tmp_path)
    assert not old.exists() and young.exists()
    assert not any(draft.exists() for draft in cell_drafts)
    table = tmp_path / "table1.md"
    drafts = [tmp_path / ".table1.md.old", tmp_path / ".table1.md.young"]
    for draft in drafts:
        draft.write_text("half")
    os.utime(drafts[0], (hours_ago, hours_ago))
    write_text(table, "whole")
    assert [draft.exists() for draft in drafts] == [False, True]


@pytest.mark.parametrize("content", ["", "[]", '{"cell_id": 7}', "[" * 100_000, "\x00"])
def test_a_damaged_summary_or_description_is_made_anew(tmp_path: Path, content: str) -> None:
    cell = stand_in_cell(examples(2))
    whole = run(cell, tmp_path).summary
    summary = tmp_path / "cell" / "summary.json"
    summary.write_text(content)
    assert finished_cell(cell, tmp_path / "cell") is None
    if "7" not in content:  # that is another cell's id, and refused
        (tmp_path / "cell" / "cell.json").write_text(content)
    result = run(cell, tmp_path)
    assert (result.answered, result.summary) == (0, whole)
    assert json.loads((tmp_path / "cell" / "cell.json").read_text())["cell_id"] == cell.identity.cell_id


NAN = float("nan")


@pytest.mark.parametrize("edit", [{"wall_s": NAN}, {"tokens": {"prompt": -3}}, {"flops": {"query": 10**400}}])
def test_a_record_edited_beyond_reason_is_asked_again(tmp_path: Path, edit: dict[str, Any]) -> None:
    run(stand_in_cell(examples(2)), tmp_path)
    before, path = rows(tmp_path), tmp_path / "cell/records.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    row |= {key: {**row[key], **new} if isinstance(new, dict) else new for key, new in edit.items()}
    path.write_text(json.dumps(row) + "\n" + second)
    assert run(stand_in_cell(examples(2)), tmp_path).answered == 1 and rows(tmp_path) == before


@pytest.mark.parametrize("f1", [{"mean": 0.5}, {"mean": NAN}, None])
def test_an_edited_summary_is_written_again(tmp_path: Path, f1: dict[str, float] | None) -> None:
    cell = stand_in_cell(examples(2))
    whole = run(cell, tmp_path).summary
    path = tmp_path / "cell/summary.json"
    content = json.loads(path.read_text())
    content["metrics"] = {**content["metrics"], "f1": f1} if f1 else {}
    path.write_text(json.dumps(content))
    assert read_finished(path.parent) is None and finished_cell(cell, path.parent) is None
    again = run(cell, tmp_path)
    assert (again.answered, again.summary) == (0, whole)


@pytest.mark.parametrize("names", ["cell.json records.jsonl summary.json", "records.jsonl summary.json"])
def test_a_cell_copied_over_another_is_not_taken_for_it(tmp_path: Path, names: str) -> None:
    one, other = (stand_in_cell(examples(2), {"suffix": suffix}) for suffix in ("", " other"))
    run(one, tmp_path / "one")
    run(other, tmp_path / "other")
    for name in names.split():
        shutil.copy(tmp_path / "other/cell" / name, tmp_path / "one/cell" / name)
    before = rows(tmp_path / "one")
    with pytest.raises(BenchError, match=rf"records of another cell \({other.identity.cell_id}\)"):
        run(one, tmp_path / "one")
    assert finished_cell(one, tmp_path / "one/cell") is None and rows(tmp_path / "one") == before


def test_an_index_copied_over_another_is_built_again(tmp_path: Path) -> None:
    run(stand_in_cell(examples(4)), tmp_path)
    before = rows(tmp_path)
    first, second = sorted((tmp_path / "indexes/echo").iterdir())
    shutil.rmtree(second)
    shutil.copytree(first, second)
    shutil.rmtree(tmp_path / "cell")
    again = stand_in_cell(examples(4))
    run(again, tmp_path)
    assert rows(tmp_path) == before and len(again.method.indexed) == 1
