"""Mirror the cells of a session to MLflow, in a process that the run does not wait for.

``python -m bench.tracking.sync`` is started with the cells that the store does not show yet: every two
minutes during a run, and once when the session ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.errors import BenchError
from bench.packages import missing
from bench.results.finished import FinishedCell
from bench.results.records import Record
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
PAUSE_S = 120.0
"""Minimum seconds between two syncs during a run: importing MLflow takes some 5 s of processor time."""


class MlflowHooks(RunHooks):
    """Keeps an MLflow store up to date with a session; errors are only logged."""

    def __init__(self, results: Path) -> None:
        """results: the folder of the session's cells."""
        self._results = results.resolve()
        self._uri = choose_store(results)
        self._queued: dict[Path, None] = {}
        self._process: subprocess.Popen[str] | None = None
        self._started = -PAUSE_S
        self._writing = 0
        self._warned: set[str] = set()
        if self._uri != OFF:
            atexit.register(self.close)

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Queue the cell for the next sync."""
        if self._uri != OFF and importlib.util.find_spec("mlflow") is None:
            log.info("%s Records are complete without it.", missing("Showing cells in MLflow", "mlflow"))
            self._uri = OFF
        if self._uri == OFF:
            return
        try:
            if sweep is not None:
                note_sweep(finished.folder, sweep)
            self._queued[finished.folder.resolve()] = None
        except OSError as error:
            self._warn(f"{finished.folder.name}: {error}")

    def on_record(self, record: Record) -> None:
        """Start a sync if enough time has passed and none is running."""
        is_running = self._process is not None and self._process.poll() is None
        if self._queued and not is_running and time.monotonic() - self._started >= PAUSE_S:
            self._sync()

    def close(self) -> None:
        """Wait until MLflow shows every cell, or the time is up; after Ctrl-C not at all."""
        with contextlib.suppress(KeyboardInterrupt):
            self._sync()
            if self._process is not None:
                log.info("Writing %d cell(s) to MLflow. Ctrl-C leaves them to: bench ui", self._writing)
            self._wait()

    def _sync(self) -> None:
        """Start a sync of the queued cells that the store does not show, after the one that runs."""
        self._wait()
        queued, self._queued, self._started = list(self._queued), {}, time.monotonic()
        try:
            cells = not_shown(self._results, self._uri, queued)
            if cells:
                self._writing = len(cells)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "bench.tracking.sync", self._results, *cells],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env={**os.environ, "BENCH_TRACKING_URI": self._uri, "PYTHONUTF8": "1"},
                    start_new_session=True,  # Ctrl-C is the run's to handle
                )
        except (BenchError, OSError) as error:
            self._warn(f"{len(queued)} cell(s): {error}. {REMEDY}")

    def _wait(self) -> None:
        """Log what the sync that runs could not show; one whose time is up is ended."""
        process, self._process = self._process, None
        if process is None:
            return
        timeout_s = SERVER_TIMEOUT_S if is_server(self._uri) else LOCAL_TIMEOUT_S
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            count, self._queued = self._writing + len(self._queued), {}
            self._warn(f"all of {count} cell(s): no answer within {timeout_s:g} s. {REMEDY}")
            return
        except KeyboardInterrupt:
            process.kill()
            self._queued = {}
            raise
        failures = [line.removeprefix(FAILED) for line in output.splitlines() if line.startswith(FAILED)]
        if process.returncode and not failures:
            failures = [f"{self._writing} cell(s): MLflow ended unexpectedly. {REMEDY}"]
        for failure in failures:
            self._warn(failure)

    def _warn(self, message: str) -> None:
        """message: ``what: why``; logs a warning the first time, then only at level DEBUG."""
        reason = message.partition(": ")[2]
        level = logging.DEBUG if reason in self._warned else logging.WARNING
        self._warned.add(reason)
        log.log(level, "MLflow at %s does not show %s", public_uri(self._uri), message)
