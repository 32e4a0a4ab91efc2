"""Mirroring beside a run: cells wait in a queue, so that no run waits for a store."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tracking.mirror import DEADLINE_S, MirrorResult, mirror_cell, mirror_sweep
from bench.tracking.store import RESULTS, choose_store, is_server

log = logging.getLogger(__name__)

SERVER_PATIENCE_S = 15.0
"""Most seconds that the end of a command waits for a tracking server to take the next cell."""


@dataclass(frozen=True)
class _Job:
    """One call of the mirror."""

    call: Any
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


class BackgroundMirror:
    """Mirrors what it is given in a thread of its own, one after the other."""

    def __init__(self, results_dir: Path = RESULTS, tracking_uri: str | None = None) -> None:
        """results_dir, tracking_uri: as for :func:`bench.tracking.mirror_cell`."""
        self.results_dir, self.uri = results_dir, choose_store(tracking_uri, results_dir)
        self.shown: list[MirrorResult] = []
        """What became of the cells so far."""
        self._jobs: queue.Queue[_Job] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._moved = time.monotonic()

    def add(self, cell_dir: Path, **options: Any) -> None:
        """Mirror a cell when its turn comes; options as for :func:`bench.tracking.mirror_cell`."""
        self._put(_Job(mirror_cell, (cell_dir,), options))

    def add_sweep(self, name: str, cell_dirs: list[Path]) -> None:
        """Draw the figures of a sweep when all its cells before have had their turn."""
        self._put(_Job(mirror_sweep, (name, cell_dirs), {}))

    def finish(self, patience_s: float | None = None) -> int:
        """Wait until all is mirrored, or nothing moved for that long; returns how much was left undone.

        patience_s: by default 15 s for a tracking server, and the deadline of a cell for a local store.
        """
        if patience_s is None:
            patience_s = SERVER_PATIENCE_S if is_server(self.uri) else DEADLINE_S
        self._moved = time.monotonic()
        while self._jobs.unfinished_tasks and time.monotonic() - self._moved < patience_s:
            time.sleep(0.02)
        left = self._jobs.unfinished_tasks
        if left:
            log.warning(
                "%d cell(s) are not shown in MLflow: the store did not take them within %g s. The records "
                "are safe; mirror them later with: bench track sync",
                left,
                patience_s,
            )
            self._drop()
        failed = sum(not result.ok for result in self.shown)
        if failed > 1:
            log.warning("%d cells in all are not shown in MLflow; see above why", failed)
        return left

    def _put(self, job: _Job) -> None:
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                found = job.call(
                    *job.arguments, tracking_uri=self.uri, results_dir=self.results_dir, **job.options
                )
                if isinstance(found, MirrorResult):
                    self.shown.append(found)
            except Exception:  # nothing that goes wrong here may end the thread that others wait for
                log.warning("a cell could not be mirrored", exc_info=True)
            finally:
                self._moved = time.monotonic()
                self._jobs.task_done()

    def _drop(self) -> None:
        """Forget what has not begun."""
        while True:
            try:
                self._jobs.get_nowait()
            except queue.Empty:
                return
            self._jobs.task_done()
