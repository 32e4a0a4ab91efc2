"""A cell is planned from a request without loading a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import ConfigError
from bench.results.index_store import IndexStore
from bench.run.cell import CellRequest, _without_urls, plan_cell
from bench.run.cell_folder import describe
from bench.run.question_runner import QuestionRunner
from bench.schema import JsonValue
from tests.stand_ins import WordModels


def config(method: str, dataset: str, model: str, **options: JsonValue) -> dict[str, JsonValue]:
    request = CellRequest(method, dataset, model, options=options, dtype="bfloat16")
    return dict(plan_cell(request).identity.config)


def test_what_suits_a_reader_holds_for_every_method_that_has_the_option() -> None:
    coder = "qwen2.5-coder-1.5b"
    assert config("bm25", "hotpotqa", coder)["prompt"] == "longbench"
    pecan = config("pecan", "hotpotqa", coder)
    assert (pecan["prompt"], pecan["second_turn"]) == ("longbench", "restated")
    assert "prompt" not in config("memwalker", "hotpotqa", coder)
    assert config("bm25", "hotpotqa", "tiny")["prompt"] == "pecan"
    assert config("bm25", "chronicles", coder)["prompt"] == "pecan"  # LongBench has no template for it
    assert config("bm25", "hotpotqa", coder, prompt="pecan")["prompt"] == "pecan"
    both = f"drop one. prompt=longbench second_turn=restated comes with {coder}"
    with pytest.raises(ConfigError, match=both):
        config("pecan", "hotpotqa", coder, answer_from="chunks")


def test_what_would_fail_at_the_first_question_is_refused_before_an_index() -> None:
    with pytest.raises(ConfigError, match="'chronicles' has no longbench_prompt"):
        config("raptor", "chronicles", "tiny", prompt="longbench")
    with pytest.raises(ConfigError, match="ranking_encoder is tiny, a causal model"):
        config("gor", "hotpotqa", "tiny", ranking_encoder="tiny")


def test_an_option_that_has_what_suits_the_reader_is_at_its_default() -> None:
    for options in ({"t_p": 2}, {"embedder": "minilm"}):
        cell = plan_cell(CellRequest("pecan", "hotpotqa", "tiny", options=options))
        assert describe(cell).non_defaults == tuple(options)


def test_graphs_of_a_shipped_reader_stand_on_an_encoder_of_its_scale_and_retrievers_on_their_own() -> None:
    assert config("raptor", "hotpotqa", "tiny")["embedder"] == "tiny-sentence"
    assert config("pecan", "hotpotqa", "qwen2.5-coder-1.5b")["embedder"] == "minilm"
    assert config("raptor", "hotpotqa", "tiny", embedder="minilm")["embedder"] == "minilm"
    assert config("sbert", "hotpotqa", "tiny")["encoder"] == "minilm"


def test_data_that_change_between_two_runs_are_read_again(tmp_path: Path) -> None:
    """In one process, such as a notebook, the old questions were asked."""
    data = tmp_path / "own.jsonl"

    def question(text: str) -> str:
        line = {"id": "1", "dataset": "own", "task": "qa", "question": text, "answers": ["a"]}
        data.write_text(json.dumps({**line, "documents": [{"title": "", "text": "The mill."}]}) + "\n")
        return plan_cell(CellRequest("bm25", "own", "tiny", data=str(data))).data.examples[0].question

    assert question("Where?") == "Where?"
    assert question("When was it?") == "When was it?"


def test_the_address_of_a_server_is_no_part_of_a_cell_however_deep_it_stands() -> None:
    options = {"ranker_options": {"encoder": "server:http://127.0.0.1:8001/v1#minilm", "list": ["a", 1]}}
    assert _without_urls(options) == {"ranker_options": {"encoder": "server:minilm", "list": ["a", 1]}}


def test_cells_that_share_a_run_may_only_differ_in_what_their_method_replays(tmp_path: Path) -> None:
    """One of them would be recorded with the answers of the other."""
    cells = [plan_cell(CellRequest("ircot", "hotpotqa", "tiny", options={"k": k})) for k in (5, 6)]
    with pytest.raises(ValueError, match="may only differ in what their method replays: rounds"):
        QuestionRunner(cells, IndexStore(tmp_path), WordModels())  # type: ignore[arg-type]
