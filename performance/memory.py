"""Peak memory of commands, all their processes together.

`bench run --method bm25 --dataset narrativeqa` with the shipped model, and `bench table table1`, each into an
empty results folder. Memory is the proportional set size (pages that processes share count once), looked at
five times a second.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

import psutil

from performance.contention import own_environment
from performance.measuring import REPOSITORY
from performance.report import Measurement, NotRun

BETWEEN_S = 0.2
"""Seconds between two looks."""


def measure(quick: bool) -> list[Measurement]:
    """Both commands; quick: one question of each data set. Raises NotRun where the system is not Linux."""
    if not psutil.LINUX:
        raise NotRun("proportional set sizes are Linux's")
    few = ["--limit", "1"] if quick else []
    run = _peak_gb(["run", "--method", "bm25", "--dataset", "narrativeqa", *few])
    table = _peak_gb(["table", "table1", *few])
    return [
        Measurement("bench run --method bm25 --dataset narrativeqa, peak", run, "GB", "<= 0.8"),
        Measurement("bench table table1, peak of all processes together", table, "GB", "<= 2.5"),
    ]


def _peak_gb(arguments: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.cli.main", *arguments, "--no-track", "--results", folder]
        peak = 0
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=own_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as running:
            while running.poll() is None:
                peak = max(peak, _together(running.pid))
                time.sleep(BETWEEN_S)
        if running.returncode:
            raise subprocess.CalledProcessError(running.returncode, command)
        return peak / 1e9


def _together(pid: int) -> int:
    """Bytes of a process and all that it has started, as far as they still run."""
    total = 0
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for one in family:
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total
