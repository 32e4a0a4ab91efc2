"""``bench run``, ``show`` and ``sweep`` with PECAN on a random model: real plumbing only."""

from __future__ import annotations

import itertools
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


RUN = "--method pecan --dataset hotpotqa --limit 2 --no-track --set summary_tokens=24 --set chunk_tokens=60"


@pytest.fixture(scope="module")
def results(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished cell with two questions."""
    folder = tmp_path_factory.mktemp("results")
    invoke(run, *RUN.split(), "--model", model, "--set", "t_c=0.6", "--results", str(folder))
    return folder


def invoke(command: Any, *args: str) -> str:
    result = CliRunner().invoke(command, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_record_holds_the_path_and_its_price(results: Path) -> None:
    (path,) = results.glob("cells/pecan--hotpotqa--*/records.jsonl")
    for record in records(path):
        assert record["error"] is None
        steps = record["trace"]["steps"]
        visited = [node for step in steps for node in step["nodes"]]
        assert len(visited) == len(record["context"])
        assert record["trace"]["stop"] in ("patience", "exhausted", "window")
        assert all(0 <= step["p_yes"] <= 1 for step in steps)
        by_phase = record["flops"]["query_by_model"]["small"]
        assert by_phase["probe"]["calls"] == len(steps)
        assert record["tokens"]["forwarded"] > record["tokens"]["prompt"]


def test_show_prints_the_path(results: Path) -> None:
    (folder,) = results.glob("cells/pecan--hotpotqa--*")
    output = invoke(show, str(folder), "1")
    assert "stop: " in output and "p_yes" in output and "similarity" in output


def test_a_sweep_equals_its_cells_run_alone(model: str, tmp_path: Path) -> None:
    """Same nodes, answers, tokens and FLOPs; what was measured, but for the rounding of sums."""
    fixed = [*RUN.split(), "--model", model, "--in-flight", "1"]
    invoke(sweep, *fixed, "t_p=1:3", "t_c=0.4,0.6", "--results", str(tmp_path / "together"))
    alone = ["--results", str(tmp_path / "alone")]
    for t_p, t_c in itertools.product((1, 2, 3), (0.4, 0.6)):
        invoke(run, *fixed, "--set", f"t_p={t_p}", "--set", f"t_c={t_c}", *alone)
    found: list[dict[str, list[Any]]] = []
    for folder in ("together", "alone"):
        files = (tmp_path / folder).glob("cells/*/records.jsonl")
        found.append({file.parent.name: records(file) for file in files})
        for record in itertools.chain(*found[-1].values()):
            del record["wall_s"], record["tokens"]["computed"]  # another run may have forwarded it already
    assert len(found[0]) == 6
    assert_same(*found)


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
