"""A cell is planned from a request without loading a model."""

from __future__ import annotations

import pytest

from bench.run.cell import CellRequest, plan_cell
from bench.schema import JsonValue


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


@pytest.mark.parametrize("method", ["pecan", "raptor", "thought_retriever"])
def test_graphs_and_trees_of_a_shipped_reader_stand_on_an_encoder_of_its_scale(method: str) -> None:
    for reader in ("tiny", "tiny-s"):
        assert config(method, "hotpotqa", reader)["embedder"] == "tiny-sentence"
    assert config(method, "hotpotqa", "qwen2.5-coder-1.5b")["embedder"] != "tiny-sentence"
    assert config(method, "hotpotqa", "tiny", embedder="minilm")["embedder"] == "minilm"


def test_retrievers_keep_their_own_encoder_beside_a_shipped_reader() -> None:
    assert config("sbert", "hotpotqa", "tiny")["encoder"] == "minilm"


def test_an_option_that_is_asked_for_stays_whatever_suits_the_reader() -> None:
    assert config("bm25", "hotpotqa", "qwen2.5-coder-1.5b", prompt="pecan")["prompt"] == "pecan"


@pytest.mark.parametrize("dataset", ["chronicles"])
def test_a_data_set_without_longbench_s_template_is_asked_in_the_usual_words(dataset: str) -> None:
    assert config("bm25", dataset, "qwen2.5-coder-1.5b")["prompt"] == "pecan"
