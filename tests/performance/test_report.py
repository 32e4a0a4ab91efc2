"""What is measured, as values."""

from __future__ import annotations

from performance.measuring import Run, Timed
from performance.report import Measurement, rate, ratio


def test_a_ratio_is_taken_round_by_round() -> None:
    slow = Timed((Run(4.0, 3.0), Run(9.0, 3.0), Run(2.0, 3.0)), None)
    fast = Timed((Run(2.0, 1.0), Run(3.0, 1.0), Run(2.0, 1.0)), None)
    measurement = ratio("slow over fast", slow, fast, ">= 2")
    assert (measurement.value, measurement.low, measurement.high, measurement.met) == (2.0, 1.0, 3.0, True)
    assert measurement.details["cpu_ratio"] == [3.0, 3.0, 3.0]
    assert rate("fast", fast, "items/s").value == 0.5


def test_a_target_is_reached_or_missed() -> None:
    reached = {(2.2, ">= 2.2"): True, (2.19, ">= 2.2"): False, (1.16, "<= 1.15"): False}
    for (value, target), met in {
        **reached,
        (1.0004, "= 1"): True,
        (1.001, "= 1"): False,
        (5.0, ""): None,
    }.items():
        assert Measurement("m", value, "x", target).met is met
