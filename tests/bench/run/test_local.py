"""Several processes on this machine: the records of one, whoever is killed, and nobody in another's way."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from bench.errors import ConfigError
from bench.results.records import RecordStore
from bench.run import local as local_workers
from bench.run.cell import CellRequest
from bench.run.executors import open_executor
from bench.run.hooks import HelperProgress
from bench.run.local import LocalWorkers
from bench.run.runner import Asking
from bench.run.session import Group, Session
from bench.sweeps.grid import plan_sweep
from tests.bench.faults.runs import REPOSITORY, records_of
from tests.stand_ins import WordModels

SWEEP = ["sweep", "--method", "bm25", "--dataset", "hotpotqa", "--limit", "2", "--no-track"]
LIGHT = "import sys; sys.modules.update(sklearn=None, pandas=None)\n"
"""Two packages that NLTK imports if it can: seconds for each process, and no score needs them."""


@pytest.fixture(autouse=True)
def stand_in_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all processes that a test starts, and in its own, the model costs nothing."""
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"{LIGHT}import bench.run.session\nfrom tests.stand_ins import WordModels\n"
        "bench.run.session.Session.models = lambda self, cell: WordModels()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{REPOSITORY}")
    monkeypatch.setattr(Session, "models", lambda self, cell: WordModels())


def two_groups(results: Path) -> list[Group]:
    cells = plan_sweep(CellRequest("bm25", "hotpotqa", limit=2), {"b": [0.5, 0.75]})
    return [[replace(point.cell, out=point.cell.folder(results))] for point in cells]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finished(group: Group) -> bool:
    return all((cell.folder(Path()) / "summary.json").exists() for cell in group)


def test_a_sweep_leaves_cells_of_another_run_for_later(tmp_path: Path) -> None:
    """It once waited for the first cell of another run while all others were free."""
    first, second = two_groups(tmp_path)
    command = [sys.executable, "-m", "bench.cli.main", *SWEEP, "--results", str(tmp_path), "b=0.5,0.75"]
    pipe = subprocess.PIPE
    with RecordStore(first[0].folder(tmp_path)):
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=pipe, stderr=pipe, text=True)
        until(lambda: finished(second))
        assert not finished(first)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "2 of 2 cells finished" in output
    assert finished(first)
    with patch("bench.run.session.is_locked", return_value=False) as looks:
        list(Session(tmp_path)._unlocked_first([first, second] * 50))
    assert looks.call_count == 100  # it looked at all that were left before each


SLOW = f"""
{LIGHT}
import asyncio, os, bench.run.session
from tests.stand_ins import WordModel, WordModels

class Slow(WordModel):
    async def generate(self, *arguments):
        await asyncio.sleep(0.05)
        return await WordModel.generate(self, *arguments)

def models(self, cell):
    return WordModels(Slow())

bench.run.session.Session.models = models
"""
FOUR = ["--limit", "4", "b=0.5,0.6,0.75,0.8", "--in-flight", "1"]


def sweep_of_four(results: Path, workers: int) -> subprocess.Popen[str]:
    """Four cells of four questions, in a process group of its own, as a terminal gives it."""
    own = ["--results", str(results), "--workers", str(workers)]
    command = [sys.executable, "-m", "bench.cli.main", *SWEEP, *FOUR, *own]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, **pipes)


def all_rows(results: Path) -> dict[str, Any]:
    return {folder.name: records_of(folder) for folder in sorted((results / "cells").iterdir())}


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.fixture(scope="module")
def four_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    results = tmp_path_factory.mktemp("undisturbed")
    session = Session(results)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "models", lambda self, cell: WordModels())
        for point in plan_sweep(CellRequest("bm25", "hotpotqa", limit=4), {"b": [0.5, 0.6, 0.75, 0.8]}):
            session.run(point.cell)
    return all_rows(results)


@pytest.fixture
def slow_models(tmp_path: Path) -> None:
    """In all processes that a test starts an answer takes a while."""
    (tmp_path / "python" / "sitecustomize.py").write_text(SLOW)


def any_record(results: Path) -> bool:
    return any(path.stat().st_size for path in results.glob("cells/*/records.jsonl"))


def test_ctrl_c_with_several_workers_ends_them_all_and_the_same_command_continues(
    tmp_path: Path, four_undisturbed: dict[str, Any], slow_models: None
) -> None:
    first = sweep_of_four(tmp_path / "r", 2)
    until(lambda: any_record(tmp_path / "r"))
    helpers = children(first.pid)
    os.killpg(first.pid, signal.SIGINT)
    _, log = first.communicate(timeout=60)
    assert first.returncode == 130 and "the same command resumes" in log and "Traceback" not in log
    assert len(helpers) == 1 and not any(map(alive, helpers))
    again = sweep_of_four(tmp_path / "r", 1)
    shown, _ = again.communicate(timeout=60)
    assert again.returncode == 0 and "4 of 4 cells finished" in shown
    assert all_rows(tmp_path / "r") == four_undisturbed


def test_a_killed_worker_and_a_second_command_change_no_record(
    tmp_path: Path, four_undisturbed: dict[str, Any], slow_models: None
) -> None:
    both = [sweep_of_four(tmp_path / "r", workers) for workers in (2, 1)]
    until(lambda: any_record(tmp_path / "r"))
    until(lambda: bool(children(both[0].pid)))
    os.kill(children(both[0].pid)[0], signal.SIGKILL)
    logs = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "a helper process was killed" in logs[0]
    assert all_rows(tmp_path / "r") == four_undisturbed
    files = (tmp_path / "r").glob("cells/*/records*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in files) == 4 * 4, "none was asked twice"


def test_a_worker_of_a_full_disk_leaves_its_cells(tmp_path: Path, four_undisturbed: dict[str, Any]) -> None:
    full = (
        "import errno, sys\nfrom bench.results.json_lines import JsonLines\nfrom bench.files.atomic import "
        "WriteError\ndef full(self, row):\n"
        "    raise WriteError(self.path, OSError(errno.ENOSPC, 'No space left on device'))\n"
        "if 'bench.run.local_worker' in sys.orig_argv: JsonLines.append = full\n"
    )
    (tmp_path / "python" / "sitecustomize.py").write_text(SLOW + full)
    process = sweep_of_four(tmp_path / "r", 2)
    shown, log = process.communicate(timeout=60)
    assert process.returncode == 0 and "4 of 4 cells finished" in shown, log
    assert all_rows(tmp_path / "r") == four_undisturbed


def test_a_worker_without_a_free_cell_loads_nothing_and_its_cells_are_told_once(tmp_path: Path) -> None:
    loads = tmp_path / "loads"
    (tmp_path / "python" / "sitecustomize.py").write_text(
        SLOW
        + f"def noted(self, cell, real=models):\n    open({str(loads)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "    return real(self, cell)\nbench.run.session.Session.models = noted\n"
    )
    groups = two_groups(tmp_path / "r")
    reports: list[HelperProgress] = []
    with LocalWorkers(2).helping(groups, tmp_path / "r", Asking(), 0, reports.append) as helpers:
        until(lambda: not any(helper.working for helper in helpers))
    assert sum(report.answered for report in reports) == 4
    lines = [report.line for report in reports if report.line]
    assert sorted(line.partition(" on ")[0] for line in lines) == ["bm25 b=0.5", "bm25 b=0.75"]
    before = loads.read_text()
    with LocalWorkers(2).helping(groups, tmp_path / "r", Asking(), 0, reports.append) as helpers:
        until(lambda: not any(helper.working for helper in helpers))
    assert loads.read_text() == before


def alive(process: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_helper_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from bench.run.local import LocalWorkers, Helper\n"
        "task = {'results': sys.argv[1], 'in_flight': 1, 'timeout_s': None, 'groups': []}\n"
        "helper = Helper(task, None, print)\n"
        "print(helper._process.pid, flush=True); time.sleep(600)\n"
    )
    waiting = "import time, bench.run.session\nbench.run.session.Session = lambda *a, **o: time.sleep(600)\n"
    (tmp_path / "python" / "sitecustomize.py").write_text(waiting)
    command = [sys.executable, "-c", program, str(tmp_path)]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    helper = int(starter.stdout.readline())
    time.sleep(1)
    assert alive(helper)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    until(lambda: not alive(helper))


@pytest.mark.parametrize(
    ("gpus", "wanted", "expected"),
    [("", None, ""), ("012", None, "12"), ("46", None, "6"), ("01", 4, "101")],
)
def test_every_gpu_gets_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: str, wanted: int | None, expected: str
) -> None:
    chosen: list[str] = []

    def started(command: Any, env: dict[str, str], **_: Any) -> Any:
        chosen.append(env["CUDA_VISIBLE_DEVICES"])
        pipes = {"stdin": io.StringIO(), "stdout": io.StringIO()}
        return SimpleNamespace(**pipes, returncode=0, poll=lambda: 0, terminate=lambda: 0, wait=lambda *_: 0)

    monkeypatch.delenv("BENCH_WORKERS", raising=False)
    monkeypatch.setattr(local_workers, "_gpus", lambda: list(gpus))
    monkeypatch.setattr(local_workers, "processes", lambda parameters: 1)  # the other cores are busy
    monkeypatch.setattr(local_workers.subprocess, "Popen", started)
    with LocalWorkers(wanted).helping(two_groups(tmp_path) * 4, tmp_path, Asking(), 0, print):
        pass
    assert chosen == list(expected)
    monkeypatch.setenv("BENCH_WORKERS", "1")
    assert LocalWorkers(None).count() == 1


def test_options_of_ray_are_refused_without_it() -> None:
    assert open_executor(workers=3) == LocalWorkers(3)
    with pytest.raises(ConfigError, match="--gpus-per-worker 2 needs --ray"):
        open_executor(gpus=2)
