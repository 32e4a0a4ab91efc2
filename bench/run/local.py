"""More processes on this machine: one for each GPU or idle core, or as many as asked for, on other cells.

They are helpers of the command that starts them: each takes cells that nobody else holds, under the same
locks as any run, and what one of them leaves undone the command does itself. None is needed for the result,
so any may be lost. They print nothing: the command is told how far they are.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bench.errors import ConfigError
from bench.models.spec import cuda_available
from bench.run.cell import CellRequest
from bench.run.hooks import News
from bench.run.threads import processes

log = logging.getLogger(__name__)

Group = Sequence[tuple[CellRequest, Path]]
"""Cells that one run per question serves, with their folders."""

PATIENCE_S = 60.0
"""How long a helper that was told to end may take."""


@dataclass(frozen=True)
class LocalWorkers:
    """How many processes work on this machine."""

    wanted: int | None = None
    """None: one for each GPU, or without any for each idle core."""

    def count(self, parameters: int = 0) -> int:
        """How many: as asked for, or as many as pay; parameters: of the largest model."""
        return self.wanted or len(_gpus()) or processes(parameters).count

    def require_one(self, what: str) -> None:
        """Raise ConfigError where more than one was asked for, and ``what`` can only use one."""
        if self.wanted is not None and self.wanted > 1:
            raise ConfigError(
                f"--workers {self.wanted}: {what}, and without Ray a cell is one process's. Leave it out, or "
                "share the questions of one cell out with --executor ray."
            )

    @contextlib.contextmanager
    def helping(
        self,
        groups: Sequence[Group],
        results: Path,
        in_flight: int,
        timeout_s: float | None,
        *,
        parameters: int = 0,
        told: Callable[[News], None] = lambda news: None,
    ) -> Iterator[Helpers]:
        """Inside the block all but one of the processes are at work on the groups; this one is the last.

        told: what they do, from other threads.
        """
        count = min(self.count(parameters), len(groups)) if len(groups) > 1 else 1
        gpus = _gpus() if count > 1 else []
        task = {"results": str(results), "in_flight": in_flight, "timeout_s": timeout_s}
        helpers = Helpers()
        try:
            for at in range(1, count):
                # Each begins elsewhere, so that they seldom want the same.
                first = at * len(groups) // count
                ordered = [*groups[first:], *groups[:first]]
                gpu = gpus[at % len(gpus)] if gpus else None
                helpers.add(_Helper({**task, "groups": [_named(group) for group in ordered]}, gpu, told))
            yield helpers
            helpers.tell = True
        finally:
            helpers.end()


class Helpers:
    """The further processes of a command."""

    def __init__(self) -> None:
        """None yet."""
        self._all: list[_Helper] = []
        self.tell = False
        """Whether to say at the end which of them failed by themselves."""

    def add(self, helper: _Helper) -> None:
        """One more."""
        self._all.append(helper)

    @property
    def count(self) -> int:
        """How many were started."""
        return len(self._all)

    @property
    def working(self) -> bool:
        """Whether any of them has not ended."""
        return any(helper.working for helper in self._all)

    def end(self) -> None:
        """Have all end, and wait until they have."""
        for helper in self._all:
            helper.stop()
        for helper in self._all:
            helper.end(tell=self.tell)


class _Helper:
    """One further process, from its start to its end."""

    def __init__(self, task: dict[str, object], gpu: str | None, told: Callable[[News], None]) -> None:
        environment = dict(os.environ)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it ends
        self._told = told
        self._stopped = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.run.local_worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, name="helper", daemon=True)
        self._listener.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it could not start; why is said at its end
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()  # and stays open: its end is how a helper learns that we are gone

    @property
    def working(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Tell it to end, if it has not."""
        self._stopped = self.working
        self._process.terminate()

    def end(self, tell: bool) -> None:
        """Wait for its end; tell: say so if it had failed by itself."""
        process = self._process
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join()
        if tell and not self._stopped and process.returncode:
            self._said.seek(0)
            last = (self._said.read().decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
            log.warning("a further process ended with %d and said: %s", process.returncode, last)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        self._said.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # a line that its end cut
                self._told(News(**json.loads(line)))


def _named(group: Group) -> list[dict[str, object]]:
    return [{"request": asdict(request), "folder": str(folder.absolute())} for request, folder in group]


def _gpus() -> list[str]:
    """The GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` names them; the first one is its own."""
    if not cuda_available():
        return []
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(at) for at in range(torch.cuda.device_count())]
