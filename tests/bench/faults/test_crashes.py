"""Runs killed with SIGKILL go on to what an undisturbed run gives (all commands: performance/crashes.py)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bench.run.cell_folder
from bench.tracking.store import local_store
from bench.tracking.sync import sync
from tests.bench.faults.runs import REPOSITORY
from tests.stand_ins import StandInSession, examples, stand_in_cell


@pytest.mark.slow
def test_a_run_killed_at_any_step_goes_on_to_the_same_records_indexes_and_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.faults.crash_driver", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["different"] == []
    # Every kind of step was met: searching and indexing, records, indexes, atomic files.
    assert {"generate", "write", "fsync", "write_bytes", "rename", "replace"} <= report["steps"].keys()
    assert sum(report["steps"].values()) > 40


MIRRORED_RUN = """
import subprocess
import sys
sys.modules.update(sklearn=None, pandas=None)  # NLTK imports them if it can, which takes seconds
from pathlib import Path
import bench.run.cell_folder
from bench.tracking import hooks
from tests.stand_ins import StandInSession, examples, stand_in_cell
bench.run.cell_folder.environment = lambda: {"git_commit": "0"}
class Told(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
subprocess.Popen = Told
results = Path(sys.argv[1])
StandInSession(results, hooks=[hooks.MlflowHooks(results)]).run(stand_in_cell(examples(4)))
"""


def mirrored(database: Path) -> list[Any]:
    """What MLflow shows of the runs that are not deleted, without ids and times."""
    queries = (
        "SELECT key, value FROM latest_metrics WHERE run_uuid = ? AND key != 'wall_s' ORDER BY key",
        "SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key",
        "SELECT value FROM tags WHERE run_uuid = ? AND key = 'bench.cell_id'",
    )
    with sqlite3.connect(database) as connection:
        runs = connection.execute("SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active'")
        return [
            (name, status, [connection.execute(query, (run,)).fetchall() for query in queries])
            for run, name, status in runs.fetchall()
        ]


def test_a_run_killed_while_mirrored_shows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "BENCH_"))}
    for delay_s, sync_too in ((2.0, True), (1.0, False)):
        process = subprocess.Popen(
            [sys.executable, "-c", MIRRORED_RUN, str(tmp_path / "cut")],
            cwd=REPOSITORY, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        syncing = int(process.stdout.readline())
        time.sleep(delay_s)  # whatever moment it meets: nothing below depends on it
        process.kill()
        if sync_too:
            os.kill(syncing, signal.SIGKILL)
        process.wait(timeout=60)
    monkeypatch.setattr(bench.run.cell_folder, "environment", lambda: {"git_commit": "0"})
    for folder in (tmp_path / "cut", tmp_path / "whole"):
        result = StandInSession(folder).run(stand_in_cell(examples(4)))
        assert list(sync(folder, [result.folder], uri=local_store(folder))) == []
    shown = mirrored(tmp_path / "cut" / "mlflow.db")
    assert len(shown) == 1 and shown == mirrored(tmp_path / "whole" / "mlflow.db")
