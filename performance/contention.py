"""A run beside a process that wants every core, against the same run alone.

`bench run --method full_context --dataset narrativeqa --limit 8` with the shipped model and the threads that
it chooses by itself, as a process of its own, by turns: alone, and beside a torch process that multiplies
matrices with as many threads as there are cores. What else the machine does slows both; its load is given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from performance.measuring import REPOSITORY
from performance.report import Measurement, spread

ROUNDS = 3
_OTHER = """
import os, torch
torch.set_num_threads(os.cpu_count())
x = torch.rand(1024, 1024)
print("at work", flush=True)
while True:
    x @ x
"""


def measure(quick: bool) -> list[Measurement]:
    """Both runs by turns; quick: one question, one round."""
    alone, beside, loads = [], [], []
    for _ in range(1 if quick else ROUNDS):
        loads.append(round(os.getloadavg()[0], 1))
        alone.append(_seconds(1 if quick else 8))
        with _other_process():
            beside.append(_seconds(1 if quick else 8))
    ratios = [one / other for one, other in zip(beside, alone, strict=True)]
    return [
        spread("full context, 8 questions, beside over alone", ratios, "x", "<= 2.2", load_before=loads),
        spread("alone", alone, "s"),
        spread("beside", beside, "s"),
    ]


def own_environment() -> dict[str, str]:
    """This process's environment without what says how many threads to use."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}


def _seconds(questions: int) -> float:
    """On the clock, from the start of the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.cli.main", "run", "--method", "full_context"]
        command += ["--dataset", "narrativeqa", "--limit", str(questions), "--no-track", "--results", folder]
        started = time.perf_counter()
        subprocess.run(command, cwd=REPOSITORY, env=own_environment(), check=True, capture_output=True)
        return time.perf_counter() - started


@contextmanager
def _other_process() -> Iterator[None]:
    """Inside the block another process keeps every core busy."""
    command = [sys.executable, "-c", _OTHER]
    with subprocess.Popen(command, env=own_environment(), stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "at work\n"
            yield
        finally:
            other.kill()
