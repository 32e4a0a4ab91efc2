"""Answers timed one at a time; tables of times and of judgements, on the small model and a toy set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.errors import ConfigError, DataError, UnknownNameError
from bench.flops.meter import Meter, metered
from bench.models.embedder import Embedder
from bench.models.model_set import LoadedModels
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.judge_protocol import PROTOCOLS
from bench.run.session import Session
from bench.tables.cells import TableData, plan_table, table_cells
from bench.tables.definition import Row, TableDefinition, load_table
from bench.tables.judged import judged_table
from bench.tables.latency import measure, stored_time, timed_table
from bench.tables.make import TableRequest, make_table

ROWS = (
    Row(id="closed_book", label="Closed book", method="closed_book"),
    Row(id="bm25", label="BM25", method="bm25", set={"k": 1}),
    Row(id="gone", label="Gone", method="no_such_method"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "toy.jsonl"
    rows = [
        {
            "id": f"c{number}",
            "dataset": "chronicles",
            "task": "summarization",
            "question": "Write a fluent and complete summary of the text above.",
            "answers": ["Mara Elin lived in Ostcombe."],
            "documents": [
                {"title": "", "text": f"Mara Elin lived in Ostcombe. She was born in 175{number}."}
            ],
        }
        for number in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
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
    definition = TableDefinition(
        id="t",
        kind=kind,  # type: ignore[arg-type]
        title="T",
        source="S",
        datasets=("chronicles",),
        metrics=("rouge_1",),
        rows=ROWS,
        **more,
    )
    planned = plan_table(definition, CellRequest(data=str(data), limit=2))
    return table_cells(definition, planned, Session(results)), planned


def test_answers_are_timed_alone_and_kept_apart_from_the_records(data: Path, results: Path) -> None:
    table, planned = made("timed", data, results)
    cell = planned["bm25", "chronicles"]
    before = (cell.folder(results) / "records.jsonl").read_bytes()
    assert stored_time(cell, results) is None
    rendered = timed_table(table, planned, {}, Session(results, compute=False)).rows
    assert all(line[1] == "–" for line in rendered)
    times = measure(cell, results, LoadedModels(cell.roles), questions=2)
    assert times is not None and len(times.seconds) == 2 and all(taken > 0 for taken in times.seconds)
    assert stored_time(cell, results) == times
    assert "core" in times.machine or "NVIDIA" in times.machine
    lines = timed_table(table, planned, {}, Session(results))
    by_row = {line[0].rpartition(": ")[2]: line for line in lines.rows}
    assert by_row["BM25"][3] == f"{times.mean:.2f}"  # what is kept is not measured again
    assert by_row["Closed book"][1] == "–" and by_row["Closed book"][5] == "2"
    assert by_row["Gone"][1:6] == ("–", "–", "–", "–", "–")
    assert "no_such_method" in " ".join(lines.notes)
    assert (cell.folder(results) / "records.jsonl").read_bytes() == before


def test_nothing_of_a_timed_question_was_read_before(
    data: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, planned = made("timed", data, results)
    cell = planned["bm25", "chronicles"]
    models = LoadedModels(cell.roles)
    meters: list[Meter] = []
    rank, answer = cell.method.rank, cell.method.answer

    async def reading_rank(index: Any, question: Any, models: Any) -> Any:
        """As a ranker that has the reader judge passages."""
        await models.lm().generate(question.documents.documents[0].text * 40, 1)
        return await rank(index, question, models)

    async def noted(*arguments: Any) -> Any:
        with metered(Meter()) as meter:
            prediction = await answer(*arguments)
        meters.append(meter)
        return prediction

    monkeypatch.setattr(cell.method, "rank", reading_rank)
    monkeypatch.setattr(cell.method, "answer", noted)
    for _ in range(2):
        assert measure(cell, results, models, questions=2) is not None
    assert len(meters) == 6 and all(meter.reuse_known for meter in meters)
    assert [meter.reused_tokens for meter in meters[1:3] + meters[4:]] == [0, 0, 0, 0]


def test_a_timed_question_is_embedded_each_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"encoder": "tiny-sentence"}
    cell = plan_cell(CellRequest("sbert", "chronicles", data=str(data), options=options, limit=2))
    encoded: list[str] = []
    encode = Embedder._encode

    def noted(self: Embedder, texts: Sequence[str], exact: bool) -> Any:
        encoded.extend(texts)
        return encode(self, texts, exact)

    monkeypatch.setattr(Embedder, "_encode", noted)
    assert measure(cell, tmp_path / "results", LoadedModels(cell.roles), questions=2) is not None
    asked = cell.question(cell.data.examples[0]).query
    assert encoded.count(asked) == 6, "for ranking and answering, of two questions and a warm-up"


def test_what_was_timed_on_another_machine_is_shown_but_measured_again(
    data: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, planned = made("timed", data, results)
    cell = planned["bm25", "chronicles"]
    monkeypatch.setattr("bench.tables.latency.machine", lambda: "abacus")
    measure(cell, results, LoadedModels(cell.roles), questions=2)
    monkeypatch.setattr("bench.tables.latency.machine", lambda: "loom")
    there = timed_table(table, planned, {}, Session(results, compute=False))
    assert "Measured on: abacus." in there.caption[0]
    again = timed_table(table, planned, {}, Session(results))
    assert "Measured on: loom." in again.caption[0]
    kept = stored_time(cell, results)
    assert kept is not None and kept.machine == "loom"


def test_every_row_is_judged_against_one(data: Path, results: Path) -> None:
    table, planned = made("judged", data, results, judged_against="bm25")
    nothing = judged_table(table, Session(results, compute=False), "tiny")
    assert [line[1] for line in nothing.rows] == ["–", "–"]
    assert "Not judged, or only in part: chronicles (toy.jsonl): Closed book." in nothing.notes
    asked = judged_table(table, Session(results), "tiny")
    (line, gone) = asked.rows
    assert line[0] == "chronicles (toy.jsonl): Closed book" and gone[1] == "–"
    counts = [sum(map(int, cell.split(" / "))) for cell in line[1:5]]
    unparsable = int(line[6])
    assert sum(counts) + unparsable == 4 * 2
    assert float(line[8]) > 0
    again = judged_table(table, Session(results, compute=False), "tiny")
    assert again.rows == asked.rows
    assert "never taught to judge" in asked.caption[0]
    assert not any("Not judged" in note for note in asked.notes)
    table.definition.__dict__["judged_against"] = "other"
    with pytest.raises(DataError, match="judged_against is 'other'"):
        judged_table(table, Session(results, compute=False), "tiny")


def test_win_rates_by_the_papers_protocol_count_what_failed(data: Path, results: Path) -> None:
    table, planned = made("judged", data, results, judged_against="bm25")
    asked = judged_table(table, Session(results), "tiny", protocol=PROTOCOLS["paper"])
    assert asked.columns == ("Data and method", "wins", "BM25 wins", "failed", "n", "TFLOPs")
    (line, gone) = asked.rows
    assert line[1:5] == ("–", "–", "2", "2")  # tiny writes no JSON
    assert gone[1] == "–"
    assert "without a JSON object" in asked.caption[0]
    assert judged_table(table, Session(results, compute=False), "tiny").rows[0][1] == "–", (
        "kept apart from ours"
    )
    with pytest.raises(ConfigError, match="--protocol is for tables of judgements"):
        make_table(TableRequest(load_table("table1"), CellRequest(), Session(results), protocol="paper"))


def test_a_table_shows_its_sample_sets_on_the_sample_data_and_its_own_elsewhere() -> None:
    table = load_table("gor1")
    assert table.on("sample").datasets == ("chronicles",)
    assert table.on("hub").datasets == ("qmsum", "academic_eval", "wcep", "booksum")
    assert table.on("hub", ["wcep"]).datasets == ("wcep",)
    with pytest.raises(UnknownNameError, match="qasper"):
        table.on("hub", ["qasper"])
    assert load_table("table1").on("sample") == load_table("table1")


@pytest.mark.parametrize("name", ["gor1", "gor2", "gor3", "gor4", "gor7", "gor8"])
def test_the_tables_of_graph_of_records_can_be_planned_on_the_sample(name: str) -> None:
    definition = load_table(name).on("sample")
    planned = plan_table(definition, CellRequest(limit=1))
    without = {row for (row, _), plan in planned.items() if isinstance(plan, str)}
    assert without == {row.id for row in definition.rows if row.model}  # named beside llama-2-7b-chat alone
    cells = {plan.identity.cell_id for plan in planned.values() if isinstance(plan, Cell)}
    assert len(cells) == len(definition.rows) - len(without)


def test_the_supervised_row_learns_from_the_training_part_alone(data: Path) -> None:
    options = {"supervised": "on", "train_on": "train"}
    cell = plan_cell(CellRequest("gor", "chronicles", options=options))
    assert cell.training is not None and len(cell.training.sets) == 8
    asked = {example.documents.id for example in cell.data.examples}
    assert asked.isdisjoint(documents.id for documents in cell.training.sets)
    planned = plan_table(load_table("gor3").on("sample"), CellRequest(data=str(data), limit=1))
    assert "train_on=PATH" in str(planned["supervised", "chronicles"])
