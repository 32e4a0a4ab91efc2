from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import BenchError, ConfigError, UnknownNameError
from bench.run.cell import Cell, CellRequest
from bench.run.equal_cost import (
    closest_k,
    command_of,
    match_k,
    matched_cell,
    reference_cell,
    reference_method,
)
from bench.sweeps.grid import plan_sweep
from tests import cells


def counting(cost: Callable[[int], float]) -> tuple[Callable[[int], float], list[int]]:
    tried: list[int] = []

    def counted(k: int) -> float:
        tried.append(k)
        return cost(k)

    return counted, tried


@pytest.mark.parametrize(
    ("target", "k"),
    [(100, 1), (149, 1), (150, 1), (151, 2), (690, 7), (749, 7), (751, 8), (5_030, 50), (1, 1)],
)
def test_the_nearest_k_is_found_in_few_steps_where_cost_is_linear(target: float, k: int) -> None:
    cost, tried = counting(lambda k: 100.0 * k)
    assert closest_k(target, cost) == k
    assert len(tried) == len(set(tried)) <= 5


def test_reading_everything_is_the_most_there_is() -> None:
    cost, tried = counting(lambda k: 50.0 + 10 * min(k, 9))
    assert closest_k(1e9, cost) == 20  # 20 costs what 80 costs: all nine chunks
    assert len(tried) < 6


def test_neighbours_whose_costs_are_known_are_not_asked_for() -> None:
    cost, tried = counting(lambda k: 100.0 * k)
    assert closest_k(640, cost, {5: 500.0, 6: 600.0, 7: 700.0, 30: 3000.0}) == 6 and not tried
    assert closest_k(640, cost, {5: 500.0, 30: 3000.0}) == 6 and tried == [6, 7]
    assert closest_k(1e9, cost, {9: 140.0, 10: 140.0, 5: 100.0}) == 9  # the smallest that reads everything


def test_a_cost_that_cannot_be_had_ends_the_search() -> None:
    assert closest_k(900, lambda k: 100.0 * k if k < 9 else None) is None


def test_the_nearest_of_all_that_were_tried_is_taken_where_cost_falls_first() -> None:
    """Self-Route reads everything after too few passages: k = 1 at 1.8 times the cost was taken."""
    costs = {1: 1.82, 2: 1.6, 3: 1.3, 4: 1.2, 5: 1.25}
    assert closest_k(1.0, lambda k: costs.get(k, 1.3)) == 4


@settings(deadline=None)
@given(
    steps=st.lists(st.floats(0, 1e6), min_size=1, max_size=60),
    frame=st.floats(0, 1e6),
    target=st.floats(0, 1e8),
    known=st.lists(st.integers(1, 70), max_size=8),
)
def test_no_other_k_is_nearer_whatever_the_curve(
    steps: list[float], frame: float, target: float, known: list[int]
) -> None:
    costs = [frame]
    for step in steps:
        costs.append(costs[-1] + step)
    cost, tried = counting(lambda k: costs[min(k, len(costs)) - 1])
    k = closest_k(target, cost, {k: costs[min(k, len(costs)) - 1] for k in known})
    assert k is not None and not set(tried) & set(known)
    strictly = all(a < b for a, b in zip(costs, costs[1:], strict=False))
    if strictly:  # on a plateau the search may stop before the next rise
        assert abs(cost(k) - target) == min(abs(c - target) for c in costs)
    assert len(set(tried)) < 30


@pytest.mark.parametrize("k", [7, "7", None, "document"])
def test_a_plain_k_refers_to_no_method(k: object) -> None:
    assert reference_method(k) is None


def test_auto_names_a_method() -> None:
    assert reference_method("auto:pecan") == "pecan"
    with pytest.raises(ConfigError, match="k=auto: expected auto:METHOD, with the name of a method"):
        reference_method("auto")


def test_the_reference_is_the_method_with_its_defaults_on_the_same_data_and_model() -> None:
    request = CellRequest("bm25", "hotpotqa", options={"k": "auto:full_context", "b": 0.5}, limit=3, seed=4)
    cell = reference_cell(request)
    assert cell is not None
    assert cell.request == CellRequest("full_context", "hotpotqa", limit=3, seed=4)
    assert reference_cell(CellRequest("bm25", "hotpotqa", options={"k": 3})) is None
    named = reference_cell(CellRequest("bm25", "hotpotqa", options={"k": "auto:tfidf:k=2,order=document"}))
    assert named is not None
    assert named.request == CellRequest("tfidf", "hotpotqa", options={"k": 2, "order": "document"})
    with pytest.raises(ConfigError, match="expected key=value"):
        reference_cell(CellRequest("bm25", "hotpotqa", options={"k": "auto:tfidf:garlic"}))
    with pytest.raises(UnknownNameError, match="Unknown method 'no_such_method'"):
        reference_cell(CellRequest("bm25", "hotpotqa", options={"k": "auto:no_such_method"}))


def test_the_matched_cell_is_the_cell_of_that_k(tmp_path: Path) -> None:
    request = CellRequest("bm25", "hotpotqa", options={"k": "auto:full_context", "b": 0.5}, limit=2)

    def cost_of(cell: Cell) -> float:
        return 10.0 * int(cell.identity.config["k"])

    cell = match_k(request, 71.0, tmp_path, cost_of)
    assert cell is not None
    assert (cell.identity.config["k"], cell.identity.config["b"]) == (7, 0.5)
    assert match_k(request, 71.0, tmp_path, lambda cell: None) is None
    with pytest.raises(ConfigError, match="'full_context' has no option 'k'"):
        match_k(CellRequest("full_context", "hotpotqa", options={"k": "auto:bm25"}), 71.0, tmp_path, cost_of)


def test_a_matched_cell_is_found_among_finished_ones_and_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request = CellRequest("bm25", "hotpotqa", options={"k": "auto:full_context"}, limit=2)
    finished = {"full_context": 430.0, 4: 400.0, 5: 500.0}

    def summary(cell: Cell, folder: Path) -> object:
        cost = finished.get(cell.identity.config.get("k", cell.request.method))
        return None if cost is None else cells.summary(query_flops={"mean": cost})

    monkeypatch.setattr("bench.run.equal_cost.finished_summary", summary)
    cell = matched_cell(request, tmp_path)
    assert cell is not None and cell.identity.config["k"] == 4
    del finished[4]
    assert matched_cell(request, tmp_path) is None


def test_the_command_to_run_first_is_complete() -> None:
    request = CellRequest("pecan", "qasper", "tiny", "my data.json", limit=5, dtype="float32")
    assert command_of(request, Path("results")) == (
        "bench run --method pecan --dataset qasper --model tiny --data 'my data.json' --limit 5 "
        "--dtype float32"
    )
    assert command_of(CellRequest("pecan", "qasper", seed=3), Path("r")).endswith("--seed 3 --results r")
    assert command_of(
        CellRequest("pecan", "qasper", options={"variant": "garlic"}), Path("results")
    ).endswith(" --set variant=garlic")


def test_a_sweep_takes_numbers() -> None:
    for base, grid in (
        (CellRequest("bm25", "hotpotqa", options={"k": "auto:pecan"}), {"b": [0.5]}),
        (CellRequest("bm25", "hotpotqa"), {"k": ["auto:pecan"]}),
    ):
        with pytest.raises(BenchError, match="a sweep takes numbers, such as --grid k=1:14"):
            plan_sweep(base, grid)
