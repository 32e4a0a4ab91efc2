"""The benchmarks themselves, quickly: that they run and compare what they say, not how fast anything is."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench.engine.setup import build_engine
from bench.errors import UnknownNameError
from performance import capture, report
from performance.__main__ import command
from performance.drawn import SMALL, model, random_tokens


def measured(name: str, out: Path) -> dict[str, dict[str, Any]]:
    """A benchmark's quick run from the command line: its measurements by name."""
    done = CliRunner().invoke(command, [name, "--quick", "--out", str(out)])
    assert done.exit_code == 0, done.output
    result = json.loads((out / "results" / f"{name}.json").read_text())
    assert result["quick"] and result["not_run"] is None and f"## {name}: " in done.output
    assert f"| {name} | 1 | {result['date']} | " in (out / "RESULTS.md").read_text()
    return {one["name"]: one for one in result["measurements"]}


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark runs here instead of in a process of its own, which would import torch anew."""
    monkeypatch.setattr("performance.__main__.in_own_process", lambda _, *arguments: report.run(*arguments))


def test_imports_finds_no_heavy_package(tmp_path: Path) -> None:
    measurements = measured("imports", tmp_path)
    assert measurements["of these that load a heavy package"]["met"] is True
    assert measurements["bench --help"]["value"] > 0


@pytest.mark.usefixtures("_in_this_process")
def test_the_straight_implementation_finds_the_same_path_answer_and_graph(tmp_path: Path) -> None:
    measurements = measured("straight", tmp_path)
    assert measurements["same path"]["value"] == measurements["same answer"]["value"] == 100
    assert measurements["graphs with the same nodes"]["value"] == 100
    edges = measurements["largest difference of an edge's weight"]
    assert edges["details"]["edges"] > 0 and edges["value"] < 1e-5
    flops = (name for name in measurements if name.endswith("straight over ours, FLOPs"))
    (of_a_question,) = (name for name in flops if "question" in name)
    assert measurements[of_a_question]["value"] > 1.5  # three steps, everything anew at each


def test_capture_compares_the_same_numbers() -> None:
    engine = build_engine("small", model(SMALL), max_context=256)
    text = random_tokens(200, random.Random(2))
    attention = capture.read(engine, text, 16)
    assert attention.shape == (200, 16) and capture.read(engine, text, 0).size == 0
    np.testing.assert_allclose(attention, capture.read_eagerly(model(SMALL, "eager"), text, 16), atol=1e-6)
    spans = capture.covering(200, 16)
    assert spans[0][0] == 0 and spans[-1][1] == 200
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))


def test_an_unknown_name_is_refused_before_anything_runs() -> None:
    done = CliRunner().invoke(command, ["servin"])
    assert isinstance(done.exception, UnknownNameError) and "serving" in str(done.exception)


@pytest.mark.usefixtures("_in_this_process")
def test_the_real_reader_benchmark_compares_three_sides_at_three_loads(tmp_path: Path) -> None:
    measurements = measured("real_reader", tmp_path)
    loads = [name.removesuffix(": 1 in flight over plain transformers") for name in measurements]
    loads = [load for load, name in zip(loads, measurements, strict=True) if load != name]
    assert [load.split()[0] for load in loads] == ["drawn", "graph", "decoding"]
    assert measurements["prefill: share of the rate of matrix products"]["value"] > 0
