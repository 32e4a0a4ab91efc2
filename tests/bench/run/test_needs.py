"""What a method needs of a model is asked before any index is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.errors import NoAttentionError
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from performance.families import LINEAR, SMALL
from tests.bench.models.builders import VOCAB, hf_tokenizer


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3.5: three of its four layers have a state in place of attention."""
    folder = tmp_path_factory.mktemp("hybrid")
    torch.manual_seed(0)
    sizes = {**SMALL, **LINEAR, "vocab_size": VOCAB, "max_position_embeddings": 4096}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_5_text", **sizes)).save_pretrained(folder)
    hf_tokenizer().save_pretrained(folder)
    return folder


def planned(model: str, options: dict[str, Any]) -> Any:
    return plan_cell(CellRequest("pecan", "hotpotqa", model, options=options, limit=1))


@pytest.mark.parametrize("role", ["searcher", "builder"])
def test_a_model_without_attention_weights_is_refused_before_any_index_with_two_ways_out(
    role: str, hybrid: Path, tmp_path: Path
) -> None:
    cell = planned(str(hybrid), {}) if role == "searcher" else planned("tiny", {"graph_model": str(hybrid)})
    says = rf"pecan, {role}: .*Qwen3_5ForCausalLM.* gives no attention.*attention=off.*search_model=NAME"
    with pytest.raises(NoAttentionError, match=says):
        Session(tmp_path).run(cell)
    assert not list((tmp_path / "indexes").rglob("*.json*"))
    assert not any(path.read_text() for path in tmp_path.rglob("records.jsonl"))


def test_the_first_way_out_is_one(hybrid: Path, tmp_path: Path) -> None:
    options = {"attention": "off", "window": 2048, "chunk_tokens": 300, "summary_tokens": 16}
    finished = Session(tmp_path).run(planned(str(hybrid), options))
    assert finished.summary.n == 1 and finished.records[0].error is None
