"""The commands' start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import longdoc_bench

ROOT = Path(longdoc_bench.__file__).resolve().parent


@pytest.mark.parametrize("name", longdoc_bench.PACKAGES)
@pytest.mark.parametrize("file", ["{}/__init__.py", "{}.py"])
def test_a_foreign_package_that_hides_ours_is_reported(tmp_path: Path, name: str, file: str) -> None:
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
