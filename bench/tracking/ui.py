"""MLflow's web interface over a local store: start it, wait for it, and stop it with all its processes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

from bench.errors import BenchError, ConfigError
from bench.results.finished import ARTIFACT_FOLDER
from bench.tracking.content import EXPERIMENT_PREFIX
from bench.tracking.store import QUIET, advice_on
from bench.tracking.ui_view import CELLS_TAG, CURVES_TAG, view_url

HOST = "127.0.0.1"
START_DEADLINE_S = 180.0
"""Maximum seconds to wait for the first answer; 4 to 25 are usual."""
STOP_DEADLINE_S = 4.0
"""Seconds before processes that do not end are killed."""

_SETTINGS = {
    **QUIET,
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves eight idle processes
    # MLflow's default also answers to "10.*", which 10.attacker.example is too (DNS rebinding).
    "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join((HOST, f"{HOST}:*", "localhost", "localhost:*")),
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


def require_port(port: int) -> None:
    """Raise ConfigError if the port cannot be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:  # another program is listening there, or it is the administrator's
            raise ConfigError(f"--port {port}: {error.strerror}. Choose one of at least 1024.") from error


def serve(database: Path, port: int, on_up: Callable[[str], None]) -> None:
    """Serve a store on this machine until Ctrl-C, SIGTERM or a closed terminal; on_up: called with its URL.

    These signals set an event, since an exception right after the server's start could leave it running.
    Raises BenchError with MLflow's last output if it does not start or ends on its own.
    """
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    with tempfile.TemporaryFile() as output:
        process = _start(database, port, output)
        try:
            give_up, is_up = time.monotonic() + START_DEADLINE_S, False
            while not stop.wait(0.2):
                if process.poll() is not None:
                    raise BenchError(_failure("MLflow ended on its own", output))
                if not is_up and time.monotonic() > give_up:
                    raise BenchError(_failure(f"MLflow did not answer within {START_DEADLINE_S:g} s", output))
                if not is_up and (is_up := _answers(port)):
                    on_up(f"http://{HOST}:{port}")
        finally:
            _end(process)
            for number, handler in before.items():
                signal.signal(number, handler)


def experiment_urls(database: Path, url: str) -> dict[str, tuple[str, str]]:
    """Experiment name -> URLs of its runs and of its curves, "" for none; the newest run's is last."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
        found = connection.execute(_EXPERIMENTS, (CURVES_TAG, f"{EXPERIMENT_PREFIX}/%")).fetchall()
    return {
        name: (view_url(url, id_, CELLS_TAG), view_url(url, id_, CURVES_TAG) if has_curves else "")
        for name, id_, has_curves in found
    }


def _start(database: Path, port: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """``mlflow server`` in its own process group."""
    # MLflow's settings in the environment could change what is served and to whom.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "_MLFLOW"))}
    arguments = ["--host", HOST, "--port", str(port), "--workers", "1", "--no-serve-artifacts"]
    arguments += ["--gunicorn-opts", _GUNICORN, "--backend-store-uri", f"sqlite:///{database}"]
    arguments += ["--default-artifact-root", (database.parent / ARTIFACT_FOLDER).as_uri()]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mlflow", "server", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=database.parent,
        env={**environment, **_SETTINGS},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End every process of the server's group; harmless if they have ended."""
    give_up = time.monotonic() + STOP_DEADLINE_S
    number = signal.SIGTERM
    try:
        while True:
            os.killpg(process.pid, number)
            process.poll()
            time.sleep(0.05)
            number = signal.SIGTERM if time.monotonic() < give_up else signal.SIGKILL
    except (ProcessLookupError, PermissionError):  # no process is left; macOS: PermissionError for zombies
        process.wait()


def _answers(port: int) -> bool:
    with closing(http.client.HTTPConnection(HOST, port, timeout=2)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def _failure(what: str, output: IO[bytes]) -> str:
    output.seek(0)
    text = output.read().decode("utf-8", "replace")
    if advice := advice_on(text):
        return f"{what}: {advice}"
    tail = "\n".join(f"  {line}" for line in text.splitlines()[-8:])
    return f"{what}. Its last output:\n{tail or '  (nothing)'}"
