"""Progress of a command: a line per finished cell; below it a bar or, without a terminal, a line a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bench.metrics import label_of
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
BAR = 24
"""Columns of the bar."""


class Progress(RunHooks):
    """The one display of a command, for all its processes."""

    def __init__(self) -> None:
        self.above: Callable[[], RenderableType] | None = None
        """On a terminal, what stands above the bar while the command works, in place of the cells' lines."""
        self._live: Live | None = None
        self._planned = False
        self._first: int | None = None
        self._title = self._score = ""
        self._cells = self._cells_done = self._questions = self._answered = 0
        self._here = self._here_done = 0
        """Questions of the cells that this process is running, and those of them that have a record."""
        self._indexing = ""
        """How many of the indexes that were missing here have been built; empty once all have."""
        self._began = self._started = self._last_line = time.monotonic()
        """Begin of the cells that run, of the whole plan, and of the silence."""
        self._clock: threading.Thread | None = None
        self._over = threading.Event()
        self._lock = threading.RLock()

    def on_plan(self, cells: int, questions: int, purpose: str = "", first: int | None = None) -> None:
        """Say how much there is, and show the totals of the whole command from now on."""
        self._planned, self._first = True, first
        self._begin(cells, questions)
        with self._lock:
            cell, answer = ("" if count == 1 else "s" for count in (cells, questions))
            left = f"{questions} answer{answer} to come" if questions else "every question has been asked"
            each = f": the first {first} of each cell" if first and questions else ""
            self._write(f"{cells} cell{cell} to run{purpose and ' '}{purpose}, {left}{each}")
            self._show()

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
        self._sum, self._n, self._failed, self._score = 0.0, 0, 0, ""
        each = len(first.data.examples[: self._first])
        self._here, self._here_done = each * len(cells), sum(min(each, len(records)) for records in done)
        if not self._planned:
            self._begin(len(cells), self._here - self._here_done)
        with self._lock:
            self._title = first.name + (f" and {len(cells) - 1} more" if len(cells) > 1 else "")
            self._began = time.monotonic()
            self._show()
        for records in done if self._live is not None else ():
            for record in records.values():
                self._count(record)

    def on_index(self, progress: IndexProgress) -> None:
        """Show how many indexes have been built and how many tokens went into them, until all have."""
        at = f"index {progress.built} of {progress.missing}"
        at += f" ({progress.tokens:,} tokens)" if progress.tokens else ""
        with self._lock:
            self._indexing = at if progress.built < progress.missing else ""

    def on_record(self, record: Record) -> None:
        """Count one more answered question."""
        self._count(record)
        with self._lock:
            self._answered += 1
            self._here_done += 1

    def on_stop(self) -> None:
        """Nothing is running."""
        with self._lock:
            self._title = self._indexing = ""

    def on_pause(self) -> None:
        """Clear the bar, and what stands above it, off the terminal."""
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.stop()

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
            elif self._cells > 1 and self.above is None:
                width = len(str(self._cells))
                self._write(f"{self._cells_done:>{width}}/{self._cells}  {line}")

    def close(self) -> None:
        """Stop printing."""
        self.on_pause()
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
        while not self._over.wait(min(REFRESH_S, EVERY_S)):
            with self._lock:
                silent = time.monotonic() - self._last_line >= EVERY_S
                if self._live is not None:
                    continue
                if silent and (self._title or self._cells_done < self._cells):
                    indexing = self._indexing and f"{self._indexing}, "
                    at = f"{self._title}, {indexing}question {self._here_done} of {self._here}"
                    self._print_line(at if self._title else "finishing, here or in helper processes")
                elif silent:
                    self._last_line = time.monotonic()

    def _left(self) -> str:
        """How long all that is left will take; empty until enough has been answered to tell.

        The first answers come after models are loaded and indexes built, which the others do not wait for.
        """
        took, left = time.monotonic() - self._started, max(0, self._questions - self._answered)
        enough = self._answered >= max(1.0, ENOUGH * self._questions)
        return f"{duration(took * left / self._answered)} left" if left and enough else ""

    def _print_line(self, text: str) -> None:
        self._last_line = time.monotonic()
        took, left = self._last_line - self._started, self._left()
        rest = f", about {left}" if left else ""
        self._write(f"[{self._cells_done}/{self._cells} cells, {duration(took)}{rest}] {text}")

    def _write(self, line: str) -> None:
        """A line on stderr, above the bar if there is one."""
        if self._live is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        else:
            self._live.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _show(self) -> None:
        """Draw on the terminal, if there is one."""
        if self._live is not None:
            self._live.refresh()
        elif sys.stderr.isatty():
            console = Console(file=sys.stderr)
            self._live = Live(
                console=console, get_renderable=self._screen, transient=True, refresh_per_second=1 / REFRESH_S
            )
            self._live.start(refresh=True)

    def _screen(self) -> RenderableType:
        """What stands on the terminal now; called from the thread that draws it, so without the lock."""
        parts = [] if self.above is None else [self.above()]
        if self._title:
            at = f"{self._cells_done + 1}/{self._cells} " if self._cells > 1 else ""
            took = int(time.monotonic() - self._began)
            waiting = "" if self._here_done else self._indexing or "preparing"
            said = [self._score or waiting, self._left()]
            counts = f"{self._here_done}/{self._here} {took // 60}:{took % 60:02} "
            line = Table.grid(padding=(0, 1, 0, 0))
            line.add_column(no_wrap=True, overflow="ellipsis")
            line.add_column(no_wrap=True)
            line.add_column(no_wrap=True)
            line.add_row(
                Text(f"{at}{self._title}"),
                ProgressBar(max(1, self._here), self._here_done, width=BAR),
                Text(counts + ", ".join(filter(None, said))),
            )
            parts.append(line)
        return Group(*parts)

    def _count(self, record: Record) -> None:
        if record.answers:
            self._n += 1
            self._sum += record.scores.get(self._metric, 0.0)
        self._failed += record.error is not None
        shown = [f"{label_of(self._metric)} {100 * self._sum / self._n:.1f} %"] if self._n else []
        self._score = ", ".join(shown + ([f"{self._failed} failed"] if self._failed else []))


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
