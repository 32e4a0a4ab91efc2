"""Table 1 in two passes, against one pass, against one process, and against another commit.

`bench table table1 --limit 24` into an empty results folder each time, as a process of its own: with a first
pass over 12 questions of every cell, without one, and with one worker in place of one for each core; with
`--against FOLDER` also by a worktree of another commit. Compared are also the bytes of the tables' CSV files.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from performance.measuring import REPOSITORY
from performance.report import Measurement
from performance.table1 import AGAINST, table1_in

FIRST, LIMIT = 12, 24


@dataclass(frozen=True)
class Made:
    """One making of the table."""

    first_s: float
    """Until the title of the first whole table stood on standard output."""
    wall_s: float
    csv: bytes


def measure(quick: bool) -> list[Measurement]:
    """The table made in each way, one after the other; quick: two questions of each set."""
    limit = 2 if quick else LIMIT
    first = ["--first", str(limit // 2)]
    passes, one_pass = _made(REPOSITORY, limit, first), _made(REPOSITORY, limit, ["--first", "0"])
    alone = _made(REPOSITORY, limit, [*first, "--workers", "1"])
    found = [
        Measurement(
            f"whole table of the first {limit // 2} questions, from the command", passes.first_s, "s"
        ),
        Measurement("two passes over one", passes.wall_s / one_pass.wall_s, "x", "<= 1.05"),
        Measurement("the same bytes in one pass", float(passes.csv == one_pass.csv), "", "= 1"),
        Measurement("the same bytes by one worker", float(passes.csv == alone.csv), "", "= 1"),
        Measurement("one worker over one for each core", alone.wall_s / passes.wall_s, "x"),
    ]
    if other := os.environ.get(AGAINST):
        before = _made(Path(other), limit, [])
        found.append(
            Measurement("two passes over the other commit", passes.wall_s / before.wall_s, "x", "<= 1.05")
        )
    return found


def _made(worktree: Path, limit: int, more: Sequence[str]) -> Made:
    with tempfile.TemporaryDirectory() as folder:
        command, environment = table1_in(worktree, folder, "--limit", str(limit), "--no-track", *more)
        began = time.perf_counter()
        with subprocess.Popen(
            command, cwd=worktree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            printed = [time.perf_counter() - began for line in process.stdout if b"PECAN" in line]
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        took = time.perf_counter() - began
        return Made(printed[0], took, Path(folder, "tables", "table1.csv").read_bytes())
