"""Runs killed at random moments, against one that was left alone.

``python -m performance.crashes``: real commands on the shipped model (an index and a search of PECAN's, a
sweep of BM25's in two passes, a run on Ray, MLflow, a table) are killed with SIGKILL 60 times, each at a
random moment after a random step of index building, searching, writing, telling MLflow and rendering in turn,
and given again. After these five they may finish: records, table and what MLflow shows must be those of the
undisturbed run. It takes minutes and measures no speed, so `make bench` leaves it out.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench.files.atomic import write_json
from bench.run.provenance import git_commit
from performance.measuring import REPOSITORY, in_own_process
from performance.report import RESULTS, Measurement, section

PHASES = ("index", "search", "write", "mlflow", "render")
KILLS = 60
LONGEST_DELAY_S = 0.6
"""Between a step and the kill; about what a step takes."""
STEPS_TO_WAIT = 3

COMMANDS = (
    ("run", "--method", "pecan", "--dataset", "hotpotqa", "--limit", "2"),
    ("sweep", "--method", "bm25", "--dataset", "hotpotqa", "--limit", "2", "--first", "1", "k=4:6"),
    ("run", "--method", "tfidf", "--dataset", "qasper", "--limit", "3", "--ray", "local"),
    ("table", "table1", "--limit", "2", "--render-only"),
)


def measure(quick: bool) -> list[Measurement]:
    """Kill and compare; every difference is listed."""
    kills = len(PHASES) if quick else KILLS
    rng = random.Random(0)
    met: Counter[str] = Counter()
    differences: list[str] = []
    rounds = 0
    with tempfile.TemporaryDirectory(prefix="bench-crashes-") as top:
        assert _start(Path(top) / "whole").finish() == 0
        expected = outcome(Path(top) / "whole")
        while sum(met.values()) < kills:
            rounds += 1
            folder = Path(top) / str(rounds)
            for phase in PHASES:
                child = _start(folder)
                step, delay_s = rng.randint(1, STEPS_TO_WAIT), rng.uniform(0, LONGEST_DELAY_S)
                if child.kill_after(phase, step, delay_s):
                    met[phase] += 1
                if sum(met.values()) == kills:
                    break
            if (status := _start(folder).finish()) != 0:
                differences.append(f"round {rounds}: the last command ended with {status}")
                continue
            outcomes = outcome(folder)
            differences += [
                f"round {rounds}: {name}" for name in expected if outcomes.get(name) != expected[name]
            ]
            shutil.rmtree(folder)
    details = {"kills": dict(met), "differences": differences, "commands": [" ".join(c) for c in COMMANDS]}
    return [
        Measurement("runs killed", sum(met.values()), "", f">= {kills}", details=details),
        Measurement("of these with another outcome", len(differences), "", "= 0"),
        Measurement("records compared after each round", sum(map(len, _records(expected))), ""),
    ]


def _records(outcomes: dict[str, Any]) -> list[list[Any]]:
    return [rows for name, rows in outcomes.items() if name.startswith("records of")]


class _Child:
    """The commands in a process of their own, which names its steps on a pipe."""

    def __init__(self, folder: Path) -> None:
        reading, writing = os.pipe()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BENCH_", "MLFLOW_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "performance.crashes", "--work", str(folder), str(writing)],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
        )
        os.close(writing)
        self._steps = os.fdopen(reading)

    def kill_after(self, phase: str, step: int, delay_s: float) -> bool:
        """Kill it some time after that step of a phase, or the last one; False if it was over before."""
        seen = 0
        for line in self._steps:
            seen += line.strip() == phase
            if seen == step:
                break
        time.sleep(delay_s)
        self._process.send_signal(signal.SIGKILL)
        killed = self._process.wait() == -signal.SIGKILL
        self._steps.close()
        return killed

    def finish(self) -> int:
        """Its exit status, once it is done."""
        for _ in self._steps:
            pass
        self._steps.close()
        return self._process.wait()


def _start(folder: Path) -> _Child:
    return _Child(folder)


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on how often a run was killed."""
    outcomes: dict[str, Any] = {}
    for cell in sorted((folder / "cells").iterdir()):
        lines = (cell / "records.jsonl").read_text("utf-8").splitlines()
        outcomes[f"records of {cell.name}"] = [rounded({**json.loads(line), "wall_s": 0}) for line in lines]
    for table in sorted((folder / "tables").glob("table1.*")):
        outcomes[table.name] = table.read_text("utf-8")
    outcomes["indexes"] = sorted(
        path.relative_to(folder).as_posix() for path in (folder / "indexes").glob("*/[!.]*/*")
    )
    with sqlite3.connect(folder / "mlflow.db") as database:
        outcomes["MLflow"] = database.execute(
            "SELECT runs.name, runs.status, key, value FROM latest_metrics "
            "JOIN runs ON runs.run_uuid = latest_metrics.run_uuid WHERE lifecycle_stage = 'active' "
            "AND key != 'wall_s' ORDER BY runs.name, key, value"
        ).fetchall()
    return outcomes


def rounded(value: Any) -> Any:
    """A record as any batch leaves it.

    Numbers to four digits, since the last ones of a probability depend on the questions that share a batch,
    and without ``computed``, since so does which tokens a neighbour has already computed.
    """
    if isinstance(value, dict):
        return {key: rounded(held) for key, held in value.items() if key != "computed"}
    if isinstance(value, list):
        return [rounded(held) for held in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


# --- in the child ---------------------------------------------------------------------------------


def work(folder: Path, pipe: int) -> None:
    """Give the commands, one after the other, naming every step on the pipe."""
    import bench.files.atomic
    import bench.tables.render
    from bench.cli.main import command
    from bench.results.records import RecordStore
    from bench.run.question_runner import QuestionRunner
    from bench.tracking import hooks

    def naming(owner: Any, name: str, phase: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def named(*arguments: Any, **options: Any) -> Any:
            os.write(pipe, f"{phase}\n".encode())
            return real(*arguments, **options)

        setattr(owner, name, named)

    naming(QuestionRunner, "load_or_build", "index")
    naming(QuestionRunner, "ask", "search")
    naming(RecordStore, "append", "write")
    naming(RecordStore, "put_in_order", "write")
    naming(hooks.MlflowHooks, "_sync", "mlflow")
    naming(bench.tables.render, "render", "render")
    naming(bench.files.atomic, "write_text", "render")
    for arguments in COMMANDS:
        command.main([*arguments, "--results", str(folder)], prog_name="bench", standalone_mode=False)


@click.command()
@click.option("--quick", is_flag=True, help="five kills instead of sixty")
@click.option("--work", "worker", nargs=2, type=str, hidden=True)
def main(quick: bool, worker: tuple[str, str] | None) -> None:
    """Kill, compare, print; the result is kept in performance/results/crashes.json unless --quick."""
    if worker is not None:
        work(Path(worker[0]), int(worker[1]))
        return
    commit = git_commit()
    result = {**in_own_process("performance.report:run", "crashes", quick), "commit": commit}
    click.echo("\n".join(section(result)))
    for difference in result["measurements"][0]["details"]["differences"]:
        click.echo(f"different: {difference}")
    if not quick:
        write_json(Path(__file__).resolve().parent / RESULTS / "crashes.json", result)


if __name__ == "__main__":
    main()
