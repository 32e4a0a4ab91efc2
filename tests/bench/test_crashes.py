"""Runs killed with SIGKILL go on to what an undisturbed run gives (all commands: benchmarks/crashes.py)."""

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

REPOSITORY = Path(__file__).parents[2]


def test_a_run_killed_at_any_step_goes_on_to_the_same_records_indexes_and_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.crash_driver", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["different"] == []
    # Every kind of step was met: searching and indexing, records, indexes, atomic files.
    assert {"generate", "write", "fsync", "write_bytes", "rename", "replace"} <= found["steps"].keys()
    assert sum(found["steps"].values()) > 40


MIRRORED_RUN = """
import sys
from pathlib import Path
import bench.cell_folder
from bench.session import Session
from bench.tracking import mirror
from tests.stand_ins import WordModels, examples, stand_in_cell
bench.cell_folder.environment = lambda: {"git_commit": "0"}
class StandInSession(Session):
    def _models(self, cell): return WordModels()
class Told(mirror._Worker):
    def ask(self, request, deadline_s):
        print(self._process.pid, flush=True)
        return super().ask(request, deadline_s)
mirror._Worker = Told
StandInSession(Path(sys.argv[1])).run(stand_in_cell(examples(4)))
"""


def mirrored(database: Path) -> list[Any]:
    """What MLflow shows of the runs that are not deleted, without ids and times."""
    with sqlite3.connect(database) as found:
        runs = found.execute("SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active'")
        return [
            (
                name,
                status,
                found.execute(
                    "SELECT key, value FROM latest_metrics WHERE run_uuid = ? AND key != 'wall_s' "
                    "AND key NOT LIKE 'system/%' ORDER BY key",
                    (run,),
                ).fetchall(),
                found.execute(
                    "SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", (run,)
                ).fetchall(),
                found.execute(
                    "SELECT value FROM tags WHERE run_uuid = ? AND key = 'bench.state'", (run,)
                ).fetchall(),
            )
            for run, name, status in runs.fetchall()
        ]


def test_a_run_killed_while_mlflow_is_told_shows_once_and_whole(tmp_path: Path) -> None:
    def start(folder: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "BENCH_"))}
        command = [sys.executable, "-c", MIRRORED_RUN, str(tmp_path / folder)]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment, text=True, **output)

    for delay_s, worker_too in ((0.3, True), (2.5, False)):
        process = start("cut")
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        time.sleep(delay_s)  # whatever moment it meets: nothing below depends on it
        process.kill()
        if worker_too:
            os.kill(worker, signal.SIGKILL)
        process.wait(timeout=60)
    for folder in ("cut", "whole"):
        process = start(folder)
        process.communicate(timeout=120)
        assert process.returncode == 0
    shown = mirrored(tmp_path / "cut" / "mlflow.db")
    assert len(shown) == 1 and shown == mirrored(tmp_path / "whole" / "mlflow.db")
