"""Mirroring cells into MLflow without ever standing in the way of a run."""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from bench.errors import BenchError
from bench.files import write_json
from bench.records import CELL_FILE, SUMMARY_FILE
from bench.schema import JsonValue
from bench.tracking.run_content import content_digest
from bench.tracking.store import (
    ARTIFACT_FOLDER,
    OFF,
    RESULTS,
    artifact_root,
    choose_store,
    is_server,
    public_uri,
    scrub,
    sqlite_path,
    unreachable_reason,
)

log = logging.getLogger(__name__)

STAMP_FILE = "mlflow_mirror.json"
"""In a cell's folder: what was mirrored, where to; saves importing MLflow when nothing changed."""
DEADLINE_S = 120.0
"""Most seconds that one cell may take; creating a store takes 2 to 25."""
REST_S = 60.0
"""Seconds for which a store that did not answer is not asked again."""

_NO_CELLS = {ARTIFACT_FOLDER, "indexes"}
"""Folders of the results folder with many files and no cell."""
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "PYTHONUTF8": "1",
}
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""Unless the user set their own: MLflow waits 120 s and retries 7 times."""
_REMEDY = "The records are safe; mirror them later with: bench track sync"


@dataclass(frozen=True)
class MirrorResult:
    """What became of one cell."""

    cell_dir: Path
    state: Literal["created", "updated", "unchanged", "failed", "off"]
    tracking_uri: str
    """Without credentials."""
    run_id: str | None = None
    experiment_id: str | None = None
    message: str = ""
    """For ``failed``: what happened and what to do."""

    @property
    def ok(self) -> bool:
        """False only if the store does not show the cell as it is."""
        return self.state != "failed"


def mirror_cell(
    cell_dir: Path,
    *,
    tracking_uri: str | None = None,
    parent: str | None = None,
    trace: bool = False,
    own_files: Sequence[Path] = (),
    results_dir: Path = RESULTS,
    verify: bool = False,
    deadline_s: float = DEADLINE_S,
) -> MirrorResult:
    """Show a cell as one MLflow run: created, brought up to date, or left alone when nothing changed.

    tracking_uri: where to; by default as :func:`bench.tracking.store.choose_store` says. parent: name
    of the sweep that the cell belongs to, the run's parent in MLflow; by default the one it was
    mirrored under before. trace: show how each question was answered as a trace, too; a cell that was
    shown so stays shown so. own_files: where data with a source of their own lie, for the texts in the
    traces. verify: look into the store even if the cell's stamp says that nothing changed. deadline_s:
    after this many seconds the store is left alone.

    Whatever goes wrong is a logged warning and a result ``failed``, never an exception: a tracking
    store must not cost anybody a run.
    """
    uri = choose_store(tracking_uri, results_dir)
    if uri == OFF:
        return MirrorResult(cell_dir, "off", OFF)
    cell_dir = cell_dir.resolve()
    try:
        digest = content_digest(cell_dir)
        stamp = _read_stamp(cell_dir)
        if not verify and _stands(stamp, uri, digest, parent, trace):
            return MirrorResult(
                cell_dir, "unchanged", public_uri(uri), stamp.get("run_id"), stamp.get("experiment_id")
            )
        parent = parent or stamp.get("parent")
        trace = trace or bool(stamp.get("traces"))
        reply = _ask(
            {
                "kind": "cell",
                "cell_dir": str(cell_dir),
                "uri": uri,
                "artifact_root": artifact_root(uri, results_dir),
                "digest": digest,
                "parent": parent,
                "trace": trace,
                "own_files": [str(path.resolve()) for path in own_files],
            },
            deadline_s,
        )
        result = MirrorResult(
            cell_dir, reply["state"], public_uri(uri), reply["run_id"], reply["experiment_id"]
        )
        _write_stamp(cell_dir, result, digest, parent, trace)
        return result
    except (BenchError, OSError, ValueError) as error:
        message = scrub(str(error), uri)
        level = _level(error, uri, message)
        log.log(level, "%s is not shown in MLflow at %s: %s", cell_dir.name, public_uri(uri), message)
        return MirrorResult(cell_dir, "failed", public_uri(uri), message=message)


_warned: set[tuple[str, str]] = set()
"""Stores and what was wrong with them, as warned of by this process."""


def _level(error: Exception, uri: str, message: str) -> int:
    """A warning for the first cell that a store refuses for a reason; the same of the next ones is detail."""
    if isinstance(error, StoreSilentError):
        return logging.INFO
    told = (uri, message.partition(" (")[0])
    level = logging.INFO if told in _warned else logging.WARNING
    _warned.add(told)
    return level


def mirror_finished(cell_dir: Path, results_dir: Path) -> MirrorResult:
    """What a run does when a cell is done: mirror it into the store of its results folder."""
    return mirror_cell(cell_dir, results_dir=results_dir)


def mirror_results(
    results_dir: Path = RESULTS,
    *,
    tracking_uri: str | None = None,
    more: Sequence[Path] = (),
    trace: bool = False,
    own_files: Sequence[Path] = (),
    deadline_s: float = DEADLINE_S,
) -> Iterator[MirrorResult]:
    """Mirror every finished cell below ``results_dir``, looking into the store for each.

    trace, own_files: as for :func:`mirror_cell`. more: folders elsewhere (``bench run --out``) whose cells
    belong into the same store.
    Cells without a summary are left out: they are running, or will go on when their command is
    given again.
    """
    sweeps: dict[str, list[Path]] = {}
    for root in (results_dir, *more):
        for cell_dir in find_cells(root):
            if (cell_dir / SUMMARY_FILE).is_file():
                found = mirror_cell(
                    cell_dir,
                    tracking_uri=tracking_uri,
                    trace=trace,
                    own_files=own_files,
                    results_dir=results_dir,
                    verify=True,
                    deadline_s=deadline_s,
                )
                if parent := _read_stamp(cell_dir).get("parent"):
                    sweeps.setdefault(parent, []).append(cell_dir)
                yield found
    for name, cell_dirs in sweeps.items():
        mirror_sweep(name, cell_dirs, tracking_uri=tracking_uri, results_dir=results_dir)


def mirror_sweep(
    name: str,
    cell_dirs: Sequence[Path],
    *,
    tracking_uri: str | None = None,
    results_dir: Path = RESULTS,
    deadline_s: float = DEADLINE_S,
) -> bool:
    """Put the figures of a sweep into its parent run, once its cells are mirrored; False if that failed.

    name: as the cells' ``parent``. As with a cell, whatever goes wrong is a logged warning.
    """
    uri = choose_store(tracking_uri, results_dir)
    if uri == OFF:
        return True
    request: dict[str, JsonValue] = {
        "kind": "sweep",
        "name": name,
        "cell_dirs": [str(cell_dir.resolve()) for cell_dir in cell_dirs],
        "uri": uri,
        "artifact_root": artifact_root(uri, results_dir),
    }
    try:
        _ask(request, deadline_s)
    except (BenchError, OSError, ValueError) as error:
        message = scrub(str(error), uri)
        level = _level(error, uri, message)
        log.log(level, "the figures of sweep %r are not shown in MLflow: %s", name, message)
        return False
    return True


def remove_local_store(database: Path) -> None:
    """Delete a SQLite store and its artifacts, to make it anew; raises OSError if that is not allowed."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.rmtree(database.parent / ARTIFACT_FOLDER, ignore_errors=True)


def find_cells(results_dir: Path) -> Iterator[Path]:
    """Cell folders below (or at) ``results_dir``, sorted by path."""
    for folder, below, files in os.walk(results_dir):
        if CELL_FILE in files:
            below.clear()
            yield Path(folder)
        below[:] = sorted(n for n in below if n not in _NO_CELLS and not n.startswith("."))


class MirrorError(BenchError):
    """The store could not be brought up to date; the text says why and what to do."""


class StoreSilentError(MirrorError):
    """The store failed to answer a moment ago and was not asked again."""


def _read_stamp(cell_dir: Path) -> dict[str, JsonValue]:
    try:
        stamp = json.loads((cell_dir / STAMP_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(cell_dir: Path, result: MirrorResult, digest: str, parent: str | None, trace: bool) -> None:
    """Only saves time: a folder that cannot be written is mirrored all the same."""
    stamp = {
        "content": digest,
        "tracking_uri": result.tracking_uri,
        "run_id": result.run_id,
        "experiment_id": result.experiment_id,
        "parent": parent,
        "traces": trace,
    }
    try:
        write_json(cell_dir / STAMP_FILE, stamp)
    except OSError as error:
        log.debug("no stamp in %s: %s", cell_dir, error)


def _stands(stamp: dict[str, JsonValue], uri: str, digest: str, parent: str | None, trace: bool) -> bool:
    """Whether the stamp says that this store shows this content already."""
    if stamp.get("content") != digest or stamp.get("tracking_uri") != public_uri(uri):
        return False
    if (parent is not None and stamp.get("parent") != parent) or (trace and not stamp.get("traces")):
        return False
    database = sqlite_path(uri)
    return database is None or _has_run(database, stamp.get("run_id"))


def _has_run(database: Path, run_id: JsonValue) -> bool:
    """Whether a SQLite store holds the run, read without MLflow; False (look closer) when in doubt."""
    import sqlite3

    try:
        connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            query = "SELECT 1 FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"
            return connection.execute(query, (run_id,)).fetchone() is not None
        finally:
            connection.close()
    except sqlite3.Error:
        return False


# --- the worker process ---------------------------------------------------------------------------


class _Worker:
    """The process that imports MLflow, started on first use and kept for the next cells."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.opened: dict[str, tuple[int, int] | None] = {}
        """Store -> the file it is in."""
        self._noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.tracking.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env={**_PATIENCE, **os.environ, **_QUIET},
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: dict[str, JsonValue], deadline_s: float) -> dict[str, JsonValue]:
        """The worker's reply; raises MirrorError when it is late or the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._replies.get(timeout=deadline_s)
        except queue.Empty:
            raise MirrorError(f"no answer within {deadline_s:g} s. {_REMEDY}") from None
        except BrokenPipeError:
            line = ""
        if not line:
            raise MirrorError(f"MLflow ended unexpectedly ({self._last_noise()}). {_REMEDY}")
        reply = json.loads(line)
        assert isinstance(reply, dict)
        return reply

    def close(self) -> None:
        """End the process: at once if it is busy, politely if it is idle."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._noise.close()

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def _last_noise(self) -> str:
        if self._noise.closed:
            return "the command is at its end"
        self._noise.seek(0)
        lines = self._noise.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


_lock = threading.Lock()
_worker: _Worker | None = None
_silent_since: dict[str, tuple[float, str]] = {}
"""Store (without credentials) -> when it last failed to answer, and why."""


def _ask(request: dict[str, JsonValue], deadline_s: float) -> dict[str, JsonValue]:
    """The worker's reply to a request, or a MirrorError within the deadline."""
    global _worker
    uri = str(request["uri"])
    with _lock:
        since, why = _silent_since.get(uri, (-REST_S, ""))
        if time.monotonic() - since < REST_S:
            raise StoreSilentError(why)
        if reason := unreachable_reason(uri):
            raise _silent(uri, f"the tracking server does not answer ({reason}). {_REMEDY}")
        file = _file_identity(uri)
        if _worker is not None and _worker.opened.get(uri, file) != file:
            _close_worker()  # the database was deleted or replaced: it still has the old one open
        if _worker is None or _worker.owner != os.getpid():  # a forked child starts its own
            _worker = _Worker()
        worker = _worker
        try:
            reply = worker.ask(request, deadline_s)
        except BaseException as error:
            worker.kill()
            _worker = None
            if isinstance(error, MirrorError):
                raise _silent(uri, str(error)) from None
            raise
        worker.opened[uri] = _file_identity(uri)
        if "error" not in reply:
            return reply
        if reply["kind"] == "cell":
            raise MirrorError(str(reply["error"]))
        raise _explain(str(reply["error"]), uri)


def _file_identity(uri: str) -> tuple[int, int] | None:
    """Device and inode of a SQLite store's file; None if there is none."""
    database = sqlite_path(uri)
    try:
        found = database.stat() if database else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _silent(uri: str, why: str) -> MirrorError:
    _silent_since[uri] = (time.monotonic(), why)
    return MirrorError(why)


def _close_worker() -> None:
    global _worker
    if _worker is not None and _worker.owner == os.getpid():
        _worker.close()
        _worker = None


_REBUILD = "make the store anew from the records: bench track sync --rebuild"
_EXPLAINED: tuple[tuple[str, str], ...] = (
    ("MovedStoreError", f"the results folder was moved or copied; {_REBUILD}"),
    ("out-of-date database schema", f"the store was made by another version of MLflow; {_REBUILD}"),
    ("Can't locate revision", f"the store was made by a newer MLflow; update it, or {_REBUILD}"),
    ("file is not a database", f"the store is damaged; {_REBUILD}"),
    ("malformed", f"the store is damaged; {_REBUILD}"),
    (
        "maintenance mode",
        "MLflow no longer writes folders; name a database: BENCH_TRACKING_URI=sqlite:///PATH",
    ),
    ("database is locked", f"another program holds the store. {_REMEDY}"),
    ("disk is full", f"the disk is full; make room. {_REMEDY}"),
    ("No space left", f"the disk is full; make room. {_REMEDY}"),
    ("readonly database", f"the store may not be written; check its permissions. {_REMEDY}"),
    ("unable to open database file", f"the store may not be opened; check its permissions. {_REMEDY}"),
    ("Permission denied", f"the store may not be written; check its permissions. {_REMEDY}"),
)
_UNANSWERED = ("Max retries exceeded", "timed out", "Timeout", "Connection refused", "Connection aborted")


def _explain(error: str, uri: str) -> MirrorError:
    """The error that MLflow raised, with what to do about it."""
    short = error if len(error) <= 300 else error[:299] + "…"
    for sign, advice in _EXPLAINED:
        if sign in error:
            return MirrorError(f"{advice} ({short})")
    if is_server(uri) and any(sign in error for sign in _UNANSWERED):
        return _silent(uri, f"the tracking server stopped answering ({short}). {_REMEDY}")
    return MirrorError(f"{short}. {_REMEDY}")


atexit.register(_close_worker)  # now, not on first use: whoever waits for the worker at exit goes before
