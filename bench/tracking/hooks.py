"""Mirror finished cells to MLflow during a run, in a process that the run does not wait for.

Cells that the store does not show yet are queued. ``python -m bench.tracking.sync`` is started with the
queued cells, again whenever it has ended and more are queued, and for the last time when the session ends.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.packages import missing
from bench.results.finished import FinishedCell
from bench.results.records import Record
from bench.run.cell import Cell
from bench.run.hooks import RunHooks
from bench.tracking.content import content_digest, note_sweep, sweep_cells, sweep_digest
from bench.tracking.store import (
    FAILED,
    OFF,
    REMEDY,
    choose_store,
    is_server,
    is_shown,
    public_uri,
    scrub,
)

log = logging.getLogger(__name__)

PATIENCE_S = 15.0
"""Maximum seconds that the end of a session waits for a tracking server."""
LOCAL_PATIENCE_S = 120.0
"""The same for a local store, since its last progress; creating a store takes 2 to 25 seconds."""
SILENT_S = 10.0
"""Seconds that the end of a session waits before it says what for."""
PAUSE_S = 120.0
"""Minimum seconds between two syncs during a run: importing MLflow takes some 5 s of processor time."""


class MlflowHooks(RunHooks):
    """Keeps an MLflow store up to date with a session; errors are only logged."""

    def __init__(self, results: Path) -> None:
        """results: the folder of the session's cells."""
        self._results = results.resolve()
        self._uri = choose_store(results)
        self._queued: dict[Path, None] = {}
        self._running: _Sync | None = None
        self._started = -PAUSE_S
        self._warned: set[str] = set()
        if self._uri != OFF:
            atexit.register(self.close)

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Queue the cell for the next sync."""
        self.queue(finished.folder, sweep)

    def queue(self, folder: Path, sweep: str | None = None) -> None:
        """Queue a cell's folder for the next sync."""
        if self._uri != OFF and importlib.util.find_spec("mlflow") is None:
            log.info("%s Records are complete without it.", missing("Showing cells in MLflow", "mlflow"))
            self._uri = OFF
        if self._uri == OFF:
            return
        try:
            if sweep is not None:
                note_sweep(folder, sweep)
            if not is_shown(self._uri, content_digest(folder)):
                self._queued[folder.resolve()] = None
        except (BenchError, OSError) as error:
            self._warn(f"{folder.name}: {error}")

    def on_sweep_finished(self, name: str, folders: Sequence[Path]) -> None:
        """Queue its cells for the next sync if their curves are not drawn yet."""
        if self._uri == OFF:
            return
        try:
            if not is_shown(self._uri, sweep_digest(name, sweep_cells(self._results).get(name, ()))):
                self._queued |= dict.fromkeys(folder.resolve() for folder in folders)
        except (BenchError, OSError) as error:
            self._warn(f"{name}: {error}")

    def on_record(self, record: Record) -> None:
        """Start a sync if enough time has passed."""
        if self._queued and time.monotonic() - self._started >= PAUSE_S:
            self._continue()

    def close(self) -> None:
        """Wait until MLflow shows every cell; not for a store that does not answer, and not after Ctrl-C."""
        try:
            self._wait()
        except KeyboardInterrupt:
            if self._running is not None:
                self._running.kill()
            self._running, self._queued = None, {}
            raise

    def _wait(self) -> None:
        patience_s = PATIENCE_S if is_server(self._uri) else LOCAL_PATIENCE_S
        started = last_progress = time.monotonic()
        printed_bytes, said = -1, False
        while self._continue():
            assert self._running is not None
            now, count = time.monotonic(), len(self._running.cells) + len(self._queued)
            if now - started > SILENT_S and not said:
                log.info("Writing %d cell(s) to MLflow. Ctrl-C leaves the rest to: bench ui", count)
                said = True
            if not is_server(self._uri) and self._running.printed_bytes != printed_bytes:
                last_progress, printed_bytes = now, self._running.printed_bytes
            if now - last_progress > patience_s:
                self._running.kill()
                self._running, self._queued = None, {}
                self._warn(f"all of {count} cell(s): no answer within {patience_s:g} s. {REMEDY}")
                return
            time.sleep(0.02)

    def _continue(self) -> bool:
        """Start a sync of the queued cells once the last one has ended; False if there is nothing to do."""
        if self._running is not None:
            if self._running.runs:
                return True
            for message in self._running.failures():
                self._warn(scrub(message, self._uri))
            self._running = None
        if not self._queued:
            return False
        cells, self._queued, self._started = list(self._queued), {}, time.monotonic()
        try:
            self._running = _Sync(self._uri, self._results, cells)
        except OSError as error:
            self._warn(f"{len(cells)} cell(s): {error}. {REMEDY}")
        return self._running is not None

    def _warn(self, message: str) -> None:
        """message: ``what: why``; logs a warning the first time, then only at level DEBUG."""
        reason = message.partition(": ")[2]
        level = logging.DEBUG if reason in self._warned else logging.WARNING
        self._warned.add(reason)
        log.log(level, "MLflow at %s does not show %s", public_uri(self._uri), message)


class _Sync:
    """One ``python -m bench.tracking.sync``."""

    def __init__(self, uri: str, results: Path, cells: Sequence[Path]) -> None:
        self.cells = cells
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.tracking.sync", str(results), *map(str, cells)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "BENCH_TRACKING_URI": uri, "PYTHONUTF8": "1"},
            start_new_session=True,  # Ctrl-C is the run's to handle
        )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def printed_bytes(self) -> int:
        """Size of its output, which grows with every cell."""
        return os.fstat(self._output.fileno()).st_size

    def failures(self) -> list[str]:
        """The failures as ``what: why``, once the process has ended."""
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        self._output.close()
        failed = [line.removeprefix(f"{FAILED} ") for line in lines if line.startswith(FAILED)]
        if self._process.returncode and not failed:
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
            failed = [f"{len(self.cells)} cell(s): MLflow ended unexpectedly ({last}). {REMEDY}"]
        return failed

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()
