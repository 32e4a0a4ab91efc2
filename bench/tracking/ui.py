"""MLflow's web interface over a local store: start it, wait for it, and stop it with all its processes."""

from __future__ import annotations

import errno
import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

from bench.errors import BenchError, ConfigError
from bench.results.finished import ARTIFACT_FOLDER
from bench.tracking.content import EXPERIMENT_PREFIX
from bench.tracking.store import advice_on
from bench.tracking.ui_view import CELLS_TAG, CURVES_TAG, view_url

HOST = "127.0.0.1"
START_DEADLINE_S = 180.0
"""Maximum seconds to wait for the first answer; 4 to 25 are usual."""
STOP_DEADLINE_S = 4.0
"""Seconds before processes that do not end are killed."""

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves eight idle processes
    "GIT_PYTHON_REFRESH": "quiet",
}

_GUNICORN = "--threads 8 --timeout 120 --graceful-timeout 1 --no-control-socket"
"""Under gunicorn MLflow serves only its tracking UI. Its default server adds an assistant that runs shell
commands for anyone who reaches the port: on a shared machine, any of its users."""

_EXPERIMENTS = """
SELECT e.name, e.experiment_id, EXISTS (
  SELECT 1 FROM experiment_tags AS tag WHERE tag.experiment_id = e.experiment_id AND tag.key = ?)
FROM experiments AS e LEFT JOIN runs AS r ON r.experiment_id = e.experiment_id
WHERE e.name LIKE ? AND e.lifecycle_stage = 'active'
GROUP BY e.experiment_id ORDER BY max(r.start_time), e.name
"""


def nothing_to_show(results_dir: Path) -> BenchError:
    """The error for a results folder without a finished cell and without a store."""
    where = f" --results {results_dir}" if results_dir != Path("results") else ""
    return BenchError(
        f"There is nothing to show: {results_dir} has no MLflow store and no finished cell. Run first, for "
        f"example: bench run --method bm25 --dataset qasper{where}"
    )


def require_port(port: int) -> None:
    """Raise ConfigError, naming a free port, if this one cannot be used."""
    fault = _bind_fault(port)
    if fault is None:
        return
    if fault != errno.EADDRINUSE:
        raise ConfigError(f"--port {port}: {os.strerror(fault)}. Choose a port of at least 1024.")
    free = next((p for p in range(port + 1, min(port + 100, 65536)) if _bind_fault(p) is None), None)
    advice = f" Try: --port {free}" if free else " Choose another --port."
    raise ConfigError(f"--port {port}: another program is listening there (perhaps bench ui).{advice}")


@dataclass
class StopRequest:
    """Whether the user or the system has asked the server to stop."""

    requested: bool = False


class UiServer:
    """``mlflow server`` over one database, in its own process group; a context manager."""

    def __init__(self, database: Path, port: int) -> None:
        """Start the server; :meth:`wait_until_up` waits until it answers."""
        self.url = f"http://{HOST}:{port}"
        self._address, self._database = (HOST, port), database
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the server stops
        artifacts = (database.parent / ARTIFACT_FOLDER).as_uri()
        arguments = ["--host", HOST, "--port", str(port), "--workers", "1", "--no-serve-artifacts"]
        arguments += ["--gunicorn-opts", _GUNICORN]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mlflow", "server", *arguments]
            + ["--backend-store-uri", f"sqlite:///{database}", "--default-artifact-root", artifacts],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=database.parent,
            env={**_without_mlflow(os.environ), **_SETTINGS},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_until_up(self, stop: StopRequest) -> bool:
        """True once the server answers, False if asked to stop; raises BenchError if it does not start."""
        give_up = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < give_up:
            if stop.requested:
                return False
            if self.process.poll() is not None:
                raise BenchError(self._failure("MLflow did not start"))
            if self._answers():
                return True
            time.sleep(0.2)
        raise BenchError(self._failure(f"MLflow did not answer within {START_DEADLINE_S:g} s"))

    def experiment_urls(self) -> dict[str, tuple[str, str]]:
        """Experiment name -> URLs of its runs and of its curves, "" for none; the newest run's is last."""
        with closing(
            sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=2)
        ) as connection:
            found = connection.execute(_EXPERIMENTS, (CURVES_TAG, f"{EXPERIMENT_PREFIX}/%")).fetchall()
        return {
            name: (
                view_url(self.url, str(number), CELLS_TAG),
                view_url(self.url, str(number), CURVES_TAG) if has_curves else "",
            )
            for name, number, has_curves in found
        }

    def serve(self, stop: StopRequest) -> None:
        """Return when asked to stop; raises BenchError if the server ends on its own."""
        while not stop.requested:
            if self.process.poll() is not None:
                raise BenchError(self._failure("MLflow ended on its own"))
            time.sleep(0.2)

    def stop(self) -> None:
        """End every process of the server's group; harmless if they have ended."""
        self._signal(signal.SIGTERM)
        give_up = time.monotonic() + STOP_DEADLINE_S
        while time.monotonic() < give_up:
            self.process.poll()
            if not self._signal(0):
                break
            time.sleep(0.05)
        else:
            self._signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def _signal(self, number: int) -> bool:
        """Signal the group; False once it has no process."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS: PermissionError for a group of zombies
            return False
        return True

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(*self._address, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _failure(self, what: str) -> str:
        self._log.seek(0)
        output = self._log.read().decode("utf-8", "replace")
        if advice := advice_on(output):
            return f"{what}: {advice}"
        tail = "\n".join(f"  {line}" for line in output.splitlines()[-8:])
        return f"{what}. Its last output:\n{tail or '  (nothing)'}"


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Inside the block, Ctrl-C, SIGTERM and a closed terminal set a flag instead of ending the process.

    A flag, since an exception right after the server's start could leave the server running.
    """
    request = StopRequest()

    def set_flag(number: int, frame: FrameType | None) -> None:
        request.requested = True

    before = {n: signal.signal(n, set_flag) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _without_mlflow(environment: os._Environ[str]) -> dict[str, str]:
    """The environment without MLflow's settings, which could change what is served and to whom."""
    return {name: value for name, value in environment.items() if not name.startswith(("MLFLOW_", "_MLFLOW"))}


def _bind_fault(port: int) -> int | None:
    """The errno of an attempt to listen on the port; None if it is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.errno
    return None
