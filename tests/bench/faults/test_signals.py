"""Runs that are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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
    def start(folder: Path, on_interrupt: Any) -> subprocess.Popen[str]:
        folder.mkdir()
        return subprocess.Popen(
            [sys.executable, "-c", TERMINATED_RUN, str(folder)],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, on_interrupt),
        )

    ways = {
        "terminated": (signal.SIGTERM, signal.default_int_handler),
        "interrupted": (signal.SIGINT, signal.default_int_handler),
        "in_the_background": (signal.SIGTERM, signal.SIG_IGN),  # it went on for ever
    }
    started = {name: start(tmp_path / name, on_interrupt) for name, (_, on_interrupt) in ways.items()}
    for name, process in started.items():
        while not (tmp_path / name / "running").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        process.send_signal(ways[name][0])
        message = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "Every finished question is kept" in message and "Traceback" not in message
