from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.score import command as score
from bench.cli.show import command as show
from bench.results.finished import read_finished
from bench.results.index_store import IndexStore
from bench.results.models import read_summary
from bench.results.records import Record, read_records
from bench.run.cell import Cell
from bench.run.cell_folder import finished_cell
from bench.run.hooks import IndexProgress, RunHooks
from bench.run.question_runner import INDEXES_IN_MEMORY, QuestionRunner
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from tests.bench.faults.runs import REPOSITORY, records_of, rows, run
from tests.stand_ins import Echo, StandInSession, WordModels, examples, run_cell, run_cells, stand_in_cell


def test_every_question_gets_a_scored_record_in_data_order(tmp_path: Path) -> None:
    result = run(stand_in_cell(examples(5)), tmp_path, in_flight=3)
    records = list(read_records(result.folder / "records.jsonl"))
    assert [r.example_id for r in records] == [f"q{i}" for i in range(5)]
    assert all(r.scores == {"f1": 1.0} and r.prediction == r.answers[0] for r in records)
    assert all(r.flops.query > 0 and r.flops.index > 0 and r.tokens.forwarded > 0 for r in records)
    assert result.answered == 5
    assert result.summary.n == 5 and result.summary.n_documents == 3
    assert result.summary.metrics["f1"].mean == 1.0


def test_an_index_is_built_once_per_document_set_and_then_found_on_disk(tmp_path: Path) -> None:
    cell = stand_in_cell(examples(6, questions_per_document=3))
    run(cell, tmp_path)
    assert len(cell.method.indexed) == 2
    again = stand_in_cell(examples(6, questions_per_document=3), {"suffix": "!"})
    again.method.index_options = lambda: {"suffix": ""}  # type: ignore[method-assign]
    cell.method.index_options = again.method.index_options
    first = run_cell(cell, tmp_path / "x", IndexStore(tmp_path / "shared"), WordModels)
    second = run_cell(again, tmp_path / "y", IndexStore(tmp_path / "shared"), WordModels)
    assert again.method.indexed == [], "another cell with the same index options builds nothing"
    assert first.summary.index_flops == second.summary.index_flops > 0


def test_more_in_flight_than_indexes_in_memory_build_each_index_once(tmp_path: Path) -> None:
    class Slow(Echo):
        async def index(self, documents: DocumentSet, models: Any) -> Index:
            await asyncio.sleep(0.01)
            return await super().index(documents, models)

    cell = stand_in_cell(examples(150, questions_per_document=1))
    cell = dataclasses.replace(cell, method=Slow(cell.method.config))
    run(cell, tmp_path, in_flight=INDEXES_IN_MEMORY + 1)
    assert len(cell.method.indexed) == len(set(cell.method.indexed)) == 150


def noting_runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[QuestionRunner, list[str]]:
    """A runner, and the document sets whose index it has begun to read or build, which takes a while."""
    runner = QuestionRunner([stand_in_cell(examples(3))], IndexStore(folder), WordModels())  # type: ignore[arg-type]
    load, begun = runner.load_or_build, list[str]()

    async def noted(documents: DocumentSet) -> Any:
        begun.append(documents.id)
        await asyncio.sleep(0.01)
        return await load(documents)

    monkeypatch.setattr(runner, "load_or_build", noted)
    return runner, begun


def test_of_indexes_the_longest_unused_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.run.question_runner.INDEXES_IN_MEMORY", 2)
    first, second, third = (example.documents for example in examples(3, questions_per_document=1))
    runner, read = noting_runner(tmp_path, monkeypatch)

    async def use(*sets: DocumentSet) -> None:
        for documents in sets:
            await runner.index(documents)

    asyncio.run(use(first, second, first, third, first))
    assert read == [first.id, second.id, third.id], "the first was used again before the third came"
    asyncio.run(use(second))
    assert read[3:] == [second.id]


def test_an_index_being_built_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.run.question_runner.INDEXES_IN_MEMORY", 1)
    first, second = (example.documents for example in examples(2, questions_per_document=1))
    runner, begun = noting_runner(tmp_path, monkeypatch)

    async def all_at_once() -> None:
        await asyncio.gather(*(runner.index(documents) for documents in (first, second, first, second)))

    asyncio.run(all_at_once())
    assert begun == [first.id, second.id]


def test_while_indexes_are_built_tokens_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Graphs that are built together are finished together: "index 0 of 12" for a quarter of an hour.
    monkeypatch.setattr("bench.run.question_runner.REPORT_S", 0.005)

    class Slow(Echo):
        async def index(self, documents: DocumentSet, models: Any) -> Index:
            index = await super().index(documents, models)
            await asyncio.sleep(0.1)
            return index

    class Seen(RunHooks):
        def __init__(self) -> None:
            self.all = list[IndexProgress]()

        def on_start(self, cells: Sequence[Cell], done: Sequence[Mapping[str, Record]]) -> None:
            assert (len(cells), [dict(records) for records in done]) == (1, [{}])

        def on_index(self, progress: IndexProgress) -> None:
            self.all.append(progress)

    cell = stand_in_cell(examples(4, questions_per_document=2))
    run(dataclasses.replace(cell, method=Slow(cell.method.config)), tmp_path, hooks=[seen := Seen()])
    spent = seen.all[-1].tokens
    assert seen.all[0] == IndexProgress(0, 2, 0) and seen.all[-1] == IndexProgress(2, 2, spent)
    assert any(progress.built == 0 and progress.tokens == spent > 0 for progress in seen.all)


def test_a_finished_cell_asks_nothing_and_loads_no_model(tmp_path: Path) -> None:
    run(stand_in_cell(examples(4)), tmp_path)
    before = (tmp_path / "cell" / "records.jsonl").read_bytes()

    def no_models() -> Any:
        raise AssertionError("models were loaded for a finished cell")

    indexes = IndexStore(tmp_path / "indexes")
    assert run_cell(stand_in_cell(examples(4)), tmp_path / "cell", indexes, no_models).answered == 0
    assert (tmp_path / "cell" / "records.jsonl").read_bytes() == before


def test_records_that_changed_after_the_summary_are_summarised_again(tmp_path: Path) -> None:
    cell = stand_in_cell(examples(2))
    run(cell, tmp_path)
    path = tmp_path / "cell" / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0] |= {"prediction": "something else", "scores": {name: 0.0 for name in rows[0]["scores"]}}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert finished_cell(cell, tmp_path / "cell") is None
    assert run(cell, tmp_path).summary.metrics["f1"].mean == 0.5


def test_edited_scores_were_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell, path = stand_in_cell(examples(3)), tmp_path / "cell" / "records.jsonl"
    run(cell, tmp_path)
    honest = path.read_bytes()
    right = read_finished(path.parent)
    score_it = partial(CliRunner().invoke, score, [str(path.parent)])
    for again in (partial(run, cell, tmp_path), score_it):
        path.write_bytes(honest.replace(b'"f1": 1.0', b'"f1": 0.0', 2))
        caplog.clear()
        assert [record.scores["f1"] for record in read_records(path)] == [1, 1, 1]
        assert "scores of 2 record(s), such as 'q0', do not follow" in caplog.text
        CliRunner().invoke(show, [str(path.parent)], catch_exceptions=False)
        assert f"{path.parent}: its records were edited" in caplog.text
        caplog.clear()
        again()
        assert "scores of 2 record(s), such as 'q0', do not follow" in caplog.text
        assert path.read_bytes() == honest and read_finished(path.parent) == right
    path.write_text("".join(json.dumps(json.loads(r) | {"answers": []}) + "\n" for r in honest.splitlines()))
    score_it()  # without references the summary's scores were lost
    assert read_summary(path.parent) == right.summary


def test_failed_questions_are_recorded_counted_scored_zero_and_asked_again_if_told_to(tmp_path: Path) -> None:
    good, bad, other = examples(3)
    failing = dataclasses.replace(bad, question="please fail now")
    poison = dataclasses.replace(other, documents=DocumentSet((Document("", "unindexable"),)))
    cell = stand_in_cell([good, failing, poison])
    summary = run(cell, tmp_path).summary
    records = list(read_records(tmp_path / "cell" / "records.jsonl"))
    errors = ["RuntimeError: asked to fail", "ValueError: this document cannot be indexed"]
    assert [record.error for record in records] == [None, *errors]
    assert records[1].prediction is None and records[1].scores == {"f1": 0.0}
    assert summary.n_failed == 2 and summary.errors == {"RuntimeError": 1, "ValueError": 1}
    assert summary.metrics["f1"].mean == pytest.approx(1 / 3)
    assert run(cell, tmp_path).answered == 0
    unavailable = StandInSession(tmp_path, lambda: 1 / 0, retry_failed=True)
    with pytest.raises(ZeroDivisionError):  # the failures were dropped before the model was there
        unavailable.run_all([[dataclasses.replace(cell, out=tmp_path / "cell")]])
    assert finished_cell(cell, tmp_path / "cell") is not None
    assert run(cell, tmp_path, retry_failed=True).answered == 2
    assert len(list(read_records(tmp_path / "cell" / "records.jsonl"))) == 3


def test_a_shared_run_that_was_cut_between_two_cells_asks_what_one_of_them_misses(tmp_path: Path) -> None:
    """And asks it for that cell alone: the other one gets no second record of the question."""
    asked: list[tuple[str, str]] = []

    class Shared(Echo):
        def index_options(self) -> dict[str, Any]:
            return {}

        async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
            asked.append((question.text, self.config.suffix))
            return await super().answer(index, question, models)

    def cells() -> list[tuple[Any, Path]]:
        variants = {suffix: stand_in_cell(examples(4), {"suffix": suffix}) for suffix in ("a", "b")}
        shared = {s: dataclasses.replace(c, method=Shared(c.method.config)) for s, c in variants.items()}
        return [(cell, tmp_path / suffix) for suffix, cell in shared.items()]

    indexes = IndexStore(tmp_path / "indexes")
    run_cells(cells(), indexes, WordModels)
    files = [tmp_path / name / "records.jsonl" for name in ("a", "b")]
    whole = [records_of(path.parent) for path in files]
    lines = files[1].read_bytes().splitlines(keepends=True)
    files[1].write_bytes(b"".join(lines[:1] + lines[2:]))  # the first cell's record was written, not this one
    (tmp_path / "a" / "summary.json").unlink()
    (tmp_path / "b" / "summary.json").unlink()
    asked.clear()
    first, second = run_cells(cells(), indexes, WordModels)
    assert asked == [("What is answer1", "b")]
    assert (first.answered, second.answered) == (0, 1)
    assert [records_of(path.parent) for path in files] == whole


WAITING_RUN = """
import asyncio, sys
sys.modules.update(sklearn=None, pandas=None)  # NLTK imports them if it can, which takes seconds
from pathlib import Path
from bench.results.index_store import IndexStore
from bench.run.hooks import RunHooks
from tests.stand_ins import run_cell
from tests.stand_ins import WordModel, WordModels, examples, stand_in_cell
folder, most, questions, in_flight = Path(sys.argv[1]), *map(int, sys.argv[2:])
class Counting(RunHooks):
    n = 0
    def on_start(self, cells, done): Counting.n = sum(map(len, done))
    def on_record(self, record): Counting.n += 1
class Waiting(WordModel):
    async def generate(self, *arguments):
        while Counting.n >= most: await asyncio.sleep(60)
        return await super().generate(*arguments)
run_cell(stand_in_cell(examples(questions)), folder / "cell", IndexStore(folder / "indexes"),
         lambda: WordModels(Waiting()), in_flight=in_flight, hooks=[Counting()])
"""
"""A run that asks nothing more once it has so many records, so that it is there to be cut.

Arguments: folder, most records, questions, questions in flight.
"""


def test_an_interrupted_run_continues_to_the_records_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def start(most: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WAITING_RUN, str(tmp_path / "cut"), str(most), "40", "4"]
        return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)

    records = tmp_path / "cut" / "cell" / "records.jsonl"
    for most, how in ((3, signal.SIGINT), (11, signal.SIGTERM)):
        process = start(most)
        while not (records.exists() and records.read_bytes().count(b"\n") >= most):
            assert process.poll() is None, "the run ended by itself"
            time.sleep(0.002)
        os.kill(process.pid, how)
        assert process.wait(timeout=60) != 0
    run(stand_in_cell(examples(40)), tmp_path / "cut")
    run(stand_in_cell(examples(40)), tmp_path / "whole")
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
