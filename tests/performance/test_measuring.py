"""Timing by turns and processes of their own; nothing is asserted about speed or memory."""

from __future__ import annotations

import pytest

from performance.measuring import Candidate, ChildFailedError, by_turns, in_own_process


def test_candidates_run_by_turns_and_keep_what_they_returned_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("performance.measuring.gc.collect", lambda: 0)  # of all that other tests have loaded
    order: list[str] = []

    def run(name: str) -> str:
        order.append(name)
        return f"{name}{len(order)}"

    timed = by_turns({"a": Candidate(lambda: run("a"), units=4), "b": Candidate(lambda: run("b"))}, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert (timed["a"].result, timed["b"].result) == ("a7", "b8")
    assert len(timed["a"].runs) == len(timed["b"].runs) == 3
    assert timed["a"].wall_s > 0


def test_a_failing_process_shows_its_error() -> None:
    assert in_own_process("operator:add", 2, 3) == 5
    with pytest.raises(ChildFailedError, match="ZeroDivisionError"):
        in_own_process("operator:truediv", 1, 0)
