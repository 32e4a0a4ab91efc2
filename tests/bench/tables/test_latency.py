"""Answers timed one at a time; tables of times and of judgements, on the small model and a toy set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.errors import DataError, UnknownNameError
from bench.flops.meter import Meter, metered
from bench.models.spec import resolve
from bench.run.cell import Cell, CellRequest
from bench.run.judge_protocol import BOTH_ORDERS, PROTOCOLS
from bench.run.session import Session
from bench.tables.cells import TableData, plan_table, table_cells
from bench.tables.definition import Row, TableDefinition, load_table
from bench.tables.judged import judged_table
from bench.tables.latency import measure, stored_time, timed_table

ROWS = (
    Row(id="closed_book", label="Closed book", method="closed_book"),
    Row(id="bm25", label="BM25", method="bm25", set={"k": 1}),
    Row(id="gone", label="Gone", method="no_such_method"),
)
TIMED = (*ROWS, Row(id="iter", label="Iter-RetGen", method="iter_retgen"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "toy.jsonl"
    row = {"dataset": "chronicles", "task": "summarization", "question": "Write a summary of the text above."}
    row["answers"] = ["Mara Elin lived in Ostcombe."]
    texts = [f"Mara Elin lived in Ostcombe. She was born in 175{number}." for number in range(3)]
    lines = [json.dumps({**row, "id": f"c{at}", "documents": text}) for at, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of all these tables, run once."""
    results = tmp_path_factory.mktemp("results")
    made("timed", data, results)
    return results


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> Path:
    """A copy of them, for what a test adds."""
    return Path(shutil.copytree(finished, tmp_path / "results"))


def made(kind: str, data: Path, results: Path, **more: Any) -> tuple[TableData, Any]:
    shown: Any = {
        "datasets": ("chronicles",),
        "metrics": ("rouge_1",),
        "rows": TIMED if kind == "timed" else ROWS,
        **more,
    }
    definition = TableDefinition(id="t", kind=kind, title="T", source="S", **shown)  # type: ignore[arg-type]
    planned = plan_table(definition, CellRequest(data=str(data), limit=2))
    return table_cells(definition, planned, Session(results)), planned


def test_answers_are_timed_alone_on_each_machine_with_nothing_read_before(
    data: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, planned = made("timed", data, results)
    cell = planned["bm25", "chronicles"]
    before = (cell.folder(results) / "records.jsonl").read_bytes()
    meters: list[Meter] = []
    read = cell.method.read_picked

    async def noted(*arguments: Any) -> Any:
        with metered(Meter()) as meter:
            prediction = await read(*arguments)
        meters.append(meter)
        return prediction

    monkeypatch.setattr(cell.method, "read_picked", noted)
    rendered = timed_table(table, planned, {}, Session(results, compute=False)).rows
    assert all(line[1] == "–" for line in rendered)
    times = measure(cell, results, questions=2)
    assert times is not None and times == stored_time(cell, results)
    assert all(0 < ranking < taken for ranking, taken in zip(times.ranking, times.seconds, strict=True))
    assert len(meters) == 3 and [meter.reused_tokens for meter in meters] == [0, 0, 0]
    lines = timed_table(table, planned, {}, Session(results))
    by_row = {line[0].rpartition(": ")[2]: line for line in lines.rows}
    assert by_row["BM25"][4] == "2" and len(meters) == 3, "what is kept is not measured again"
    assert by_row["Closed book"][1] == "–" and float(by_row["Closed book"][3]) > 0
    assert by_row["Iter-RetGen"][1] == "–", "it ranks more than once, and was timed without its rounds"
    assert by_row["Gone"][1:5] == ("–", "–", "–", "–") and "no_such_method" in " ".join(lines.notes)
    assert (cell.folder(results) / "records.jsonl").read_bytes() == before
    monkeypatch.setattr("bench.tables.latency.machine", lambda: "loom")
    elsewhere = timed_table(table, planned, {}, Session(results, compute=False))
    assert f"Measured on: {times.machine}." in elsewhere.caption[0]
    assert "Measured on: loom." in timed_table(table, planned, {}, Session(results)).caption[0]


def test_every_row_is_judged_against_one(data: Path, results: Path) -> None:
    table, planned = made("judged", data, results, judged_against="bm25")
    nothing = judged_table(table, {}, Session(results, compute=False), resolve("tiny"), BOTH_ORDERS)
    assert [line[1] for line in nothing.rows] == ["–", "–"]
    assert "Not judged, or only in part: chronicles (toy.jsonl): Closed book." in nothing.notes
    asked = judged_table(table, {}, Session(results), resolve("tiny"), BOTH_ORDERS)
    (line, gone) = asked.rows
    assert line[0] == "chronicles (toy.jsonl): Closed book" and gone[1] == "–"
    counts = [sum(map(int, cell.split(" / "))) for cell in line[1:5]]
    unparsable = int(line[6])
    assert sum(counts) + unparsable == 4 * 2
    assert float(line[8]) > 0
    again = judged_table(table, {}, Session(results, compute=False), resolve("tiny"), BOTH_ORDERS)
    assert again.rows == asked.rows
    assert "never taught to judge" in asked.caption[0]
    assert not any("Not judged" in note for note in asked.notes)
    table.definition.__dict__["judged_against"] = "other"
    with pytest.raises(DataError, match="judged_against is 'other'"):
        judged_table(table, {}, Session(results, compute=False), resolve("tiny"), BOTH_ORDERS)


def test_win_rates_by_the_papers_protocol_count_what_failed(data: Path, results: Path) -> None:
    table, planned = made("judged", data, results, judged_against="bm25")
    asked = judged_table(table, {}, Session(results), resolve("tiny"), PROTOCOLS["paper"])
    assert asked.columns == ("Data and method", "wins", "BM25 wins", "failed", "n", "TFLOPs")
    (line, gone) = asked.rows
    assert line[1:5] == ("–", "–", "2", "2")  # tiny writes no JSON
    assert gone[1] == "–"
    assert "without a JSON object" in asked.caption[0]
    ours = judged_table(table, {}, Session(results, compute=False), resolve("tiny"), BOTH_ORDERS)
    assert ours.rows[0][1] == "–", "kept apart"


def test_a_table_shows_its_sample_sets_on_the_sample_data_and_its_own_elsewhere() -> None:
    table = load_table("gor1")
    assert table.on("sample").datasets == ("chronicles",)
    assert table.on("hub").datasets == ("qmsum", "academic_eval", "wcep", "booksum")
    assert table.on("hub", ["wcep"]).datasets == ("wcep",)
    with pytest.raises(UnknownNameError, match="qasper"):
        table.on("hub", ["qasper"])
    assert load_table("table1").on("sample") == load_table("table1")
    assert load_table("table1").on("sample", ["qasper", "qasper"]).datasets == ("qasper",), "shown twice"


@pytest.mark.parametrize("name", ["gor1", "gor2", "gor3", "gor4", "gor7", "gor8"])
def test_the_tables_of_graph_of_records_can_be_planned_on_the_sample(name: str) -> None:
    definition = load_table(name).on("sample")
    planned = plan_table(definition, CellRequest(limit=1))
    without = {row for (row, _), plan in planned.items() if isinstance(plan, str)}
    assert without == {row.id for row in definition.rows if row.model}  # named beside llama-2-7b-chat alone
    cells = {plan.identity.cell_id for plan in planned.values() if isinstance(plan, Cell)}
    assert len(cells) == len(definition.rows) - len(without)


def test_the_supervised_row_learns_from_the_training_part_alone(data: Path) -> None:
    planned = plan_table(load_table("gor3").on("sample"), CellRequest(data=str(data), limit=1))
    assert "train_on=PATH" in str(planned["supervised", "chronicles"])
