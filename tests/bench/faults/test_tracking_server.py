"""A tracking server or store that is gone, foreign or behind the clock."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from bench.tracking.hooks import MlflowHooks
from tests.bench.tracking.test_tracking import make_cell, show
from tests.servers import free_port
from tests.stand_ins import StandInSession, examples, stand_in_cell


def test_a_run_is_finished_although_its_tracking_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BENCH_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    cell = stand_in_cell(examples(3))
    before = signal.getsignal(signal.SIGTERM)
    session = StandInSession(tmp_path, hooks=[MlflowHooks(tmp_path)])
    result = session.run(cell)
    session.close()
    assert result.summary.n == 3 and result.summary.n_failed == 0
    assert "1 cell(s)" in caplog.text and "bench ui" in caplog.text
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
    show(store, make_cell(store, dataset="schema"))
    with sqlite3.connect(store / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    hooks = MlflowHooks(store)
    hooks.queue(make_cell(store, dataset="schema", k=2), None)
    hooks.close()
    assert "made by another version of MLflow" in caplog.text
    assert "bench ui --rebuild" in caplog.text
