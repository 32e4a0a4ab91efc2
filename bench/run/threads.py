"""The number of processes and threads on this machine; the one place that sets them.

A small reader gains nothing from threads: its operations are short, and on a busy machine each of them waits
at a barrier for a thread that is not scheduled. So each process has one thread, and there are as many
processes as idle cores. Only a large reader, of which one copy is enough, gets a thread for each idle core.
No cell's identity depends on any of this.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import ConfigError
from bench.models.spec import ModelSpec

THREADS = "OMP_NUM_THREADS"
"""Environment variable for the number of threads per process, used without ``--threads``."""
_POOLS = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")

_ours: dict[str, str] = {}
"""Those that this process has set: they are no wish of the user's."""

PROCESSES = "BENCH_WORKERS"
"""Environment variable for the number of processes, used without ``--workers``."""

WORTH_THREADS = 30_000_000
"""Parameters of the smallest reader that gets several threads.  # our choice"""
ONE_COPY = 300_000_000
"""From this many parameters, one process with threads instead of several with a copy each.  # our choice"""
PROCESS_BYTES = 1_000_000_000
"""Memory of a process without its weights, at most."""
SAMPLE_S = 0.2
"""Seconds over which the processor load is measured."""


def cores() -> int:
    """Cores that this process may use, by its CPU affinity and control group."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        share = own if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or cgroup v1
        share = own
    return max(1, min(own, share))


def idle_cores() -> int:
    """Cores that this process may use and that other work leaves idle; at least one."""
    import psutil

    all_ = os.cpu_count() or 1
    # The load average covers the last minute, cpu_percent only this moment: take the lower one.
    busy = float(min(os.getloadavg()[0], psutil.cpu_percent(interval=SAMPLE_S) * all_ / 100))
    return max(1, min(cores(), round(all_ - busy)))


def processes(parameters: int = 0) -> int:
    """Number of processes for a command; parameters: of the largest model."""
    import psutil

    configured = os.environ.get(PROCESSES)
    if configured:
        return _positive(PROCESSES, configured)
    if parameters >= ONE_COPY:
        return 1
    room = psutil.virtual_memory().available // (PROCESS_BYTES + 4 * parameters)
    return max(1, min(idle_cores(), int(room)))


@dataclass
class Threads:
    """The threads of this process."""

    wanted: int | None = None
    """Requested number; None: as many as the models are worth."""

    @classmethod
    def begin(cls, requested: int | None = None) -> Threads:
        """The requested number of threads, else the environment's, else one; call it before importing torch.

        Raises ConfigError for an environment variable that is not a positive integer.
        """
        configured = os.environ.get(THREADS)
        configured = None if configured == _ours.get(THREADS) else configured
        own = cls(requested or (_positive(THREADS, configured) if configured else None))
        for name in _POOLS:
            # Numba refuses another number once it has started.
            if (requested or name not in os.environ) and not (
                name.startswith("NUMBA") and "numba" in sys.modules
            ):
                os.environ[name] = _ours[name] = str(own.wanted or 1)
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads yield their core
        if "torch" in sys.modules:
            _set(own.wanted or 1)
        return own

    def settle(self, models: Iterable[ModelSpec], *, alone: bool = True) -> None:
        """Set the number of threads for these models before they load; alone: the command's only process."""
        _set(self.choose(models, alone=alone))

    def choose(self, models: Iterable[ModelSpec], *, alone: bool = True) -> int:
        """The number of threads for these models."""
        if self.wanted is not None:
            return self.wanted
        largest = max((m.architecture.parameters for m in models if m.actual_device == "cpu"), default=0)
        return idle_cores() if alone and largest >= WORTH_THREADS else 1


def _set(count: int) -> None:
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _positive(name: str, value: str) -> int:
    first = value.split(",")[0]  # OpenMP accepts one number per nesting level
    if not first.isdigit() or int(first) < 1:
        raise ConfigError(f"{name}={value}: expected a positive integer. Correct it, or unset it.")
    return int(first)
