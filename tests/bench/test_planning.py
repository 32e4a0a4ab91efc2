"""Planning numbers: scaled from finished cells, priced by our own formula, and said to be estimates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cards import load_card
from bench.cell import CellRequest, plan_cell
from bench.cell_folder import describe
from bench.commands.plan import command
from bench.flops import forward_usage
from bench.models.presets import resolve
from bench.planning import DOCUMENTS, Estimate, Rates, plan
from bench.tables import load_table
from benchmarks.scale import synthetic_records

READ, WRITTEN = 500, 8


def usage(new: int, attended: int) -> dict[str, int]:
    return {"calls": 1, "new_tokens": new, "attended": attended, "logit_rows": 1, "flops": 0}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A finished cell of PECAN and one of full context on the Qasper samples, with known tokens."""
    table = load_table("table1")
    for row in table.rows:
        if row.id not in ("pecan", "full_context"):
            continue
        cell = plan_cell(CellRequest(row.method, "qasper", options=row.options(load_card("qasper"))))
        folder = cell.folder(tmp_path)
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps(describe(cell)))
        lines = []
        for record in synthetic_records(cell.data.examples):
            value = json.loads(record.to_line())
            spent = {"prefill": usage(READ, READ**2), "decode": usage(WRITTEN, 0), "probe": usage(0, 0)}
            value["flops"]["query_by_model"] = {"tiny": spent}
            value["flops"]["index_by_model"] = {"tiny": spent} if row.id == "pecan" else {}
            lines.append(json.dumps(value))
        (folder / "records.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_hours_follow_from_the_tokens_of_a_finished_cell(results: Path) -> None:
    base, rates = CellRequest("", "", "tiny"), Rates(1e14, 1000.0)
    found: list[Any] = plan(load_table("table1"), "llama-3.1-8b", base, results, rates)
    estimates = {one.row.id: one for one in found if isinstance(one, Estimate)}
    assert set(estimates) == {"pecan", "full_context"} and len(found) == 13 * 4
    pecan = estimates["pecan"]
    assert pecan.dataset == "qasper"
    # Qasper's mean length is not published: its samples are a quarter as long, like chunks and window.
    reading = forward_usage(resolve("llama-3.1-8b").architecture, 4 * READ).flops
    seconds = 1451 * (reading / 1e14 + WRITTEN / 1000)
    assert pecan.question_hours == pytest.approx(seconds / 3600, rel=0.02)
    seconds = DOCUMENTS["qasper"] * (reading / 1e14 + 4 * WRITTEN / 1000)
    assert pecan.index_hours == pytest.approx(seconds / 3600, rel=0.02)
    assert estimates["full_context"].index_hours == 0
    twice = plan(load_table("table1"), "llama-3.1-8b", base, results, Rates(2e14, 2000.0))
    fast = {one.row.id: one for one in twice if isinstance(one, Estimate)}["pecan"]
    assert fast.question_hours == pytest.approx(pecan.question_hours / 2)
    assert fast.question_flops == pecan.question_flops, "how fast it is changes no FLOP"


def test_the_command_says_that_it_estimates_and_what_it_lacks(results: Path) -> None:
    done = CliRunner().invoke(command, ["table1", "--results", str(results), "--decode-tokens", "777"])
    assert done.exit_code == 0, done.output
    assert "**An estimate, not a measurement**" in done.output and "777 tokens per second" in done.output
    assert (
        "Without a finished cell to start from: Full context, narrativeqa, hotpotqa, musique" in done.output
    )
    assert (results / "tables" / "table1_plan.md").read_text("utf-8").strip() == done.output.strip()
