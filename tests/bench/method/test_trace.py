"""The log of a search: what is written is read again, and told."""

from __future__ import annotations

from typing import Any

import pytest

from bench.method import SearchStep, SearchTrace, VisitedNode
from bench.method.trace import described

NODES = [VisitedNode(id="1.1", level=1, z=0.5), VisitedNode(id="1.2", level=1, score=0.25)]


def test_a_search_is_read_as_it_was_written() -> None:
    steps = [SearchStep(nodes=NODES, p_yes=0.75), SearchStep(nodes=[VisitedNode(id="0.1")], mass=None)]
    trace = SearchTrace(steps=steps, stop="patience")
    assert SearchTrace.read(trace.to_json()) == trace
    assert [node.id for node in trace.read_nodes] == ["1.1", "1.2", "0.1"]
    assert trace.to_json()["steps"][0]["nodes"][1] == {"id": "1.2", "level": 1, "score": 0.25}


def test_a_walk_reads_no_nodes_in_order() -> None:
    walk = SearchTrace(steps=[SearchStep(nodes=[VisitedNode(id="0.1")], reply="Action: -2")])
    assert SearchTrace.read(walk.to_json()) == walk and walk.read_nodes == ()


def test_a_search_is_told_as_a_table_with_a_row_for_each_node_and_any_other_log_field_by_field() -> None:
    step = SearchStep(nodes=NODES, p_yes=0.75)
    lines = described(SearchTrace(steps=[step], stop="patience").to_json()).splitlines()
    assert lines[0] == "search      stop: patience"
    rows = [line.split() for line in lines[2:]]
    assert rows == [["0", "1.1", "1", "z", "0.5"], ["1.2", "1", "0.25", "0.75"]]
    assert described({"kept": 3, "nodes": ["a"]}) == "trace       kept: 3\ntrace       nodes: ['a']"


@pytest.mark.parametrize(
    "trace",
    [None, {}, {"nodes": ["a"]}, {"steps": []}, {"steps": "x"}, {"steps": [1]}, {"steps": [{"node": 3}]},
     {"steps": [{"nodes": [{"id": None}]}]}, {"steps": [{"nodes": {}}]}],
)  # fmt: skip
def test_every_other_log_is_no_search(trace: Any) -> None:
    assert SearchTrace.read(trace) is None
