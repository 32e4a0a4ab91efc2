"""What is measured, as values."""

from __future__ import annotations

from performance.measuring import Run, Timed
from performance.report import rate, ratio


def test_a_ratio_is_taken_round_by_round() -> None:
    slow = Timed((Run(4.0, 3.0), Run(9.0, 3.0), Run(2.0, 3.0)), None)
    fast = Timed((Run(2.0, 1.0), Run(3.0, 1.0), Run(2.0, 1.0)), None)
    measurement = ratio("slow over fast", slow, fast, ">= 2")
    assert (measurement.value, measurement.low, measurement.high, measurement.met) == (2.0, 1.0, 3.0, True)
    assert measurement.details["cpu_ratio"] == [3.0, 3.0, 3.0]
    assert rate("fast", fast, "items/s").value == 0.5
