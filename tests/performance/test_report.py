"""What is measured, as values, JSON and Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from performance import report
from performance.measuring import Run, Timed
from performance.report import Measurement, rate, ratio


def test_a_ratio_is_taken_round_by_round() -> None:
    slow = Timed((Run(4.0, 3.0), Run(9.0, 3.0), Run(2.0, 3.0)), None)
    fast = Timed((Run(2.0, 1.0), Run(3.0, 1.0), Run(2.0, 1.0)), None)
    measurement = ratio("slow over fast", slow, fast, ">= 2")
    assert (measurement.value, measurement.low, measurement.high, measurement.met) == (2.0, 1.0, 3.0, True)
    assert measurement.details["cpu_ratio"] == [3.0, 3.0, 3.0]
    assert rate("fast", fast, "items/s").value == 0.5


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        *((2.2, ">= 2.2", True), (2.19, ">= 2.2", False), (1.16, "<= 1.15", False)),
        *((1.0004, "= 1", True), (1.001, "= 1", False), (5.0, "", None)),
    ],
)
def test_a_target_is_reached_or_missed(value: float, target: str, met: bool | None) -> None:
    assert Measurement("m", value, "x", target).met is met


def test_a_result_holds_what_a_reader_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("performance.capture", "Faster reading.\n\nHow it is measured.")
    module.measure = lambda quick: [
        Measurement("speed-up", 2.5, "x", ">= 2", 2.25, 2.75, {"rounds": 3}),
        Measurement("memory", 1.5, "x", "<= 1.1"),
    ]
    monkeypatch.setitem(sys.modules, "performance.capture", module)
    report.write({**report.run("capture", quick=True), "commit": "abc"}, tmp_path)
    kept = json.loads((tmp_path / "results" / "capture.json").read_text())
    about = {"benchmark", "title", "about", "quick", "date", "commit", "seconds", "versions", "python"}
    machine = {"processor", "cores", "threads", "memory_gb", "accelerator", "load_before"}
    assert about < set(kept) and machine <= set(kept["machine"])
    assert {"torch", "transformers"} <= set(kept["versions"])
    assert kept["measurements"][0]["details"] == {"rounds": 3}
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| capture | speed-up | 2.50x (2.25–2.75) | ≥ 2, reached |" in text
    assert "| capture | memory | 1.50x | ≤ 1.1, **missed** |" in text
    assert f"1. {kept['machine']['processor']}, " in text
    origin = f"{kept['date']} | abc | {kept['seconds']:.0f}, quick | {kept['machine']['load_before']} |"
    assert f"| capture | 1 | {origin}" in text
