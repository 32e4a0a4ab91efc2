"""The same texts, tokens and FLOPs through a server as in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.results.records import Record, read_records
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from performance.recording import CELLS, MODEL, REPLIES, cell_request
from tests.servers import replaying_app, serving, vllm_app

pytestmark = pytest.mark.usefixtures("cache")


def answered(results: Path, request: CellRequest) -> list[Record]:
    return list(read_records(Session(results).run(plan_cell(request)).folder / "records.jsonl"))


def same(one: Record, other: Record) -> None:
    """Texts, tokens and FLOPs; not which model is charged, nor what was cached."""
    assert one.error is None and other.error is None
    assert other.prediction == one.prediction
    assert other.drawn == one.drawn
    assert [item.text for item in other.context] == [item.text for item in one.context]
    for name in ("prompt", "completion", "forwarded"):
        assert getattr(other.tokens, name) == getattr(one.tokens, name), name
    assert (other.flops.query, other.flops.index) == (one.flops.query, one.flops.index)


@pytest.mark.parametrize("kind", ["llamacpp", "vllm"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell[0]))
def test_the_replies_of_a_real_server_give_the_answer_of_this_process(
    kind: str, cell: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    """Every request that we make today is one that the server was asked, word for word."""
    replies = json.loads((REPLIES / f"{kind}.json").read_text())
    with serving(replaying_app(replies)) as url:
        (there,) = answered(tmp_path / "there", cell_request(*cell, f"server:{url}#{MODEL}"))
    (here,) = answered(tmp_path / "here", cell_request(*cell, MODEL))
    same(here, there)
    asked, served = ([step.get("p_yes") for step in one.trace.get("steps", [])] for one in (here, there))
    assert served == (pytest.approx(asked, abs=1e-4) if cell[0] == "pecan" else asked)


def test_a_served_reader_draws_the_same_queries(tmp_path: Path) -> None:
    """What a real server draws is its own."""
    options: dict[str, Any] = {"train": "off", "queries": 2}
    with serving(vllm_app()) as url:
        (here,), (there,) = (
            answered(tmp_path / name, CellRequest("gor", "chronicles", model=model, options=options, limit=1))
            for name, model in (("here", "tiny"), ("there", f"server:{url}#tiny"))
        )
    same(here, there)
    assert "server:tiny" in there.flops.query_by_model
