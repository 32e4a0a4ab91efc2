"""The same texts, tokens and FLOPs through a server as in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.results.records import Record, read_records
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from tests.servers import dialect_app, serving

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def reader() -> Iterator[str]:
    """The shipped reader behind vLLM's routes."""
    with serving(dialect_app("vllm")) as url:
        yield url


def answered(results: Path, request: CellRequest) -> list[Record]:
    result = Session(results).run(plan_cell(request))
    return list(read_records(result.folder / "records.jsonl"))


def same(one: Record, other: Record) -> None:
    """Texts, tokens and FLOPs; not which model is charged, nor what was cached."""
    assert one.error is None and other.error is None
    assert other.prediction == one.prediction
    assert other.drawn == one.drawn
    assert [item.text for item in other.context] == [item.text for item in one.context]
    for name in ("prompt", "completion", "forwarded"):
        assert getattr(other.tokens, name) == getattr(one.tokens, name), name
    assert (other.flops.query, other.flops.index) == (one.flops.query, one.flops.index)


METHODS: dict[str, dict[str, Any]] = {
    "full_context": {},
    "memwalker": {},
    "gor": {"train": "off", "queries": 2},
}
"""A long prompt, turns of a walk, drawn queries and an index; PECAN's search is below."""


@pytest.mark.parametrize("method", METHODS)
def test_a_served_reader_gives_the_same_texts_tokens_and_flops(
    method: str, reader: str, tmp_path: Path
) -> None:
    dataset = "chronicles" if method == "gor" else "musique"
    here, there = (
        answered(tmp_path / name, CellRequest(method, dataset, model=model, options=METHODS[method], limit=1))
        for name, model in (("here", "tiny"), ("there", f"server:{reader}#tiny"))
    )
    assert len(here) == 1
    for one, other in zip(here, there, strict=True):
        same(one, other)
        assert "server:tiny" in other.flops.query_by_model


SEARCH = {"attention": "off", "t_p": 2}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """A search in this process."""
    request = CellRequest("pecan", "hotpotqa", options=SEARCH, limit=1)
    return answered(tmp_path_factory.mktemp("here"), request)


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_every_dialect_gives_the_same_search_and_answer(
    kind: str, searched: list[Record], tmp_path: Path
) -> None:
    """PECAN's search asks Yes or No, answers in a second turn, and goes on behind a rewind."""
    with serving(dialect_app(kind)) as url:
        request = CellRequest("pecan", "hotpotqa", model=f"server:{url}#tiny", options=SEARCH, limit=1)
        there = answered(tmp_path / "there", request)
    for one, other in zip(searched, there, strict=True):
        same(one, other)
        here, served = ([step["p_yes"] for step in record.trace["steps"]] for record in (one, other))
        assert here and served == pytest.approx(here, abs=1e-4)
