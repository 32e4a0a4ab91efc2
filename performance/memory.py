"""Peak memory of commands, all their processes together.

`bench run --method bm25 --dataset narrativeqa` with the shipped model, and `bench table table1`, each into an
empty results folder. Memory is the proportional set size (pages that processes share count once), looked at
five times a second. With Qwen2.5-Coder-1.5B, where it is on this machine, also `bench run --method
full_context` on eight questions of HotpotQA (`BENCH_REAL_DATA`, or the sample set).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

from bench.models.spec import resolve
from performance.contention import own_environment
from performance.measuring import REPOSITORY
from performance.report import Measurement, NotRun

READER = "qwen2.5-coder-1.5b"
BETWEEN_S = 0.2
"""Seconds between two looks."""


def measure(quick: bool) -> list[Measurement]:
    """Both commands; quick: one question of each data set. Raises NotRun where the system is not Linux."""
    if not psutil.LINUX:
        raise NotRun("proportional set sizes are Linux's")
    few = ["--limit", "1"] if quick else []
    run = _peak_gb(["run", "--method", "bm25", "--dataset", "narrativeqa", *few])
    table = _peak_gb(["table", "table1", *few])
    real = [] if quick else list(_real_reader())
    return [
        *real,
        Measurement("bench run --method bm25 --dataset narrativeqa, peak", run, "GB", "<= 0.8"),
        Measurement("bench table table1, peak of all processes together", table, "GB", "<= 2.5"),
    ]


def _real_reader() -> Iterator[Measurement]:
    if not resolve(READER).source.here():
        return
    folder = os.environ.get("BENCH_REAL_DATA")
    data = ["--data", f"{folder}/raw/hotpotqa/hotpotqa_train_100.json"] if folder else []
    command = ["run", "--method", "full_context", "--dataset", "hotpotqa", "--limit", "8", "--model", READER]
    yield Measurement(
        f"bench run --method full_context --dataset hotpotqa --model {READER}, peak",
        _peak_gb([*command, *data]),
        "GB",
        "<= 4.5",
    )


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
