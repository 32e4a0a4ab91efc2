"""Training before questions: planned, kept, cut, shared and paid for, on stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.data.cards import load_card
from bench.errors import ConfigError
from bench.flops.meter import Usage, current_meter
from bench.method.contract import Reference, Training, TrainingItem
from bench.results.index_store import IndexStore
from bench.results.records import Record, read_records
from bench.run.cell import CellRequest, plan_cell
from bench.run.training_plan import NoTrainingDataError, TrainingPlan, plan_training, with_source
from bench.schema import Document, DocumentSet, Example, Index, Prediction, Question
from tests.bench.data.lines import write
from tests.stand_ins import Echo, WordModels, examples, run_cell, stand_in_cell


class Counting(Echo):
    """Learns how many words all documents have, and answers with that number."""

    trained_on: list[list[str]]

    def training(self, dataset: str) -> Training | None:
        return Training({"dataset": dataset})

    async def train(self, items: Sequence[TrainingItem], training: Training, models: Any) -> Index:
        self.trained_on.append([item.documents.id for item in items])
        current_meter().credit("own", "train", Usage(calls=2, flops=100))
        return Index({"words": sum(item.index.data["words"] for item in items)})

    def finish(self, index: Index, learned: Index | None) -> Index:
        current_meter().credit("own", "finish", Usage(calls=1, flops=7))
        return Index({**index.data, "all": learned.data["words"]}, index.arrays)

    async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
        prediction = await super().answer(index, question, models)
        return replace(prediction, trace={"all": index.data["all"]})


def counting_cell(sample: Sequence[Example]) -> Any:
    plain = stand_in_cell(sample)
    method = Counting(plain.method.config)
    method.trained_on = []
    run = SimpleNamespace(examples=tuple(sample))
    training = plan_training(method.training("toy"), run, lambda _: run, 0)  # type: ignore[arg-type]
    return replace(plain, method=method, training=training)


def run(cell: Any, folder: Path) -> list[Record]:
    result = run_cell(cell, folder / "cell", IndexStore(folder / "indexes"), WordModels)
    return list(read_records(result.folder / "records.jsonl"))


def test_the_method_learns_once_from_all_documents_before_the_first_question(tmp_path: Path) -> None:
    cell = counting_cell(examples(6))
    records = run(cell, tmp_path)
    assert [record.trace["all"] for record in records] == [6] * 6
    assert cell.method.trained_on == [[s.id for s in cell.training.sets]] and len(cell.training.sets) == 3
    again = counting_cell(examples(6))
    result = run_cell(again, tmp_path / "other", IndexStore(tmp_path / "indexes"), WordModels)
    assert not again.method.trained_on and result.answered == 6


def test_what_was_learned_depends_on_the_documents(tmp_path: Path) -> None:
    run(counting_cell(examples(6)), tmp_path / "a")
    fewer = counting_cell(examples(4))
    run_cell(fewer, tmp_path / "cell", IndexStore(tmp_path / "a" / "indexes"), WordModels)
    assert len(fewer.method.trained_on) == 1 and not fewer.method.indexed, "indexes are shared"


def test_its_cost_is_shared_by_the_documents(tmp_path: Path) -> None:
    for record in run(counting_cell(examples(6)), tmp_path):
        own = record.flops.index_by_model["own"]
        assert own["train"]["flops"] == 33 and own["finish"]["flops"] == 7
        assert record.flops.index_by_model["words"]["prefill"]["calls"] == 1
        assert record.flops.query_by_model.keys() == {"words"}


def test_documents_learned_from_that_nobody_asks_about_are_paid_for_too(tmp_path: Path) -> None:
    cell = counting_cell(examples(2))
    others = tuple(example.documents for example in examples(6)[2:])
    cell = replace(cell, training=TrainingPlan(Training({}), others[::2], {}, "x"))
    for record in run(cell, tmp_path):
        assert record.flops.index_by_model["words"]["prefill"]["calls"] == 3
        assert record.flops.index_by_model["own"]["train"]["flops"] == 100


def test_a_document_that_cannot_be_indexed_is_left_out_and_only_its_questions_fail(tmp_path: Path) -> None:
    good = list(examples(4))
    poison = Example(**{**vars(good[0]), "id": "p", "documents": DocumentSet((Document("", "unindexable"),))})
    cell = counting_cell([*good, poison])
    records = run(cell, tmp_path)
    assert [r.error for r in records] == [None] * 4 + ["ValueError: this document cannot be indexed"]
    assert cell.method.trained_on == [[good[0].documents.id, good[2].documents.id]]
    again = counting_cell([*good, poison])
    run_cell(again, tmp_path / "x", IndexStore(tmp_path / "indexes"), WordModels)
    assert not again.method.trained_on, "what was learned from the others is kept under their hash"


def data(count: int, task: str = "qa") -> Any:
    sample = [Example(**{**vars(e), "task": task}) for e in examples(count, questions_per_document=1)]
    return SimpleNamespace(examples=tuple(sample))


def test_of_too_many_documents_a_seeded_sample_is_learned_from() -> None:
    def sample(seed: int) -> list[str]:
        plan = plan_training(Training({}, most=5), data(40), lambda _: None, seed)  # type: ignore[arg-type, return-value]
        return [documents.id for documents in plan.sets]

    order = [example.documents.id for example in data(40).examples]
    assert sample(0) == sample(0) != sample(1)
    assert len(set(sample(0))) == 5 and sample(0) == sorted(sample(0), key=order.index)


def test_references_are_those_of_training_data_and_summaries() -> None:
    wanted = Training({}, data="elsewhere", references=True)
    asked = SimpleNamespace(examples=data(9).examples[6:])
    plan = plan_training(wanted, asked, lambda _: data(3, "summarization"), 0)
    assert plan is not None and plan.identity
    assert plan.references[plan.sets[1].id] == (Reference("What is answer1", ("answer1",)),)
    with pytest.raises(ConfigError, match="has none, its task is 'qa'. Choose a summarisation"):
        plan_training(wanted, asked, lambda _: data(3), 0)
    with pytest.raises(ConfigError, match="2 of the 3 training examples are on documents of the run itself"):
        plan_training(wanted, data(2), lambda _: data(3, "summarization"), 0)
    own = Training({}, references=True)
    with pytest.raises(ConfigError, match="train_on=PATH"):
        plan_training(own, data(2, "summarization"), lambda _: data(2), 0)
    plain = plan_training(Training({}, data="elsewhere"), data(2), lambda _: data(3, "summarization"), 0)
    assert plain is not None and plain.references == {} and plain.identity != plan.identity


def test_a_sample_without_a_training_part_is_not_learned_from_in_its_place() -> None:
    with pytest.raises(NoTrainingDataError, match="the sample set of hotpotqa has no training part.*PATH"):
        plan_cell(CellRequest("gor", "hotpotqa", options={"train_on": "train"}, limit=1))
    there = plan_cell(CellRequest("gor", "chronicles", options={"train_on": "train"}, limit=1))
    assert there.training is not None and len(there.training.sets) == 8
    whole = plan_cell(CellRequest("gor", "hotpotqa", options={"train_on": "sample"}, limit=1))
    assert whole.training is not None, "named as such, the sample set is what it is"


def test_auto_is_the_training_part_where_there_is_one() -> None:
    # Graph of Records, Table 5: trained on up to 400 training documents.
    asked = Training(options={}, data="auto")
    for data, dataset, expected in (
        ("sample", "chronicles", "train"),
        ("sample", "hotpotqa", "run"),
        ("hub", "qmsum", "train"),
        ("hub", "wcep", "run"),
        ("documents.jsonl", "qmsum", "run"),
    ):
        training = with_source(asked, data, load_card(dataset))
        assert training is not None and training.data == expected
    assert with_source(None, "sample", load_card("chronicles")) is None


def test_a_folder_with_a_training_file_is_learned_from_as_the_hub_is(tmp_path: Path) -> None:
    for name, count in (("test", 2), ("train", 3)):
        rows = [{"document": [f"{name} {n} " + "word " * 6001], "summary": "It was."} for n in range(count)]
        write(tmp_path / f"{name}.jsonl", *rows)
    cell = plan_cell(CellRequest("gor", "wcep", data=str(tmp_path), options={"ranking_encoder": "minilm"}))
    assert cell.training is not None and cell.training.training.data == "train"
    assert len(cell.training.sets) == 3 and cell.identity.training
    assert {s.id for s in cell.training.sets}.isdisjoint(e.documents.id for e in cell.data.examples)
    (tmp_path / "train.jsonl").unlink()
    with pytest.raises(NoTrainingDataError, match="in a folder, the training part is a file named train"):
        plan_cell(CellRequest("gor", "wcep", data=str(tmp_path), options={"train_on": "train"}))
