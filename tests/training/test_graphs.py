"""How true the graphs of the sample sets are: from records, each graph once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.results.records import ContextRecord
from tests import cells
from tests.bench.results.test_comparison import record
from training import graphs
from training.generator.sets import facts_told

FIRST = "hotpotqa-sample-000"
TOLD = facts_told("hotpotqa")[FIRST]
TRUE = [f"{fact.subject} {fact.rel.phrase.format(**fact.slots())}." for fact in TOLD]


def searched(id: str, bullets: list[str], documents: str = "a", **trace: Any) -> Any:
    """The record of a search that began with these bullets and read one more node."""
    shown = [ContextRecord(document=None, title="", start=None, end=None, text=text) for text in bullets]
    read = ContextRecord(document=None, title="", start=None, end=None, text=TRUE[3], score=0.1)
    usual = {"variant": "pecan", "graph": {"kind": "ip"}, "top_level": {"left_out": 0}}
    fields = {"example_id": id, "context": [*shown, read], "trace": {**usual, **trace}}
    return record(0, documents, 1.0).model_copy(update=fields)


def of(monkeypatch: pytest.MonkeyPatch, *records: Any, **described: Any) -> list[tuple[Any, ...]]:
    about = {"method": "pecan", "dataset": "hotpotqa", **described}
    cell = cells.finished(cells.summary(), cells.description(**about))

    def read(path: Path) -> Iterator[Any]:
        yield from records

    monkeypatch.setattr(graphs, "find_finished", lambda results: ([cell], 0))
    monkeypatch.setattr(graphs, "read_records", read)
    return list(graphs.figures(Path("results")))


def test_true_and_invented_bullets_of_the_top_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bullets = [TRUE[0], TRUE[1], TRUE[0].replace(TOLD[0].subject, "Nobody Known")]
    (line,) = of(monkeypatch, searched(FIRST, bullets), searched("hotpotqa-sample-001", []))
    assert line == ("hotpotqa", 1, pytest.approx(2 / len(set(TOLD))), 3.0, pytest.approx(1 / 3))


def test_without_a_cell_the_command_says_what_comes_first(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="first: make table1"):
        graphs.main([str(tmp_path)])
