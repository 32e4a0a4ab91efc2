"""A tracking server or store that is gone, foreign or behind the clock."""

from __future__ import annotations

import http.server
import signal
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench.cell import Cell
from bench.session import Session
from bench.tracking import local_store, mirror_cell
from bench.tracking import mirror as mirror_module
from bench.tracking.mirror import STAMP_FILE
from bench.tracking.run_content import content_digest, read_run
from bench.tracking.store import artifact_root
from bench.tracking.worker import Mirror, Request
from tests.bench.test_tracking import finish, make_cell, record, runs_of
from tests.stand_ins import WordModels, examples, stand_in_cell


class StandInSession(Session):
    def _models(self, cell: Cell) -> Any:
        return WordModels()


def test_a_run_is_finished_although_its_tracking_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("BENCH_TRACKING_URI", uri)
    cell = stand_in_cell(examples(3))
    before = signal.getsignal(signal.SIGTERM)
    session = StandInSession(tmp_path)
    result = session.run(cell)
    session.close()
    assert result.summary["n"] == 3 and result.summary["n_failed"] == 0
    assert "is not shown in MLflow" in caplog.text and "bench track sync" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder of its own, its store chosen by nobody and asked before by nobody."""
    monkeypatch.delenv("BENCH_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(mirror_module, "_silent_since", {})
    return tmp_path


def test_a_store_of_another_schema_is_a_warning_with_the_way_out(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cell = make_cell(store, dataset="schema")
    assert mirror_cell(cell, results_dir=store).state == "created"
    with sqlite3.connect(store / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    mirror_module._close_worker()
    (cell / STAMP_FILE).unlink()
    result = mirror_cell(cell, results_dir=store)
    assert not result.ok and "made by another version of MLflow" in result.message
    assert "bench track sync --rebuild" in caplog.text


def test_a_server_that_is_no_tracking_server_is_a_warning(store: Path) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>Welcome to the printer</html>")

        do_POST = do_GET

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_address[1]}"
        result = mirror_cell(make_cell(store), tracking_uri=uri, deadline_s=60)
        server.shutdown()
    assert not result.ok and "bench track sync" in result.message


def test_a_clock_that_jumps_back_does_not_bring_old_scores_back(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow shows the value with the latest time, which was once that of the mirror's clock."""
    cell = make_cell(store, dataset="clock")
    mirror = Mirror(local_store(store), artifact_root(local_store(store), store))

    def write(f1: float, clock_s: float) -> float:
        finish(cell, [record(i, f1) for i in range(6)])
        monkeypatch.setattr(time, "time", lambda: clock_s)
        digest = content_digest(cell)
        mirror.write(
            Request(
                cell_dir=str(cell),
                uri=local_store(store),
                artifact_root=artifact_root(local_store(store), store),
                digest=digest,
                parent=None,
                trace=False,
                own_files=[],
            ),
            read_run(cell),
        )
        (run,) = runs_of(store, "clock")
        return float(run.data.metrics["f1"])

    monkeypatch.chdir(Path.cwd())
    assert write(1.0, 3e9) == 1.0
    assert write(0.5, 3e9) == 0.5
    assert write(0.25, 1e9) == 0.25, "the clock was set back by decades"
    assert write(0.75, 1e9) == 0.75
