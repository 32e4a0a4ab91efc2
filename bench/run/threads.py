"""How many processes and threads work on this machine, and why; the one place that sets them.

A small reader gains nothing from threads: its operations are short, and beside other work each of them waits
at a barrier for a thread that is not scheduled. So processes have one thread each, and as many processes work
as there are idle cores. Only a large reader, of which one copy is enough, gets several threads, where a
measurement at the load of the moment says that they pay. No cell's identity depends on any of this.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import ConfigError
from bench.models.spec import ModelSpec

log = logging.getLogger(__name__)

THREADS = "OMP_NUM_THREADS"
"""Environment variable that says how many threads a process uses, where ``--threads`` does not."""
_POOLS = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")

PROCESSES = "BENCH_WORKERS"
"""Environment variable that says how many processes work on cells, where ``--workers`` does not."""

WORTH_MEASURING = 30_000_000
"""Parameters of the smallest reader for which threads are tried.  # our choice"""
ONE_COPY = 300_000_000
"""Parameters from which on one process with threads works, not several with a copy each.  # our choice"""
PAYS = 1.25
"""Threads are used where they are that much faster.  # our choice"""
PROCESS_BYTES = 1_000_000_000
"""Memory of a process beside its weights, at the most."""
LOOK_S = 0.2
"""How long the machine is watched for what else runs."""


@dataclass(frozen=True)
class Choice:
    """How many, and why."""

    count: int
    why: str


def cores() -> int:
    """Cores that this process may use: its affinity and its control group's share count."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        share = own if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or one of the old kind
        share = own
    return max(1, min(own, share))


def processes(parameters: int = 0) -> Choice:
    """How many processes work on the cells of a command; parameters: of the largest model."""
    import psutil

    said = os.environ.get(PROCESSES)
    if said:
        return Choice(_positive(PROCESSES, said), f"{PROCESSES} says so")
    own, all_ = cores(), os.cpu_count() or 1
    if parameters >= ONE_COPY:
        return Choice(1, f"one copy of {parameters / 1e6:,.0f} M parameters; threads are tried instead")
    # The load remembers the last minute, the clock ticks only now: others are busy where both say so.
    busy = min(os.getloadavg()[0], psutil.cpu_percent(interval=LOOK_S) * all_ / 100)
    idle = max(1, min(own, round(all_ - busy)))
    room = max(1, psutil.virtual_memory().available // (PROCESS_BYTES + 4 * parameters))
    why = f"{own} of {all_} cores may be used, other work takes {busy:.1f}"
    if room < idle:
        return Choice(room, f"{why}, and memory has room for {room}")
    return Choice(idle, why)


@dataclass
class Threads:
    """The threads of this process."""

    wanted: int | None = None
    """As asked for; None: what pays."""

    @classmethod
    def begin(cls, asked: int | None = None) -> Threads:
        """Threads as asked for, else as the environment says, else one; best before torch is imported.

        Raises ConfigError for an environment variable that is no number.
        """
        said = os.environ.get(THREADS)
        own = cls(asked or (_positive(THREADS, said) if said else None))
        for name in _POOLS:
            # Numba takes no other number once it has started.
            if (asked or name not in os.environ) and not (
                name.startswith("NUMBA") and "numba" in sys.modules
            ):
                os.environ[name] = str(own.wanted or 1)
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a thread without work leaves its core to others
        if "torch" in sys.modules:
            _set(own.wanted or 1)
        return own

    def settle(self, models: Iterable[ModelSpec], *, alone: bool = True) -> Choice:
        """Before these models are loaded: more threads if they pay; alone: no other process works beside."""
        choice = self.choose(models, alone=alone)
        if choice.count > 1:
            log.info("%d threads: %s", choice.count, choice.why)
        _set(choice.count)
        return choice

    def choose(self, models: Iterable[ModelSpec], *, alone: bool = True) -> Choice:
        """How many threads these models are given; measured where it is not known."""
        if self.wanted is not None:
            return Choice(self.wanted, f"--threads or {THREADS} says so")
        on_cpu = [model.architecture for model in models if model.actual_device == "cpu"]
        largest = max(on_cpu, key=lambda one: one.parameters, default=None)
        if largest is None or largest.parameters < WORTH_MEASURING:
            return Choice(1, "small readers gain nothing from more")
        count = cores()
        if not alone or count == 1:
            return Choice(1, "one for each process")
        gain = _gain(largest.hidden, count)
        why = f"{count} are {gain:.2f} times as fast as one at this load"
        return Choice(count if gain >= PAYS else 1, why)


def _gain(width: int, count: int) -> float:
    """How many times as fast ``count`` threads are as one, now, at products of a reader of that width."""
    import torch

    x, weights = torch.rand(64, width), torch.rand(width, 4 * width)
    before = torch.get_num_threads()

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        x @ weights
        started = time.perf_counter()
        for _ in range(8):
            x @ weights
        return time.perf_counter() - started

    try:
        rounds = [(seconds(1), seconds(count)) for _ in range(5)]
    finally:
        torch.set_num_threads(before)
    one, several = (sorted(found)[2] for found in zip(*rounds, strict=True))
    return float(one / several)


def _set(count: int) -> None:
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _positive(name: str, said: str) -> int:
    first = said.split(",")[0]  # OpenMP takes one number for each level
    if not first.isdigit() or int(first) < 1:
        raise ConfigError(f"{name}={said}: expected a whole number from 1 on. Correct it, or unset it.")
    return int(first)
