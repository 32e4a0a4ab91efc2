from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from bench.errors import ConfigError, UnknownNameError
from bench.results.models import CellDescription
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.cell_folder import describe
from bench.run.equal_cost import closest_k, cost_match, match_costs, next_k
from bench.run.session import Session
from tests import cells


def search(
    target: float, cost: Callable[[int], float], known: Mapping[int, float] | None = None
) -> tuple[int, list[int]]:
    """The k that is nearest to the target, and those that were tried for it."""
    costs, tried = dict(known or {}), list[int]()
    while (k := closest_k(target, costs)) is None:
        tried.append(next_k(target, costs))
        costs[tried[-1]] = cost(tried[-1])
    return k, tried


@pytest.mark.parametrize(("target", "k"), [(150, 1), (151, 2), (690, 7), (751, 8), (5_030, 50), (1, 1)])
def test_the_nearest_k_is_found_in_few_steps_where_cost_is_linear(target: float, k: int) -> None:
    found, tried = search(target, lambda k: 100.0 * k)
    assert found == k
    assert len(tried) == len(set(tried)) <= 5


def test_neighbours_whose_costs_are_known_are_not_asked_for() -> None:
    known = {5: 500.0, 6: 600.0, 7: 700.0, 30: 3000.0}
    assert search(640, lambda k: 100.0 * k, known) == (6, [])
    assert search(640, lambda k: 100.0 * k, {5: 500.0, 30: 3000.0}) == (6, [6, 7])
    assert closest_k(1e9, {9: 140.0, 10: 140.0, 5: 100.0}) == 9  # the smallest that reads everything


def test_the_nearest_of_all_that_were_tried_is_taken_where_cost_falls_first() -> None:
    """Self-Route reads everything after too few passages: k = 1 at 1.8 times the cost was taken."""
    costs = {1: 1.82, 2: 1.6, 3: 1.3, 4: 1.2, 5: 1.25}
    assert search(1.0, lambda k: costs.get(k, 1.3))[0] == 4


@settings(deadline=None)
@given(
    steps=st.lists(st.floats(0, 1e6), min_size=1, max_size=60),
    frame=st.floats(0, 1e6),
    target=st.floats(0, 1e8),
    known=st.lists(st.integers(1, 70), max_size=8),
)
@example(steps=[2.2250738585e-313], frame=0.0, target=1.0, known=[])  # a line so flat that it has no end
def test_no_other_k_is_nearer(steps: list[float], frame: float, target: float, known: list[int]) -> None:
    costs = [frame]
    for step in steps:
        costs.append(costs[-1] + step)

    def cost(k: int) -> float:
        return costs[min(k, len(costs)) - 1]

    k, tried = search(target, cost, {k: cost(k) for k in known})
    assert not set(tried) & set(known) and len(set(tried)) == len(tried) < 30
    if all(a < b for a, b in zip(costs, costs[1:], strict=False)):
        # on a plateau the search may stop before the next rise
        assert abs(cost(k) - target) == min(abs(c - target) for c in costs)


def match_of(k: Any = "auto:full_context", limit: int | None = 2, **more: Any) -> Any:
    options = {"k": k, **more.pop("options", {})}
    return cost_match(CellRequest("bm25", "hotpotqa", options=options, limit=limit, **more))


def test_the_reference_is_the_method_with_its_defaults_on_the_same_data_and_model() -> None:
    match = match_of(limit=3, seed=4, options={"b": 0.5})
    assert match.reference.request == CellRequest("full_context", "hotpotqa", limit=3, seed=4)
    assert match_of(3) is None
    options = {"k": 2, "order": "document"}
    named = match_of("auto:tfidf:k=2,order=document", limit=None)
    assert named.reference.request == CellRequest("tfidf", "hotpotqa", options=options)


@pytest.mark.parametrize(
    ("method", "k", "message"),
    [
        ("bm25", "auto", "k=auto: expected auto:METHOD"),
        ("bm25", "auto:tfidf:garlic", "expected key=value"),
        ("bm25", "auto:no_such_method", "Unknown method 'no_such_method'"),
        ("full_context", "auto:bm25", "'full_context' has no option 'k'"),
    ],
)
def test_a_match_that_cannot_be_is_refused_before_anything_runs(method: str, k: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        cost_match(CellRequest(method, "hotpotqa", options={"k": k}))


class Costing(Session):
    """A session that runs nothing: its cells cost what they are said to cost."""

    def __init__(self, results: Path, cost: Callable[[Cell], float | None], compute: bool = True) -> None:
        super().__init__(results, compute=compute)
        self.cost, self.ran = cost, list[list[Any]]()

    def run_all(self, groups: Any, **options: Any) -> Any:
        for group in groups:
            self.ran.append([cell.identity.config.get("k", cell.request.method) for cell in group])
            for cell in group:
                folder = cell.folder(self.results)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "cell.json").write_text(describe(cell).model_dump_json())
        return {}

    def finished(self, cell: Cell) -> Any:
        cost = self.cost(cell) if (cell.folder(self.results) / "cell.json").exists() else None
        about = CellDescription.model_validate(describe(cell).model_dump())
        its = {"query_flops": {"mean": cost}, "n": 2, "n_failed": 0 if cost else 2}
        return None if cost is None else cells.finished(cells.summary(**its), about)


def test_nothing_costs_what_a_reference_does_of_which_every_question_failed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"every question of full_context on .* failed: it has no cost"):
        match_costs([match_of()], Costing(tmp_path, lambda cell: 0.0))
    assert match_costs([match_of()], Costing(tmp_path, lambda cell: 0.0), lambda *_: None) == [None]


def test_reference_and_a_few_k_are_run_neighbours_together_and_found_again(tmp_path: Path) -> None:
    def cost(cell: Cell) -> float:
        return 20.0 + 10.0 * int(cell.identity.config.get("k", 0)) if "k" in cell.identity.config else 91.0

    match, session = match_of(options={"b": 0.5}), Costing(tmp_path, cost)
    (cell,) = match_costs([match], session)
    assert (cell.identity.config["k"], cell.identity.config["b"]) == (7, 0.5)
    assert session.ran == [["full_context"], [3, 4, 5, 6], [7, 8]], "neighbours share a run"
    rendering = Costing(tmp_path, cost, compute=False)
    (found,) = match_costs([match], rendering)
    assert found.identity == cell.identity and not rendering.ran
    assert match_costs([match], Costing(tmp_path / "empty", cost, compute=False)) == [None]


def test_rows_in_other_orders_of_the_passages_get_one_k(tmp_path: Path) -> None:
    """Answers in another order are longer or shorter: Top-X of one block had k = 5, 8 and 5."""

    def cost(cell: Cell) -> float:
        longer = {"document": 31.0}.get(str(cell.identity.config.get("order")), 0.0)
        return longer + 10.0 * int(cell.identity.config.get("k", 8))

    session = Costing(tmp_path, cost)
    orders = [match_of(options={"order": order}) for order in ("rank", "document", "reverse")]
    found = [cell.identity.config for cell in match_costs(orders, session)]
    assert [(one["order"], one["k"]) for one in found] == [("rank", 8), ("document", 8), ("reverse", 8)]


def test_the_search_begins_where_cells_with_other_options_say_that_the_cost_is(tmp_path: Path) -> None:
    """RAPTOR-CT Top-X stood at a quarter of PECAN's cost in a first pass, beside a measured Top-5."""
    session = Costing(tmp_path, lambda cell: 10.0 * int(cell.identity.config.get("k", 30)))
    for options, limit in (({"k": 10, "b": 0.9}, 2), ({"k": 2, "b": 0.9}, 3)):
        other = plan_cell(CellRequest("bm25", "hotpotqa", options=options, limit=limit))
        session.run_all([[other]])
        record = cells.record(1, flops=cells.flops(100 if limit == 2 else 9000))
        (other.folder(tmp_path) / "records.jsonl").write_text(record.to_line())
    session.ran.clear()
    (cell,) = match_costs([match_of(options={"b": 0.5})], session)
    assert cell.identity.config["k"] == 30
    assert session.ran == [["full_context"], [28, 29, 30, 31]]


def test_in_a_first_pass_what_one_round_measured_is_near_enough(tmp_path: Path) -> None:
    class InPart(Costing):
        def finished(self, cell: Cell) -> Any:
            found = super().finished(cell)
            return found and replace(found, asked=("q0",) if self.asking.first else ())

    session = InPart(tmp_path, lambda cell: float(int(cell.identity.config.get("k", 40))) ** 0.5)
    session.begin_pass(1)
    (cell,) = match_costs([match_of()], session)
    assert cell.identity.config["k"] == 6, "of the first four the dearest"
    assert session.ran == [["full_context"], [3, 4, 5, 6]]
    session.begin_pass(None)
    (cell,) = match_costs([match_of()], session)
    assert cell.identity.config["k"] == 40


@pytest.mark.parametrize(("steady", "tried"), [(True, [16, 17, 18]), (False, [7, 8, 9, 10])])
def test_the_rest_begins_where_a_first_pass_says(steady: bool, tried: list[int], tmp_path: Path) -> None:
    """By what a k cost more than the nearest finished one, on the questions that both were asked."""
    match = match_of()
    session = Costing(tmp_path, lambda cell: {5: 150.0, "full_context": 270.0}.get(ask(cell)))

    def ask(cell: Cell) -> Any:
        return cell.identity.config.get("k", cell.request.method)

    for k, costs in ((5, {0: 10, 1: 290}), (9, {0: 50} if steady else {})):
        cell = plan_cell(replace(match.request, options={**match.request.options, "k": k}))
        session.run_all([[cell]])
        records = [cells.record(n, flops=cells.flops(cost)).to_line() for n, cost in costs.items()]
        (cell.folder(tmp_path) / "records.jsonl").write_text("".join(records))
    session.run_all([[match.reference]])
    assert [ask(cell) for cell in match.to_measure(session)] == tried
