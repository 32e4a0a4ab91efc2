"""A clock that jumps, and runs that are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import bench.run.cell_folder
from bench.errors import BenchError
from bench.results.records import Record, read_records
from bench.run.hooks import RunHooks
from tests.bench.faults.runs import REPOSITORY, rows, run
from tests.stand_ins import examples, stand_in_cell


def test_a_clock_that_jumps_back_changes_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[dict[str, Any]]
) -> None:
    moments = iter(range(2_000_000_000, 0, -86_400))

    class Backwards(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(next(moments), UTC)

    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    monkeypatch.setattr(bench.run.cell_folder, "datetime", Backwards)

    class StopAtTwo(RunHooks):
        answered = 0

        def on_record(self, record: Record) -> None:
            self.answered += 1
            if self.answered == 2:
                raise BenchError("stopped")

    with pytest.raises(BenchError, match="stopped"):
        run(stand_in_cell(examples(6)), tmp_path, hooks=[StopAtTwo()], in_flight=1, timeout_s=60)
    assert run(stand_in_cell(examples(6)), tmp_path, timeout_s=60).answered == 4
    assert rows(tmp_path) == undisturbed
    records = read_records(tmp_path / "cell" / "records.jsonl")
    assert all(0 <= record.wall_s < 60 for record in records), "seconds are of a clock that only goes forward"


TERMINATED_RUN = """
import asyncio, sys, time
from pathlib import Path
import bench.run.session
from bench.cli.main import main
def run_group(*arguments, **options):
    async def forever():
        Path(sys.argv[1], "running").touch()
        await asyncio.sleep(600)
    asyncio.run(forever())
bench.run.session.run_group = run_group
main(["run", "--method", "bm25", "--dataset", "qasper", "--limit=1", "--no-track", "--results", sys.argv[1]])
"""


def test_a_terminated_command_says_where_its_records_are(tmp_path: Path) -> None:
    def start(folder: Path) -> subprocess.Popen[str]:
        folder.mkdir()
        return subprocess.Popen(
            [sys.executable, "-c", TERMINATED_RUN, str(folder)],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    started = {how: start(tmp_path / how.name) for how in (signal.SIGTERM, signal.SIGINT)}
    for how, process in started.items():
        while not (tmp_path / how.name / "running").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        process.send_signal(how)
        message = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "Every finished question is recorded" in message and "Traceback" not in message
