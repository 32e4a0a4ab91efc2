"""Runs that are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.faults.runs import REPOSITORY

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
