"""The number of processes and threads on this machine, and the reason for it; the one place that sets them.

A small reader gains nothing from threads: its operations are short, and on a busy machine each of them waits
at a barrier for a thread that is not scheduled. So each process has one thread, and there are as many
processes as idle cores. Only a large reader, of which one copy is enough, gets several threads, if a
measurement at the current load shows a gain. No cell's identity depends on any of this.
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
"""Environment variable for the number of threads per process, used without ``--threads``."""
_POOLS = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")

PROCESSES = "BENCH_WORKERS"
"""Environment variable for the number of processes, used without ``--workers``."""

WORTH_MEASURING = 30_000_000
"""Parameters of the smallest reader for which threads are tried.  # our choice"""
ONE_COPY = 300_000_000
"""From this many parameters, one process with threads instead of several with a copy each.  # our choice"""
MIN_GAIN = 1.25
"""Minimum speed-up for threads to be used.  # our choice"""
PROCESS_BYTES = 1_000_000_000
"""Memory of a process without its weights, at most."""
SAMPLE_S = 0.2
"""Seconds over which the processor load is measured."""


@dataclass(frozen=True)
class Choice:
    """A number of processes or threads, and the reason."""

    count: int
    why: str


def cores() -> int:
    """Cores that this process may use, by its CPU affinity and control group."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        share = own if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or cgroup v1
        share = own
    return max(1, min(own, share))


def processes(parameters: int = 0) -> Choice:
    """Number of processes for a command; parameters: of the largest model."""
    import psutil

    configured = os.environ.get(PROCESSES)
    if configured:
        return Choice(_positive(PROCESSES, configured), f"set by {PROCESSES}")
    own, all_ = cores(), os.cpu_count() or 1
    if parameters >= ONE_COPY:
        return Choice(1, f"one copy of {parameters / 1e6:,.0f} M parameters; threads are tried instead")
    # The load average covers the last minute, cpu_percent only this moment: take the lower one.
    busy = min(os.getloadavg()[0], psutil.cpu_percent(interval=SAMPLE_S) * all_ / 100)
    idle = max(1, min(own, round(all_ - busy)))
    room = max(1, psutil.virtual_memory().available // (PROCESS_BYTES + 4 * parameters))
    why = f"{own} of {all_} cores are allowed, other work uses {busy:.1f}"
    if room < idle:
        return Choice(room, f"{why}, and there is memory for {room}")
    return Choice(idle, why)


@dataclass
class Threads:
    """The threads of this process."""

    wanted: int | None = None
    """Requested number; None: as many as speed the models up."""

    @classmethod
    def begin(cls, requested: int | None = None) -> Threads:
        """The requested number of threads, else the environment's, else one; call it before importing torch.

        Raises ConfigError for an environment variable that is not a positive integer.
        """
        configured = os.environ.get(THREADS)
        own = cls(requested or (_positive(THREADS, configured) if configured else None))
        for name in _POOLS:
            # Numba refuses another number once it has started.
            if (requested or name not in os.environ) and not (
                name.startswith("NUMBA") and "numba" in sys.modules
            ):
                os.environ[name] = str(own.wanted or 1)
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads yield their core
        if "torch" in sys.modules:
            _set(own.wanted or 1)
        return own

    def settle(self, models: Iterable[ModelSpec], *, alone: bool = True) -> Choice:
        """Set the number of threads for these models before they load; alone: the command's only process."""
        choice = self.choose(models, alone=alone)
        if choice.count > 1:
            log.info("%d threads: %s", choice.count, choice.why)
        _set(choice.count)
        return choice

    def choose(self, models: Iterable[ModelSpec], *, alone: bool = True) -> Choice:
        """The number of threads for these models; measured unless it was requested."""
        if self.wanted is not None:
            return Choice(self.wanted, f"set by --threads or {THREADS}")
        on_cpu = [model.architecture for model in models if model.actual_device == "cpu"]
        largest = max(on_cpu, key=lambda one: one.parameters, default=None)
        if largest is None or largest.parameters < WORTH_MEASURING:
            return Choice(1, "small readers gain nothing from more")
        count = cores()
        if not alone or count == 1:
            return Choice(1, "one per process")
        gain = _gain(largest.hidden, count)
        why = f"{count} are {gain:.2f} times as fast as one at this load"
        return Choice(count if gain >= MIN_GAIN else 1, why)


def _gain(width: int, count: int) -> float:
    """Speed-up of ``count`` threads over one at the current load, for matrix products of this width."""
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
    one, several = (sorted(times)[2] for times in zip(*rounds, strict=True))
    return float(one / several)


def _set(count: int) -> None:
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _positive(name: str, value: str) -> int:
    first = value.split(",")[0]  # OpenMP accepts one number per nesting level
    if not first.isdigit() or int(first) < 1:
        raise ConfigError(f"{name}={value}: expected a positive integer. Correct it, or unset it.")
    return int(first)
