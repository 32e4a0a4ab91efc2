"""The commands' start, and what the wheel holds."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import longdoc_bench

ROOT = Path(longdoc_bench.__file__).resolve().parent
SHIPPED = ("bench/assets", "datasets", "paper_tables")
"""Folders of files that are no Python, all of which are needed at run time."""


@pytest.mark.parametrize("name", longdoc_bench.PACKAGES)
@pytest.mark.parametrize("file", ["{}/__init__.py", "{}.py"])
def test_a_foreign_package_that_hides_ours_is_reported_with_the_remedy(
    tmp_path: Path, name: str, file: str
) -> None:
    foreign = tmp_path / file.format(name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.touch()
    start = "import sys; sys.argv = ['bench', '--version']; import longdoc_bench; longdoc_bench.main()"
    run = subprocess.run(
        [sys.executable, "-c", start],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 2
    assert f"a package called {name}, expected in {ROOT / name}; Python finds it in {tmp_path}" in run.stderr
    assert "environment of its own" in run.stderr and "Traceback" not in run.stderr


def test_our_own_packages_are_not_hidden() -> None:
    assert longdoc_bench.hidden() == ""


def test_the_wheel_holds_all_that_runs_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in held if ".dist-info/" not in name}
    assert tops == {"bench", "methods", "longdoc_bench.py"}
    code = [*(ROOT / "bench").rglob("*.py"), *(ROOT / "methods").rglob("*.py")]
    missing = {str(file.relative_to(ROOT)) for file in code} - held
    for folder in SHIPPED:
        there = folder if folder.startswith("bench/") else f"bench/_shipped/{folder}"
        files = [file.relative_to(ROOT / folder) for file in (ROOT / folder).rglob("*") if file.is_file()]
        missing |= {f"{there}/{file}" for file in files if "__pycache__" not in file.parts} - held
    assert not missing
