"""Table 1 of this commit, against another commit's.

`bench table table1` into an empty results folder, as a process of its own, and then the same command in
a worktree of another commit: `python -m performance table1 --against FOLDER`. Both answer the other commit's
sample questions: this commit runs in a worktree with the other's `datasets/sample`. Processor seconds are
those of all processes of a command. The table has grown since the target was set, so the cells that a command
made are counted, too. It takes long, so it runs by name only.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from performance.contention import own_environment
from performance.measuring import REPOSITORY
from performance.report import Measurement, NotRun, spread

AGAINST = "BENCH_AGAINST"
"""Environment variable that carries ``--against`` to the process that measures."""


@dataclass(frozen=True)
class Took:
    """What one run of the table took, in seconds."""

    wall_s: float
    cpu_s: float
    cells: int


def measure(quick: bool) -> list[Measurement]:
    """Both commits, one after the other; quick: one question of each set.

    Raises NotRun where no other commit was named.
    """
    other = os.environ.get(AGAINST)
    if not other:
        raise NotRun("needs a worktree of another commit, with its .venv: --against FOLDER")
    with tempfile.TemporaryDirectory() as folder:
        own = _run(_with_questions_of(Path(other), Path(folder) / "own"), quick)
    before = _run(Path(other), quick)
    details = {"seconds": [vars(own), vars(before)], "load": round(os.getloadavg()[0], 1)}
    return [
        spread(
            "processor seconds over the other commit's", [own.cpu_s / before.cpu_s], "x", "<= 0.5", **details
        ),
        spread("the same on the clock, with idle cores", [own.wall_s / before.wall_s], "x", "<= 0.35"),
        spread(
            f"processor seconds a cell, over the other commit's ({own.cells} cells, {before.cells} there)",
            [own.cpu_s / own.cells / (before.cpu_s / before.cells)],
            "x",
        ),
    ]


def _with_questions_of(other: Path, folder: Path) -> Path:
    """A copy of this commit's files in the folder, with the sample sets of another worktree."""
    files = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
    for path in (other / "datasets" / "sample").iterdir():
        shutil.copyfile(path, folder / "datasets" / "sample" / path.name)
    return folder


def table1_in(worktree: Path, results: str, *more: str) -> tuple[list[str], dict[str, str]]:
    """The command that makes the table with a worktree's code, and its environment."""
    script = worktree / ".venv" / "bin" / "bench"
    command = [str(script)] if script.exists() else [sys.executable, "-m", "bench.cli.main"]
    environment = {**own_environment(), "PYTHONPATH": str(worktree)}
    return [*command, "table", "table1", "--results", results, *more], environment


def _run(worktree: Path, quick: bool) -> Took:
    with tempfile.TemporaryDirectory() as folder:
        command, environment = table1_in(worktree, folder, *(["--limit", "1"] if quick else []))
        started, before = time.perf_counter(), _spent()
        subprocess.run(command, cwd=worktree, env=environment, check=True, capture_output=True)
        cells = len(list(Path(folder).glob("cells/*/summary.json")))
        return Took(time.perf_counter() - started, _spent() - before, cells)


def _spent() -> float:
    """Processor seconds of all child processes that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
