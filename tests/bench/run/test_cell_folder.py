"""Finished cells, whatever version summarised them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.files.atomic import write_json
from bench.results.models import Summary
from bench.results.records import RecordStore
from bench.run.cell import CellRequest, plan_cell
from bench.run.cell_folder import describe, finished_cell
from bench.schema import JsonValue
from tests.bench.faults.runs import run
from tests.stand_ins import examples, stand_in_cell


def summarized_by_an_earlier_version(folder: Path) -> tuple[Any, Summary]:
    """A finished cell whose summary is of version 1 and lacks a metric; and the summary that is right."""
    cell = stand_in_cell(examples(4))
    summary = run(cell, folder).summary
    old = {**summary.to_json(), "summary_version": 1, "metrics": {"f1": {"mean": 0.0}}}
    write_json(folder / "cell" / "summary.json", old)
    return cell, summary


def test_a_cell_that_an_earlier_version_summarized_is_finished_and_summarized_again(tmp_path: Path) -> None:
    cell, summary = summarized_by_an_earlier_version(tmp_path)
    found = finished_cell(cell, tmp_path / "cell")
    assert found is not None and found.summary == summary
    assert json.loads((tmp_path / "cell" / "summary.json").read_text()) == summary.to_json()
    assert run(cell, tmp_path).answered == 0


def test_it_is_summarized_in_memory_while_another_process_has_its_records(tmp_path: Path) -> None:
    cell, summary = summarized_by_an_earlier_version(tmp_path)
    with RecordStore(tmp_path / "cell"):
        found = finished_cell(cell, tmp_path / "cell")
    assert found is not None and found.summary == summary
    assert json.loads((tmp_path / "cell" / "summary.json").read_text())["summary_version"] == 1


@pytest.mark.parametrize("cut", [0, -1])
def test_a_cell_whose_records_are_not_those_of_its_summary_is_not_finished(tmp_path: Path, cut: int) -> None:
    cell, _ = summarized_by_an_earlier_version(tmp_path)
    records = tmp_path / "cell" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:cut]))
    assert finished_cell(cell, tmp_path / "cell") is None


def test_an_option_that_has_what_suits_the_reader_is_at_its_default() -> None:
    def chosen(**options: JsonValue) -> tuple[str, ...] | None:
        return describe(plan_cell(CellRequest("pecan", "hotpotqa", "tiny", options=options))).non_defaults

    assert chosen(t_p=2) == ("t_p",)
    assert chosen(embedder="minilm") == ("embedder",)
