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

from bench.run.cell import Cell
from bench.run.session import Session
from bench.tracking.hooks import MlflowHooks
from bench.tracking.sync import StoreError, sync
from tests.bench.tracking.test_tracking import finish, make_cell, record, runs_of, show
from tests.stand_ins import WordModels, examples, stand_in_cell


class StandInSession(Session):
    def models(self, cell: Cell) -> Any:
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
    session = StandInSession(tmp_path, hooks=[MlflowHooks(tmp_path)])
    result = session.run(cell)
    session.close()
    assert result.summary.n == 3 and result.summary.n_failed == 0
    assert "does not show 1 cell(s)" in caplog.text and "bench ui" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder of its own, its store chosen by nobody."""
    monkeypatch.delenv("BENCH_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_a_store_of_another_schema_is_a_warning_with_the_way_out(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    show(make_cell(store, dataset="schema"), store)
    with sqlite3.connect(store / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    hooks = MlflowHooks(store)
    hooks.queue(make_cell(store, dataset="schema", k=2), None)
    hooks.close()
    assert "made by another version of MLflow" in caplog.text
    assert "bench ui --rebuild" in caplog.text


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
        with pytest.raises(StoreError, match="bench ui"):
            list(sync(store, [make_cell(store)], uri=uri))
        server.shutdown()


def test_a_clock_that_jumps_back_does_not_bring_old_scores_back(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow shows the value with the latest time, which was once that of the mirror's clock."""
    cell = make_cell(store, dataset="clock")

    def write(f1: float, clock_s: float) -> float:
        finish(cell, [record(i, f1) for i in range(6)])
        monkeypatch.setattr(time, "time", lambda: clock_s)
        show(cell, store)
        (run,) = runs_of(store, "clock")
        return float(run.data.metrics["f1"])

    assert write(1.0, 3e9) == 1.0
    assert write(0.5, 3e9) == 0.5
    assert write(0.25, 1e9) == 0.25, "the clock was set back by decades"
    assert write(0.75, 1e9) == 0.75
