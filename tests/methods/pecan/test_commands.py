"""``bench run``, ``show`` and ``sweep`` with PECAN on a random model: real plumbing only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.run import command as run
from bench.cli.show import command as show
from bench.cli.sweep import command as sweep
from bench.models.model_set import unload_all
from tests.bench.models.builders import save_causal


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield str(save_causal(tmp_path_factory.mktemp("models") / "small"))
    unload_all()


@pytest.fixture(scope="module")
def results(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished cell with two questions."""
    folder = tmp_path_factory.mktemp("results")
    invoke(run, folder, "--method", "pecan", *options(model), "--limit", "2", "--no-track")
    return folder


def options(model: str) -> list[str]:
    # fmt: off
    return [
        "--dataset", "hotpotqa", "--model", model, "--set", "summary_tokens=24", "--set", "chunk_tokens=60",
        "--set", "t_c=0.6",
    ]
    # fmt: on


def invoke(command: Any, results: Path, *args: str) -> str:
    result = CliRunner().invoke(
        command, [*args, *(["--results", str(results)] if command is not show else [])]
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def records(results: Path) -> list[dict[str, Any]]:
    (path,) = results.glob("cells/pecan--hotpotqa--*/records.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_record_holds_the_path_and_its_price(results: Path) -> None:
    for record in records(results):
        assert record["error"] is None
        steps = record["trace"]["steps"]
        visited = [node for step in steps for node in step["nodes"]]
        assert len(visited) == len(record["context"]) and record["trace"]["stop"] in (
            "patience",
            "exhausted",
            "window",
        )
        assert all(0 <= step["p_yes"] <= 1 for step in steps)
        by_phase = record["flops"]["query_by_model"]["small"]
        assert by_phase["probe"]["calls"] == len(steps)
        assert record["tokens"]["forwarded"] > record["tokens"]["prompt"]


def test_show_prints_the_path(results: Path) -> None:
    (folder,) = results.glob("cells/pecan--hotpotqa--*")
    output = invoke(show, results, str(folder), "1")
    assert "stop: " in output and "p_yes" in output and "similarity" in output


def test_a_sweep_equals_its_cells_run_alone(model: str, tmp_path: Path) -> None:
    """Same nodes, answers, tokens and FLOPs; what was measured, but for the rounding of sums."""
    together, alone = tmp_path / "together", tmp_path / "alone"
    # fmt: off
    fixed = ["--method", "pecan", "--dataset", "hotpotqa", "--model", model, "--set", "summary_tokens=24",
             "--set", "chunk_tokens=60", "--limit", "2", "--no-track", "--in-flight", "1"]
    # fmt: on
    invoke(sweep, together, *fixed, "t_p=1:3", "t_c=0.4,0.6")
    for t_p in (1, 2, 3):
        for t_c in (0.4, 0.6):
            invoke(run, alone, *fixed, "--set", f"t_p={t_p}", "--set", f"t_c={t_c}")
    files = {path.parent.name: path for path in together.glob("cells/*/records.jsonl")}
    expected = {path.parent.name: path for path in alone.glob("cells/*/records.jsonl")}
    assert files.keys() == expected.keys() and len(files) == 6
    for name in files:
        for a, b in zip(
            *(path.read_text("utf-8").splitlines() for path in (files[name], expected[name])), strict=True
        ):
            one, other = json.loads(a), json.loads(b)
            for record in (one, other):  # of the moment: another run may have forwarded it already
                del record["wall_s"], record["tokens"]["computed"]
            assert_same(one, other)


def assert_same(a: Any, b: Any) -> None:
    """Equal, numbers that are not whole to six digits."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=2e-5)
    else:
        assert a == b
