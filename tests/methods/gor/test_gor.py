"""The method through the harness, with the shipped models at small settings."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import BenchError, ConfigError
from bench.method.options import build_config
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from bench.results.index_store import IndexStore
from bench.results.records import Record, read_records
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.schema import Document, DocumentSet, Index, JsonValue, Question
from methods.gor import Gor, GorConfig
from methods.gor.records import Records, cosines
from methods.gor.retrieval import RecordsConfig
from tests.methods.writers import needs_gensim
from tests.stand_ins import run_cell

SMALL: dict[str, JsonValue] = {"queries": 4, "k": 3}
GEOMETRY = resolve("tiny").geometry


def cell(method: str = "gor", **options: JsonValue) -> Cell:
    learning = {"epochs": 4} if method == "gor" and options.get("train") != "off" else {}
    return plan_cell(CellRequest(method, "hotpotqa", options={**SMALL, **learning, **options}, limit=3))


def run(planned: Cell, folder: Path) -> list[Record]:
    store = IndexStore(folder / "indexes")
    result = run_cell(planned, planned.folder(folder), store, lambda: LoadedModels(planned.roles))
    records = list(read_records(result.folder / "records.jsonl"))
    assert [record.error for record in records] == [None] * len(records)
    return records


def kept(folder: Path, name: str) -> dict[str, bytes]:
    return {p.parent.name: p.read_bytes() for p in sorted((folder / "indexes" / name).glob("*/arrays.*"))}


@needs_gensim
def test_records_are_built_once_for_all_methods_and_learned_from_once_a_training(tmp_path: Path) -> None:
    off = run(cell(train="off"), tmp_path)
    records = kept(tmp_path, "records")
    assert len(records) == 3 and not kept(tmp_path, "gor")
    on = run(cell(), tmp_path)
    assert kept(tmp_path, "records") == records, "training changes no record"
    (weights,) = kept(tmp_path, "gor").values()
    run(cell(k=1), tmp_path)
    assert list(kept(tmp_path, "gor").values()) == [weights], "k is no part of what is learned"
    run(cell(loss="cl"), tmp_path)
    run(cell("thought_retriever"), tmp_path)
    run(cell("node2vec"), tmp_path)
    assert kept(tmp_path, "records") == records and len(kept(tmp_path, "gor")) == 2
    assert [r.trace["nodes"] for r in on] != [r.trace["nodes"] for r in off], "training changes what is read"
    assert all(len(record.context) == 3 for record in on)
    for with_training, without in zip(on, off, strict=True):
        assert with_training.flops.index > without.flops.index > 0
        added = with_training.flops.index_by_model
        assert added["gor-gnn"]["train"]["flops"] > 0 and added["gor-gnn"]["embed"]["flops"] > 0
        assert added["minilm"]["bertscore"]["flops"] > 0
        assert added["tiny"] == without.flops.index_by_model["tiny"]
        assert set(with_training.flops.query_by_model) == {"tiny", "tiny-sentence"}
    (share,) = {record.flops.index_by_model["gor-gnn"]["train"]["flops"] for record in on}
    manifests = (tmp_path / "indexes" / "gor").glob("*/manifest.json")
    trained = [json.loads(path.read_bytes())["meter"]["gor-gnn"]["train"] for path in manifests]
    assert share in [usage["flops"] // 3 for usage in trained]


def test_other_documents_can_be_learned_from_and_those_asked_about_pay(tmp_path: Path) -> None:
    own, other = cell(), cell(train_on="sample", train_documents=2)
    assert own.training is not None and other.training is not None
    assert len(own.training.sets) == 3 and own.identity.training == ""
    assert len(other.training.sets) == 2 and other.identity.training
    foreign = {s.id for s in other.training.sets} - {s.id for s in own.training.sets}
    assert foreign
    learned = run(other, tmp_path)
    assert len(kept(tmp_path, "records")) == 3 + len(foreign)
    without = run(cell(train="off"), tmp_path)
    for record, plain in zip(learned, without, strict=True):
        shared = record.flops.index_by_model["tiny"]["prefill"]["flops"]
        assert shared > plain.flops.index_by_model["tiny"]["prefill"]["flops"]


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [("gov_report", (0.5, 0.7)), ("academic_eval", (0.0, 0.6)), ("hotpotqa", (0.2, 0.9))],
)
def test_dropout_and_alpha_follow_the_data_set(dataset: str, expected: tuple[float, float]) -> None:
    training = Gor(GorConfig(), GEOMETRY).training(dataset)
    assert training is not None and (training.options["dropout"], training.options["alpha"]) == expected
    fixed = Gor(GorConfig(dropout=0.4, alpha=0.0), GEOMETRY).training(dataset)
    assert fixed is not None and (fixed.options["dropout"], fixed.options["alpha"]) == (0.4, 0.0)


def test_every_option_of_learning_is_part_of_its_key_and_none_of_reading() -> None:
    elsewhere = {"train", "train_on", "train_documents", "ranking_encoder"}
    learning = set(GorConfig.model_fields) - set(RecordsConfig.model_fields) - elsewhere
    training = Gor(GorConfig(train_queries=5), GEOMETRY).training("qmsum")
    assert training is not None and set(training.options) == learning
    wording = {"chunk_tokens", "overlap_tokens", "question_tokens", "answer_tokens", "wording"}
    assert set(Gor(GorConfig(), GEOMETRY).index_options()) == wording | {"queries", "k", "temperature"}


def test_fewer_queries_in_training_share_the_graph_and_all_of_them_are_the_default() -> None:
    every, fewer = Gor(GorConfig(), GEOMETRY), Gor(GorConfig(train_queries=5), GEOMETRY)
    assert fewer.index_options() == every.index_options()
    assert fewer.training("qmsum") != every.training("qmsum")
    assert Gor(GorConfig(train_queries=30), GEOMETRY).training("qmsum") == every.training("qmsum")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"supervised": "on", "train_on": "run"}, "name training data with train_on=PATH"),
        ({"supervised": "on", "train": "off"}, "drop it, or train=off"),
        ({"gnn": "gcn", "train": "off"}, "gnn=gcn is a way of training; drop it, or train=off"),
        ({"ranking_encoder": "x/y", "train": "off"}, "ranking_encoder=x/y is a way of training"),
        ({"alpha": 0.5, "loss": "cl"}, "loss=cl is one"),
        ({"in_batch_negatives": "off", "loss": "rank"}, "loss=rank has none"),
        ({"supervised": "on", "train_on": "train", "train_queries": 5}, "drop train_queries"),
        ({"train_queries": 31}, "is above queries=30"),
        ({"gnn": "mlp"}, "gat.*gcn.*sgc.*gin.*sage"),
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(GorConfig, options, "gor")


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlap_tokens=64 is not less than chunk_tokens=64"):
        Gor(GorConfig(overlap_tokens=64), GEOMETRY)
    with pytest.raises(ConfigError, match="more than the model takes"):
        Gor(GorConfig(chunk_tokens=9_000), GEOMETRY)


def test_a_missing_package_is_an_error_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch_geometric" else find(n))
    with pytest.raises(BenchError, match=r"The method gor needs torch_geometric; .*'longdoc-bench\[gor\]'"):
        cell().require_packages()
    cell(train="off").require_packages()


def graph(texts: int) -> tuple[Index, DocumentSet, np.ndarray[Any, np.dtype[np.float32]]]:
    """A stored graph of so many one-word chunks, without queries."""
    source = " ".join(f"w{i}" for i in range(texts))
    spans = [[0, m, m + 2, 1] for m in range(0, 3 * texts, 3)]
    vectors = np.random.default_rng(0).normal(size=(texts, 384)).astype(np.float32)
    data = {"chunks": spans, "answers": [], "queries": [], "notes": {}}
    documents = DocumentSet((Document("", source),))
    return Index(data, {"embeddings": vectors, "query_embeddings": vectors[:0]}), documents, vectors


def scores(method: Gor, index: Index, documents: DocumentSet) -> np.ndarray[Any, np.dtype[np.float64]]:
    models = LoadedModels({"reader": resolve("tiny"), "embedder": resolve("minilm")})
    records = Records.from_index(index, documents)
    return asyncio.run(method.score(records, index, Question("Why?", documents, 8), models))


def test_the_question_is_compared_with_what_was_learned_by_cosine() -> None:
    index, documents, vectors = graph(5)
    learned = 3 * vectors[::-1] + 1
    finished = Index({**index.data, "learned_from": {}}, {**index.arrays, "learned": learned})
    models = LoadedModels({"embedder": resolve("minilm")})
    query = asyncio.run(models.embedder().embed(["Why?"]))[0]
    by_cosine = scores(Gor(GorConfig(), GEOMETRY), finished, documents)
    np.testing.assert_allclose(by_cosine, cosines(learned, query))
    plain = scores(Gor(GorConfig(train="off"), GEOMETRY), index, documents)
    np.testing.assert_allclose(plain, cosines(vectors, query))


def test_where_nothing_could_be_learned_the_answers_say_so() -> None:
    index, _, _ = graph(3)
    method = Gor(GorConfig(), GEOMETRY)
    finished = method.finish(index, Index({"graphs": 0, "history": []}))
    assert method.remarks(finished) == ("untrained",)
    assert Gor(GorConfig(train="off"), GEOMETRY).remarks(index) == ()
