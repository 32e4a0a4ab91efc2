"""A further process of :mod:`bench.run.local`: works on the cells that standard input names."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from signal import SIGTERM
from typing import IO

from bench.errors import BenchError
from bench.results.json_lines import is_locked
from bench.results.records import Record
from bench.run.cell import CellRequest, plan_cell
from bench.run.hooks import News, RunHooks
from bench.run.session import Session

log = logging.getLogger(__name__)


class Reports(RunHooks):
    """Tells the command, one JSON line at a time, how far this process is."""

    def __init__(self, to: IO[str]) -> None:
        """to: the pipe to the command."""
        self._to = to

    def on_record(self, record: Record) -> None:
        """One question."""
        self._tell(News(answered=1))

    def on_answered(self, line: str) -> None:
        """One cell."""
        self._tell(News(line=line))

    def _tell(self, news: News) -> None:
        try:
            self._to.write(json.dumps(asdict(news)) + "\n")
            self._to.flush()
        except BrokenPipeError:
            raise KeyboardInterrupt from None  # the command is gone


def main() -> None:
    """Work on the groups that standard input names; ends with them, or when standard input does."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything prints is none of the command's
    session = Session(
        Path(task["results"]),
        in_flight=task["in_flight"],
        timeout_s=task["timeout_s"],
        hooks=[Reports(pipe)],
        alone=False,
    )
    for named in task["groups"]:
        if any(is_locked(Path(one["folder"])) for one in named):
            continue  # whoever is at work on it will finish it, or the command will
        try:
            session.run_together(
                [(plan_cell(CellRequest(**one["request"])), Path(one["folder"])) for one in named]
            )
        except BenchError as error:  # the command meets it as well, and says so
            log.debug("%s", error)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), SIGTERM)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
