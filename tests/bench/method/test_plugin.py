"""The worked example of a method in a package of its own: installed, listed, run, in a table."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import command

EXAMPLE = Path(__file__).parents[3] / "docs" / "add_a_method"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed into it."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", str(folder), str(EXAMPLE)], check=True, timeout=120)
    return folder


@pytest.fixture
def _on_the_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)


def bench(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("_on_the_path")
def test_the_example_is_installed_listed_run_and_in_table_1(tmp_path: Path) -> None:
    listed = [line for line in bench("list", "methods").splitlines() if line.split()[:1] == ["lead"]]
    assert len(listed) == 1 and listed[0].endswith("[longdoc-bench-lead 0.1.0]")
    place = ["--results", str(tmp_path), "--limit", "2"]
    for dataset in ("narrativeqa", "qasper"):
        bench("run", "--method", "lead", "--dataset", dataset, "--set", "first=1", "--no-track", *place)
    (records,) = tmp_path.glob("cells/lead--qasper--*/records.jsonl")
    first = json.loads(records.read_text().splitlines()[0])
    assert first["error"] is None and len(first["context"]) == 2  # the first chunk and the last
    table = bench("table", "table1", "--row", "lead:first=1", "--render-only", *place)
    rows = [line for line in table.splitlines() if line.startswith("lead first=1")]
    assert len(rows) == 4 and [re.split(" {2,}", row)[1] == "–" for row in rows] == [False, False, True, True]


@pytest.mark.usefixtures("_on_the_path")
def test_the_example_passes_the_conformance_suite() -> None:
    suite = runpy.run_path(str(EXAMPLE / "test_lead.py"))["TestLead"]()
    promises = [name for name in dir(suite) if name.startswith("test_")]
    assert len(promises) > 10
    for name in promises:
        getattr(suite, name)()
