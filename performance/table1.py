"""Table 1 of this commit, against another commit's.

`bench table table1` into an empty results folder, as a process of its own, by turns with the same command in
a worktree of another commit: `python -m performance table1 --against FOLDER`. Processor seconds are those of
all processes of a command. It takes long, so it runs by name only.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
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


def measure(quick: bool) -> list[Measurement]:
    """Both commits by turns; quick: one question of each set, one round.

    Raises NotRun where no other commit was named.
    """
    other = os.environ.get(AGAINST)
    if not other:
        raise NotRun("needs a worktree of another commit, with its .venv: --against FOLDER")
    rounds = [(_run(REPOSITORY, quick), _run(Path(other), quick)) for _ in range(1 if quick else 2)]
    cpu = [own.cpu_s / before.cpu_s for own, before in rounds]
    wall = [own.wall_s / before.wall_s for own, before in rounds]
    details = {
        "seconds": [[vars(one) for one in both] for both in rounds],
        "load": round(os.getloadavg()[0], 1),
    }
    return [
        spread("processor seconds over the other commit's", cpu, "x", "<= 0.5", **details),
        spread("the same on the clock, with idle cores", wall, "x", "<= 0.35"),
    ]


def _run(worktree: Path, quick: bool) -> Took:
    own = worktree / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        command = [str(own) if own.exists() else sys.executable, "-m", "bench.cli.main", "table", "table1"]
        command += ["--results", folder, *(["--limit", "1"] if quick else [])]
        started, before = time.perf_counter(), _spent()
        subprocess.run(command, cwd=worktree, env=own_environment(), check=True, capture_output=True)
        return Took(time.perf_counter() - started, _spent() - before)


def _spent() -> float:
    """Processor seconds of all child processes that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
