"""Timing by turns, peak memory, processes of their own; nothing is asserted about speed."""

from __future__ import annotations

import pytest

from performance.measuring import (
    Candidate,
    ChildFailedError,
    by_turns,
    in_own_process,
    memory_can_be_measured,
    peak_memory,
)


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


@pytest.mark.skipif(not memory_can_be_measured(), reason="needs /proc of Linux")
def test_a_peak_is_seen_after_it_has_passed() -> None:
    with peak_memory() as peak:
        block = bytearray(b"x") * 50_000_000
        del block
    assert 45_000_000 < peak.growth < 80_000_000  # the kernel counts in batches
    with peak_memory() as small:
        pass
    assert small.growth < 5_000_000


def test_a_failing_process_shows_its_error() -> None:
    assert in_own_process("operator:add", 2, 3) == 5
    with pytest.raises(ChildFailedError, match="ZeroDivisionError"):
        in_own_process("operator:truediv", 1, 0)
