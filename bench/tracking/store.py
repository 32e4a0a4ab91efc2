"""Which tracking store is used, where its artifacts are, and how to print its address without secrets."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from bench.errors import BenchError
from bench.results.finished import ARTIFACT_FOLDER
from bench.run.redaction import HIDDEN, redacted

DATABASE = "mlflow.db"
OFF = "off"
"""The tracking URI that switches mirroring off (``BENCH_TRACKING_URI=off``)."""

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "GIT_PYTHON_REFRESH": "quiet"}
"""Environment of MLflow wherever it runs here: it reports to nobody, and does not miss git."""

REMEDY = "The records are safe; show them later with: bench ui"
"""Advice in messages about a store that accepts no cells."""
FAILED = "failed "
"""Start of the line that a sync prints for a failure."""

_REBUILD = "rebuild the store from the records: bench ui --rebuild"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("MovedStoreError", f"the results folder was moved or copied; {_REBUILD}"),
    ("out-of-date database schema", f"the store was made by another version of MLflow; {_REBUILD}"),
    ("Can't locate revision", f"the store was made by a newer MLflow; update it, or {_REBUILD}"),
    ("file is not a database", f"the store is damaged; {_REBUILD}"),
    ("malformed", f"the store is damaged; {_REBUILD}"),
    ("maintenance mode", "MLflow writes no folders now; name a database: BENCH_TRACKING_URI=sqlite:///PATH"),
    ("database is locked", f"another program has locked the store. {REMEDY}"),
    ("disk is full", f"the disk is full; make room. {REMEDY}"),
    ("No space left", f"the disk is full; make room. {REMEDY}"),
    ("readonly database", f"the store is not writable; check its permissions. {REMEDY}"),
    ("unable to open database file", f"the store cannot be opened; check its permissions. {REMEDY}"),
    ("Permission denied", f"the store is not writable; check its permissions. {REMEDY}"),
)
"""Part of an error message of MLflow or its layers -> advice."""


def local_store(results_dir: Path) -> str:
    """The SQLite store that belongs to a results folder, as an absolute ``sqlite:///`` URI."""
    return f"sqlite:///{results_dir.resolve() / DATABASE}"


def choose_store(results_dir: Path) -> str:
    """``BENCH_TRACKING_URI``, else ``MLFLOW_TRACKING_URI``, else the local store.

    A relative SQLite path becomes absolute, so that the working directory does not matter.
    """
    uri = os.environ.get("BENCH_TRACKING_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return local_store(results_dir)
    path = sqlite_path(uri)
    return f"sqlite:///{path}" if path else uri


def store_to_show(results_dir: Path) -> str:
    """The store that runs are mirrored to; the local one where mirroring is off."""
    uri = choose_store(results_dir)
    return local_store(results_dir) if uri == OFF else uri


def sqlite_path(uri: str) -> Path | None:
    """The absolute database file of a ``sqlite:///`` URI; None for any other store."""
    if not uri.startswith("sqlite:///") or uri.startswith("sqlite:///:"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).resolve()


def is_server(uri: str) -> bool:
    """Whether the store is a tracking server reached over HTTP."""
    return uri.startswith(("http://", "https://"))


def is_shown(uri: str, digest: str) -> bool:
    """Whether a local store that was not moved has a run with this content; False in doubt: a sync checks it.

    Reads the database without MLflow, whose import takes seconds: for most commands nothing has changed.
    """
    database = sqlite_path(uri)
    if database is None:
        return False
    query = (
        "SELECT 1 FROM tags JOIN runs USING (run_uuid) JOIN experiments USING (experiment_id) "
        "WHERE tags.key = 'bench.content' AND tags.value = ? AND runs.lifecycle_stage = 'active' "
        "AND instr(experiments.artifact_location, ?) = 1"
    )
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
            return connection.execute(query, (digest, artifact_root(uri, database))).fetchone() is not None
    except sqlite3.Error:
        return False


def advice_on(error: str) -> str | None:
    """What is wrong with a store and what to do, from MLflow's error message; None if unknown."""
    return next((advice for sign, advice in _ADVICE if sign in error), None)


def artifact_root(uri: str, results_dir: Path) -> str | None:
    """Folder of a store's artifacts, as a file URI; None if the tracking server decides.

    Next to the database for SQLite, in the results folder for another database. It is always set
    explicitly, since MLflow's default is ``./mlruns`` in the working directory.
    """
    if "://" not in uri or is_server(uri):
        return None
    path = sqlite_path(uri)
    folder = path.parent if path else results_dir.resolve()
    return (folder / ARTIFACT_FOLDER).as_uri()


def public_uri(uri: str) -> str:
    """The address without user, password, query and fragment, safe to print and store."""
    if "://" not in uri or uri.startswith("sqlite:"):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "an address that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def scrub(text: str, uri: str) -> str:
    """``text`` without the credentials in ``uri`` or the environment."""
    text, password = text.replace(uri, public_uri(uri)), uri.rpartition("@")[0].rpartition(":")[2]
    return redacted(text.replace(password, HIDDEN) if len(password) >= 4 else text)


def remove_local_store(database: Path) -> None:
    """Delete a SQLite store and its artifacts; raises BenchError if that is not permitted."""
    try:
        for suffix in ("", "-wal", "-shm", "-journal"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise BenchError(f"Cannot delete {database}: {error.strerror or error}.") from error
    shutil.rmtree(database.parent / ARTIFACT_FOLDER, ignore_errors=True)
