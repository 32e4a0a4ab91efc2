"""The log of a search: what is written is read again, and so are logs of before the contract."""

from __future__ import annotations

from typing import Any

import pytest

from bench.method import SearchStep, SearchTrace, VisitedNode


def test_a_search_is_read_as_it_was_written() -> None:
    steps = (
        SearchStep((VisitedNode("1.1", 1, None, {"z": 0.5}), VisitedNode("1.2", 1, 0.25)), p_yes=0.75),
        SearchStep((VisitedNode("0.1"),), details={"mass": None}),
    )
    trace = SearchTrace(steps, {"stop": "patience"})
    assert SearchTrace.read(trace.to_json()) == trace
    assert [node.id for node in trace.read_nodes] == ["1.1", "1.2", "0.1"]
    assert trace.to_json()["steps"][0]["nodes"][1] == {"id": "1.2", "level": 1, "score": 0.25}


def test_a_walk_reads_no_nodes_in_order() -> None:
    walk = SearchTrace((SearchStep((VisitedNode("0.1"),), reply="Action: -2"),))
    assert SearchTrace.read(walk.to_json()) == walk and walk.read_nodes == ()


def test_logs_of_before_the_contract_are_read() -> None:
    picked = {"layer": 1, "picked": [{"node": "1.0", "layer": 1, "score": 0.5}]}
    stood = {"node": "2.1", "action": 0, "reply": "Action: 0"}
    trace = SearchTrace.read({"steps": [picked, stood]})
    assert trace is not None
    assert trace.steps[0] == SearchStep((VisitedNode("1.0", 1, 0.5),), details={"layer": 1})
    assert trace.steps[1] == SearchStep((VisitedNode("2.1"),), reply="Action: 0", details={"action": 0})


@pytest.mark.parametrize(
    "trace",
    [None, {}, {"nodes": ["a"]}, {"steps": []}, {"steps": "x"}, {"steps": [1]}, {"steps": [{"node": 3}]},
     {"steps": [{"nodes": [{"id": None}]}]}, {"steps": [{"nodes": {}}]}],
)  # fmt: skip
def test_every_other_log_is_no_search(trace: Any) -> None:
    assert SearchTrace.read(trace) is None
