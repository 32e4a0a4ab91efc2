"""More processes on this machine: one for each GPU, or as many as asked for, each at work on other cells.

They are helpers of the command that starts them: each takes cells that nobody else holds, under the same
locks as any run, and what one of them leaves undone the command does itself. None is needed for the result,
so any may be lost. They tell nobody but the results folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGTERM
from typing import IO

from bench.cell import CellRequest, plan_cell
from bench.errors import BenchError, ConfigError
from bench.json_lines import held
from bench.models.presets import cuda_available

log = logging.getLogger(__name__)

Group = Sequence[tuple[CellRequest, Path]]
"""Cells that one run per question serves, with their folders."""

PATIENCE_S = 60.0
"""How long a helper that was told to end may take."""


@dataclass(frozen=True)
class LocalWorkers:
    """How many processes work on this machine."""

    wanted: int | None = None
    """None: one for each GPU."""

    @property
    def count(self) -> int:
        """How many: as asked for, or one for each GPU."""
        return self.wanted or max(1, len(_gpus()))

    def require_one(self, what: str) -> None:
        """Raise ConfigError where more than one was asked for, and ``what`` can only use one."""
        if self.wanted is not None and self.wanted > 1:
            raise ConfigError(
                f"--workers {self.wanted}: {what}, and without Ray a cell is one process's. Leave it out, or "
                "share the questions of one cell out with --executor ray."
            )

    @contextlib.contextmanager
    def helping(
        self, groups: Sequence[Group], results: Path, in_flight: int, timeout_s: float | None
    ) -> Iterator[None]:
        """Inside the block all but one of the processes are at work on the groups; this one is the last."""
        if len(groups) < 2:
            yield
            return
        count, gpus = min(self.count, len(groups)), _gpus()
        task = {"results": str(results), "in_flight": in_flight, "timeout_s": timeout_s}
        started: list[_Helper] = []
        whole = False
        try:
            for at in range(1, count):
                # Each begins elsewhere, so that they seldom want the same.
                first = at * len(groups) // count
                ordered = [*groups[first:], *groups[:first]]
                gpu = gpus[at % len(gpus)] if gpus else None
                started.append(_Helper({**task, "groups": [_named(group) for group in ordered]}, gpu, count))
            yield
            whole = True
        finally:
            for helper in started:
                helper.end(tell=whole)


class _Helper:
    """One further process, from its start to its end."""

    def __init__(self, task: dict[str, object], gpu: str | None, count: int) -> None:
        environment = dict(os.environ)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        else:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it ends
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.executors.local_workers"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            text=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it could not start; why is said at its end
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()  # and stays open: its end is how a helper learns that we are gone

    def end(self, tell: bool) -> None:
        """Have it end, if it has not; tell: say so if it had failed by itself."""
        process = self._process
        ended_itself = process.poll() is not None
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if tell and ended_itself and process.returncode:
            self._said.seek(0)
            last = (self._said.read().decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
            log.warning("a further process ended with %d and said: %s", process.returncode, last)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        self._said.close()


def _named(group: Group) -> list[dict[str, object]]:
    return [{"request": asdict(request), "folder": str(folder.absolute())} for request, folder in group]


def _gpus() -> list[str]:
    """The GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` names them; the first one is its own."""
    if not cuda_available():
        return []
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(at) for at in range(torch.cuda.device_count())]


# --- in the helper --------------------------------------------------------------------------------


def main() -> None:
    """Work on the groups that standard input names; ends with them, or when standard input does."""
    from bench.session import Session

    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    session = Session(
        Path(task["results"]), in_flight=task["in_flight"], timeout_s=task["timeout_s"], track=False
    )
    for named in task["groups"]:
        if any(held(Path(one["folder"])) for one in named):
            continue  # whoever is at work on it will finish it, or the command will
        try:
            session.run_together(
                [(plan_cell(CellRequest(**one["request"])), Path(one["folder"])) for one in named]
            )
        except BenchError as error:  # the command meets it as well, and says so
            log.debug("%s", error)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), SIGTERM)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
