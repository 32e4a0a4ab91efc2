"""The worked example of a method in a package of its own: installed, listed, run, in a table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "docs" / "add_a_method"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed into it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--no-index", "--target", str(folder), str(EXAMPLE)], check=True, timeout=120)
    return folder


def bench(site: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.cli.main", *arguments],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_installed_listed_run_and_in_table_1(site: Path, tmp_path: Path) -> None:
    listed = [line for line in bench(site, "list", "methods").splitlines() if line.split()[0] == "lead"]
    assert len(listed) == 1 and listed[0].endswith("[longdoc-bench-lead 0.1.0]")

    place = ["--results", str(tmp_path), "--limit", "2"]
    for dataset in ("narrativeqa", "qasper"):
        bench(site, "run", "--method", "lead", "--dataset", dataset, "--set", "first=1", "--no-track", *place)
    (records,) = tmp_path.glob("cells/lead--qasper--*/records.jsonl")
    first = json.loads(records.read_text().splitlines()[0])
    assert first["error"] is None and len(first["context"]) == 2  # the first chunk and the last

    table = bench(site, "table", "table1", "--row", "lead:first=1", "--render-only", *place)
    rows = [line for line in table.splitlines() if line.startswith("lead first=1")]
    assert len(rows) == 4 and [re.split(" {2,}", row)[1] == "–" for row in rows] == [False, False, True, True]


def test_the_example_passes_the_conformance_suite(site: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "test_lead.py")],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_row_of_a_method_that_is_not_installed_is_refused() -> None:
    from bench.errors import ConfigError, UnknownNameError
    from bench.tables.definition import load_table, with_rows

    with pytest.raises(UnknownNameError, match="laed"):
        with_rows(load_table("table1"), ["laed"])
    with pytest.raises(ConfigError, match="already has this row"):
        with_rows(load_table("table1"), ["pecan"])
