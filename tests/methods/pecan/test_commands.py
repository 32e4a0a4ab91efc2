"""``bench run`` and ``show`` with PECAN on a random model: real plumbing only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.run import command as run
from bench.cli.show import command as show
from tests.bench.faults.runs import records_of
from tests.bench.models.builders import save_causal


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished cell with two questions."""
    folder = tmp_path_factory.mktemp("results")
    model = save_causal(tmp_path_factory.mktemp("models") / "small")
    options = "--set summary_tokens=24 --set chunk_tokens=60 --set t_c=0.6 --no-track"
    asked = f"--method pecan --dataset hotpotqa --limit 2 --model {model} --results {folder} {options}"
    invoke(run, *asked.split())
    return folder


def invoke(command: Any, *args: str) -> str:
    result = CliRunner().invoke(command, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_record_holds_the_path_and_its_price(results: Path) -> None:
    (folder,) = results.glob("cells/pecan--hotpotqa--*")
    for record in records_of(folder):
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
