"""Helper processes on this machine: one for each GPU or idle core, or as many as requested.

A helper takes cells that no other process has locked, like any run, and the command that started it runs
whatever the helpers leave unfinished. The result does not depend on any of them, so any may be lost. They
print nothing and report their progress to the command.
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
from signal import SIGKILL
from typing import IO

from bench.models.spec import cuda_available
from bench.run.cell import Cell
from bench.run.hooks import HelperProgress
from bench.run.runner import Asking
from bench.run.threads import PROCESSES, processes

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Seconds that a helper may take to end before it is killed."""


@dataclass(frozen=True)
class LocalWorkers:
    """The number of processes on this machine, and the helpers among them."""

    wanted: int | None = None
    """Requested number of processes; None: one per GPU, or without GPUs one per idle core."""

    def count(self, parameters: int = 0) -> int:
        """The requested number of processes, or as many as are useful; parameters: of the largest model."""
        return self.wanted or (0 if os.environ.get(PROCESSES) else len(_gpus())) or processes(parameters)

    @contextlib.contextmanager
    def helping(
        self,
        groups: Sequence[Sequence[Cell]],
        results: Path,
        asking: Asking,
        parameters: int,
        on_progress: Callable[[HelperProgress], None],
    ) -> Iterator[Sequence[Helper]]:
        """Inside the block helpers work on the groups; this process counts as one of :meth:`count`.

        parameters: of the largest model. on_progress: called from other threads.
        """
        count = min(self.count(parameters), len(groups)) if len(groups) > 1 else 1
        gpus = _gpus() if count > 1 else []
        limits = {name: getattr(asking, name) for name in ("in_flight", "timeout_s", "first")}
        task = {"results": str(results), **limits}
        helpers: list[Helper] = []
        report_failures = False
        try:
            for at in range(1, count):
                # Each starts with another group, so that they rarely want the same one.
                begin = at * len(groups) // count
                ordered = [_as_json(group, results) for group in (*groups[begin:], *groups[:begin])]
                gpu = gpus[at % len(gpus)] if gpus else None
                helpers.append(Helper({**task, "groups": ordered}, gpu, on_progress))
            yield helpers
            report_failures = True
        finally:
            for helper in helpers:
                helper.stop()
            for helper in helpers:
                helper.end(report_failures)


def _end_in_words(returncode: int, said: Sequence[str]) -> str:
    """How a helper process came to its end; said: its lines on standard error."""
    if returncode != -SIGKILL:
        return f"a helper process failed with exit code {returncode}" + (f": {said[-1]}" if said else "")
    return "a helper process was killed, by the system if memory ran out (fewer processes: --workers)"


class Helper:
    """One helper process, from its start to its end."""

    def __init__(
        self, task: dict[str, object], gpu: str | None, on_progress: Callable[[HelperProgress], None]
    ) -> None:
        environment = dict(os.environ)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        self._on_progress = on_progress
        self._stopped = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.run.local_worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, name="helper", daemon=True)
        self._listener.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it could not start; end() reports why
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()  # and stays open: end of input tells the helper that we are gone

    @property
    def working(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask it to end, if it is still running."""
        self._stopped = self.working
        self._process.terminate()

    def end(self, report_failure: bool) -> None:
        """Wait for its end; report_failure: log if it failed on its own."""
        process = self._process
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join()
        if report_failure and not self._stopped and process.returncode:
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace").strip().splitlines()
            log.warning("%s; its cells were left to the others", _end_in_words(process.returncode, said))
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        self._stderr.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # a line cut off by its end
                self._on_progress(HelperProgress(**json.loads(line)))


def _as_json(group: Sequence[Cell], results: Path) -> list[dict[str, object]]:
    return [{"request": asdict(one.request), "folder": str(one.folder(results).absolute())} for one in group]


def _gpus() -> list[str]:
    """The GPUs that this process sees, as in ``CUDA_VISIBLE_DEVICES``; it uses the first one itself."""
    if not cuda_available():
        return []
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(at) for at in range(torch.cuda.device_count())]
