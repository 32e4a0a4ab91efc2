"""What a real vLLM and a real llama-server said is read as what this process gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.results.records import Record, read_records
from bench.run.cell import plan_cell
from bench.run.session import Session
from performance.recording import CELLS, MODEL, REPLIES, cell_request
from tests.bench.models.served.test_parity import same
from tests.servers import replaying_app, serving

KINDS = sorted(path.stem for path in REPLIES.glob("*.json"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


def answered(results: Path, cell: tuple[str, str, dict[str, Any]], model: str) -> Record:
    result = Session(results).run(plan_cell(cell_request(*cell, model)))
    (record,) = read_records(result.folder / "records.jsonl")
    return record


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell[0]))
def test_the_replies_of_a_real_server_give_the_answer_of_this_process(
    kind: str, cell: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    """Every request that we make today is one that the server was asked, word for word."""
    replies = json.loads((REPLIES / f"{kind}.json").read_text())
    with serving(replaying_app(replies)) as url:
        there = answered(tmp_path / "there", cell, f"server:{url}#{MODEL}")
    same(answered(tmp_path / "here", cell, MODEL), there)


def test_both_servers_were_recorded() -> None:
    assert KINDS == ["llamacpp", "vllm"]
