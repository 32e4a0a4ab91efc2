"""Mirror the finished cells of a session to MLflow when it ends, in a process of its own.

``python -m bench.tracking.sync`` is started with the cells that the store does not show yet.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

from bench.errors import BenchError
from bench.packages import missing
from bench.results.finished import FinishedCell
from bench.run.cell import Cell
from bench.run.hooks import RunHooks
from bench.tracking.content import note_sweep
from bench.tracking.store import FAILED, OFF, REMEDY, choose_store, is_server, public_uri
from bench.tracking.sync import not_shown

log = logging.getLogger(__name__)

SERVER_TIMEOUT_S = 15.0
"""Maximum seconds that the end of a session waits for a tracking server."""
LOCAL_TIMEOUT_S = 120.0
"""The same for a local store; creating one takes 2 to 25 seconds."""


class MlflowHooks(RunHooks):
    """Keeps an MLflow store up to date with a session; errors are only logged."""

    def __init__(self, results: Path) -> None:
        """results: the folder of the session's cells."""
        self._results = results.resolve()
        self._uri = choose_store(results)
        self._queued: dict[Path, None] = {}
        self._warned: set[str] = set()
        if self._uri != OFF:
            atexit.register(self.close)

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Queue the cell once all its questions have been asked."""
        if finished.is_whole:
            self.queue(finished.folder, sweep)

    def queue(self, folder: Path, sweep: str | None = None) -> None:
        """Queue a finished cell's folder for the end of the session."""
        if self._uri != OFF and importlib.util.find_spec("mlflow") is None:
            log.info("%s Records are complete without it.", missing("Showing cells in MLflow", "mlflow"))
            self._uri = OFF
        if self._uri == OFF:
            return
        try:
            if sweep is not None:
                note_sweep(folder, sweep)
            self._queued[folder.resolve()] = None
        except OSError as error:
            self._warn(f"{folder.name}: {error}")

    def close(self) -> None:
        """Write the queued cells that the store does not show, or give up when the time is up."""
        queued, self._queued = list(self._queued), {}
        try:
            cells = not_shown(self._results, self._uri, queued)
            if cells:
                self._sync(cells)
        except (BenchError, OSError) as error:
            self._warn(f"{len(queued)} cell(s): {error}. {REMEDY}")

    def _sync(self, cells: list[Path]) -> None:
        """Write the cells and log what could not be shown; Ctrl-C and the time limit end the process."""
        log.info("Writing %d cell(s) to MLflow. Ctrl-C leaves them to: bench ui", len(cells))
        timeout_s = SERVER_TIMEOUT_S if is_server(self._uri) else LOCAL_TIMEOUT_S
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "bench.tracking.sync", self._results, *cells],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "BENCH_TRACKING_URI": self._uri, "PYTHONUTF8": "1"},
                start_new_session=True,  # Ctrl-C is the run's to handle
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._warn(f"all of {len(cells)} cell(s): no answer within {timeout_s:g} s. {REMEDY}")
            return
        failures = [line.removeprefix(FAILED) for line in done.stdout.splitlines() if line.startswith(FAILED)]
        if done.returncode and not failures:
            failures = [f"{len(cells)} cell(s): MLflow ended unexpectedly. {REMEDY}"]
        for failure in failures:
            self._warn(failure)

    def _warn(self, message: str) -> None:
        """message: ``what: why``; logs a warning the first time, then only at level DEBUG."""
        reason = message.partition(": ")[2]
        level = logging.DEBUG if reason in self._warned else logging.WARNING
        self._warned.add(reason)
        log.log(level, "MLflow at %s does not show %s", public_uri(self._uri), message)
