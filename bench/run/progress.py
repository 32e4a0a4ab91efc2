"""Progress of a command: a line per finished cell; below it a bar or, without a terminal, a line a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import Any

from tqdm import tqdm

from bench.metrics import METRIC_LABELS
from bench.results.curves import cut
from bench.results.finished import FinishedCell
from bench.results.records import Record
from bench.run.cell import Cell
from bench.run.hooks import HelperProgress, IndexProgress, RunHooks, finished_line

EVERY_S = 60.0
"""Seconds of silence after which a line is printed without a terminal."""
ENOUGH = 0.05
"""Share of the questions that must be answered before a time left is shown."""
REFRESH_S = 1.0
"""Seconds between two looks at the clock."""
_BAR = "{desc} |{bar}| {n_fmt}/{total_fmt} {elapsed}{postfix}"


class Progress(RunHooks):
    """The one display of a command, for all its processes."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        """every_s: seconds of silence after which a line is printed without a terminal."""
        self._bar: tqdm[Any] | None = None
        self._every_s = every_s
        self._planned = False
        self._title = ""
        self._cells = self._cells_done = self._questions = self._answered = 0
        self._here = self._here_done = 0
        """Questions of the cells that this process is running, and those of them that have a record."""
        self._indexing = ""
        """How many of the indexes that were missing here have been built; empty once all have."""
        self._clock: threading.Thread | None = None
        self._over = threading.Event()
        self._lock = threading.RLock()

    def on_plan(self, cells: int, questions: int, purpose: str = "") -> None:
        """Say how much there is, and show the totals of the whole command from now on."""
        self._planned = True
        self._begin(cells, questions)
        with self._lock:
            cell, question = ("" if count == 1 else "s" for count in (cells, questions))
            left = f"{questions} question{question} to ask" if questions else "every question has been asked"
            self._write(f"{cells} cell{cell} to run{purpose and ' '}{purpose}, {left}")

    def on_helper_progress(self, progress: HelperProgress) -> None:
        """Count what a helper process did."""
        with self._lock:
            self._answered += progress.answered
            if progress.line:
                self._count_cell(progress.line)

    def on_start(self, cells: Sequence[Cell], done: Sequence[Mapping[str, Record]]) -> None:
        """Show the bar, with the questions that have a record already counted."""
        first = cells[0]
        self._metric = first.card.metrics[0]
        self._sum, self._n, self._failed = 0.0, 0, 0
        self._here, self._here_done = len(first.data.examples) * len(cells), sum(map(len, done))
        if not self._planned:
            self._begin(len(cells), self._here - self._here_done)
        with self._lock:
            self._title = first.name + (f" and {len(cells) - 1} more" if len(cells) > 1 else "")
            at = f"{self._cells_done + 1}/{self._cells} " if self._cells > 1 else ""
            self._bar = tqdm(
                total=self._here,
                initial=self._here_done,
                desc=cut(f"{at}{self._title}", _room()),
                bar_format=_BAR,
                leave=False,
                disable=None,
                dynamic_ncols=True,
            )
            if self._bar.disable:
                self._bar = None
                return
            self._bar.set_postfix_str("" if self._here_done else "preparing")
        for records in done:
            for record in records.values():
                self._count(record)

    def on_index(self, progress: IndexProgress) -> None:
        """Show how many indexes have been built and how many tokens went into them, until all have."""
        at = f"index {progress.built} of {progress.missing}"
        at += f" ({progress.tokens:,} tokens)" if progress.tokens else ""
        with self._lock:
            self._indexing = at if progress.built < progress.missing else ""
            if self._bar is not None and not self._here_done:
                self._bar.set_postfix_str(self._indexing)

    def on_record(self, record: Record) -> None:
        """Count one more answered question."""
        self._count(record)
        with self._lock:
            self._answered += 1
            self._here_done += 1
        if self._bar is not None:
            shown = [f"{METRIC_LABELS[self._metric]} {100 * self._sum / self._n:.1f} %"] if self._n else []
            shown += [f"{self._failed} failed"] if self._failed else []
            shown += [left] if (left := self._left()) else []
            self._bar.set_postfix_str(", ".join(shown), refresh=False)
            self._bar.update()

    def on_stop(self) -> None:
        """Close the bar."""
        with self._lock:
            self._title = self._indexing = ""
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Count a cell that this process has just finished, and print its line."""
        if finished.answered:
            self._count_cell(finished_line(cell, finished))

    def _count_cell(self, line: str) -> None:
        with self._lock:
            self._cells_done += 1
            self._cells = max(self._cells, self._cells_done)
            if not sys.stderr.isatty():
                self._print_line(line)
            elif self._cells > 1:
                width = len(str(self._cells))
                self._write(f"{self._cells_done:>{width}}/{self._cells}  {line}")

    def close(self) -> None:
        """Stop printing."""
        self._over.set()
        if self._clock is not None:
            self._clock.join()

    def _begin(self, cells: int, questions: int) -> None:
        with self._lock:
            self._cells, self._questions, self._cells_done, self._answered = cells, questions, 0, 0
            self._started = self._last_line = time.monotonic()
        if self._clock is None:
            self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._clock.start()

    def _tick(self) -> None:
        while not self._over.wait(min(REFRESH_S, self._every_s)):
            with self._lock:
                silent = time.monotonic() - self._last_line >= self._every_s
                if self._bar is not None:
                    self._bar.refresh()
                elif silent and (self._title or self._cells_done < self._cells):
                    indexing = self._indexing and f"{self._indexing}, "
                    at = f"{self._title}, {indexing}question {self._here_done} of {self._here}"
                    self._print_line(at if self._title else "helper processes are working")
                elif silent:
                    self._last_line = time.monotonic()

    def _left(self) -> str:
        """How long all that is left will take; empty until enough has been answered to tell.

        The first answers come after models are loaded and indexes built, which the others do not wait for.
        """
        took, left = time.monotonic() - self._started, max(0, self._questions - self._answered)
        enough = self._answered >= max(1.0, ENOUGH * self._questions)
        return f"{_minutes(took * left / self._answered)} left" if left and enough else ""

    def _print_line(self, text: str) -> None:
        self._last_line = time.monotonic()
        took, left = self._last_line - self._started, self._left()
        rest = f", about {left}" if left else ""
        self._write(f"[{self._cells_done}/{self._cells} cells, {_minutes(took)}{rest}] {text}")

    def _write(self, line: str) -> None:
        """A line on stderr, above the bar if there is one."""
        if self._bar is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        else:
            self._bar.write(line, file=sys.stderr)

    def _count(self, record: Record) -> None:
        if record.answers:
            self._n += 1
            self._sum += record.scores.get(self._metric, 0.0)
        self._failed += record.error is not None


def _room() -> int:
    """Columns of the terminal that a bar's text may take; the rest is the bar's and the counts'."""
    return max(20, get_terminal_size().columns - 46)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
