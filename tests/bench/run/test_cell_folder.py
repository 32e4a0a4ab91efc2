"""When a cell counts as finished, and what its description says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.run.cell import CellRequest, plan_cell
from bench.run.cell_folder import describe, finished_cell
from bench.schema import JsonValue
from tests.bench.faults.runs import run
from tests.stand_ins import examples, stand_in_cell


@pytest.mark.parametrize("cut", [0, -1])
def test_a_cell_whose_records_are_not_those_of_its_summary_is_not_finished(tmp_path: Path, cut: int) -> None:
    cell = stand_in_cell(examples(4))
    run(cell, tmp_path)
    records = tmp_path / "cell" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:cut]))
    assert finished_cell(cell, tmp_path / "cell") is None


def test_an_option_that_has_what_suits_the_reader_is_at_its_default() -> None:
    def chosen(**options: JsonValue) -> tuple[str, ...] | None:
        return describe(plan_cell(CellRequest("pecan", "hotpotqa", "tiny", options=options))).non_defaults

    assert chosen(t_p=2) == ("t_p",)
    assert chosen(embedder="minilm") == ("embedder",)
