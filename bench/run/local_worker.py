"""A helper process of :mod:`bench.run.local`: runs the cells listed on standard input."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from signal import SIGTERM
from typing import IO

from bench.errors import BenchError
from bench.results.finished import FinishedCell
from bench.results.json_lines import is_locked
from bench.results.records import Record
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.hooks import HelperProgress, RunHooks, finished_line
from bench.run.session import Session

log = logging.getLogger(__name__)


class Reports(RunHooks):
    """Reports the progress of this process to the command, one JSON line at a time."""

    def __init__(self, pipe: IO[str]) -> None:
        """pipe: to the command."""
        self._pipe = pipe

    def on_record(self, record: Record) -> None:
        """Report one question."""
        self._send(HelperProgress(answered=1))

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Report one cell."""
        if finished.answered:
            line, summary = finished_line(cell, finished), finished.summary
            score = summary.interval(cell.card.metrics[0])
            mean = None if score is None else score.mean
            self._send(HelperProgress(0, line, finished.id, mean, summary.tflops))

    def _send(self, progress: HelperProgress) -> None:
        try:
            self._pipe.write(json.dumps(asdict(progress)) + "\n")
            self._pipe.flush()
        except BrokenPipeError:
            raise KeyboardInterrupt from None  # the command is gone


def main() -> None:
    """Run the groups listed on standard input; ends when they are done or standard input is closed."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # printed text must not reach the command
    session = Session(
        Path(task["results"]),
        in_flight=task["in_flight"],
        timeout_s=task["timeout_s"],
        hooks=[Reports(pipe)],
        alone=False,
    )
    session.begin_pass(task["first"])
    for group in task["groups"]:
        if any(is_locked(Path(entry["folder"])) for entry in group):
            continue  # the process that locked it will finish it, or the command will
        try:
            cells = [plan_cell(CellRequest(**entry["request"])) for entry in group]
            session.run_all(
                [[replace(cell, out=Path(e["folder"])) for cell, e in zip(cells, group, strict=True)]]
            )
        except BenchError as error:  # the command meets the same error and reports it
            log.debug("%s", error)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), SIGTERM)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
