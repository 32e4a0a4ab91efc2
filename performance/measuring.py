"""Time by turns, peak memory, and work in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent

LOGGED = "benchmark: "
"""Begins each line that a benchmark logs, so that they can be told from what libraries say."""


@dataclass(frozen=True)
class Run:
    """One run of one candidate, in seconds per unit of its work."""

    wall_s: float
    cpu_s: float
    """Of this process, all threads; a busy machine changes it less than the clock."""


@dataclass(frozen=True)
class Candidate:
    """Something to be timed."""

    run: Callable[[], Any]
    units: float = 1
    """How much work one run is (questions, tokens); times are divided by it."""


@dataclass(frozen=True)
class Timed:
    """All runs of one candidate, in order, and what the last of them returned."""

    runs: tuple[Run, ...]
    result: Any

    @property
    def wall_s(self) -> float:
        """Median seconds on the clock per unit."""
        return statistics.median(run.wall_s for run in self.runs)

    def seconds(self) -> dict[str, list[float]]:
        """Every run, for a report."""
        return {
            "wall_s": [round(run.wall_s, 6) for run in self.runs],
            "cpu_s": [round(run.cpu_s, 6) for run in self.runs],
        }


def by_turns(candidates: Mapping[str, Candidate], rounds: int, *, warm_up: bool = True) -> dict[str, Timed]:
    """Every candidate ``rounds`` times, one after the other in each round, the order turned around each time.

    warm_up: a first, unmeasured run of each.
    """
    if warm_up:
        for candidate in candidates.values():
            candidate.run()
    runs: dict[str, list[Run]] = {name: [] for name in candidates}
    results: dict[str, Any] = {}
    for at in range(rounds):
        names = list(candidates)
        for name in names if at % 2 == 0 else reversed(names):
            results[name] = None
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            results[name] = candidates[name].run()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            runs[name].append(Run(*(s / candidates[name].units for s in spent)))
    return {name: Timed(tuple(timings), results[name]) for name, timings in runs.items()}


def one_thread() -> None:
    """Arithmetic on one thread, as every command chooses for a small reader (:mod:`bench.run.threads`)."""
    import torch

    torch.set_num_threads(1)


@contextmanager
def stopwatch(into: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes."""
    started = time.perf_counter()
    try:
        yield
    finally:
        into.append(time.perf_counter() - started)


@contextmanager
def wrapped(
    module: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Inside the block, ``module.name`` is what ``around`` makes of it."""
    own = getattr(module, name)
    setattr(module, name, around(own))
    try:
        yield
    finally:
        setattr(module, name, own)


@dataclass
class Peak:
    """Memory of this process over a block, in bytes."""

    before: int
    """Resident at its beginning."""
    highest: int = 0
    """Most that was resident at once."""

    @property
    def growth(self) -> int:
        """By how much the block raised it."""
        return self.highest - self.before


@contextmanager
def peak_memory(*, settle: bool = True) -> Iterator[Peak]:
    """The process's peak memory inside the block; blocks must not be nested.

    settle: give back what is not in use any more first, which takes a while.
    Raises RuntimeError where the system is not Linux: nothing else lets a process reset its peak.
    """
    if not memory_can_be_measured():
        raise RuntimeError("peak memory is read from /proc/self, which this system does not have")
    if settle:
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other C libraries keep less
        if trim is not None:
            trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    peak = Peak(status_bytes("VmRSS"))
    try:
        yield peak
    finally:
        peak.highest = status_bytes("VmHWM")


def memory_can_be_measured() -> bool:
    """Whether :func:`peak_memory` works here."""
    return Path("/proc/self/clear_refs").exists()


def status_bytes(field_name: str, status: Path = Path("/proc/self/status")) -> int:
    """A line of what the system says about a process, such as ``VmHWM``, the most that was ever resident."""
    for line in status.read_text().splitlines():
        if line.startswith(f"{field_name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{status} has no {field_name}")


class ChildFailedError(Exception):
    """A process of its own that ended with an error; shows the end of what it wrote."""


def in_own_process(task: str, *arguments: Any) -> Any:
    """What ``module:function`` returns for JSON arguments, run in a fresh process; JSON as well.

    What it logs is passed on as it comes. Raises ChildFailedError.
    """
    command = [sys.executable, "-m", "performance.child", task, json.dumps(arguments)]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=printed, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stderr is not None
        lines: deque[str] = deque(maxlen=60)
        for line in process.stderr:
            lines.append(line)
            if line.startswith(LOGGED):
                sys.stderr.write(line.removeprefix(LOGGED))
                sys.stderr.flush()
        if process.wait():
            message = "".join(lines)[-3000:]
            raise ChildFailedError(f"{task}{arguments} ended with {process.returncode}:\n{message}")
        printed.seek(0)
        return json.loads(printed.read().splitlines()[-1])


@dataclass(frozen=True)
class Machine:
    """What numbers were measured on."""

    processor: str
    cores: int
    threads: int
    """That torch uses."""
    memory_gb: float
    accelerator: str
    load_before: float
    """Processes that wanted to run in the minute before; near 0 on a quiet machine."""

    @classmethod
    def here(cls) -> Machine:
        """This one, now."""
        import os
        import platform

        import torch

        named = [line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")]
        return cls(
            processor=named[0] if named else platform.processor() or platform.machine(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
            accelerator=torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
            load_before=round(os.getloadavg()[0], 1),
        )


def _cpu_lines() -> Sequence[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ()
