"""Observers of a session: the terminal's progress bar and the MLflow mirror follow a run through these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.metrics import label_of
from bench.results.finished import FinishedCell
from bench.results.records import Record
from bench.run.cell import Cell


@dataclass(frozen=True)
class HelperProgress:
    """Progress of a helper process."""

    answered: int = 0
    """Questions answered since the last report."""
    line: str = ""
    """A cell that it has finished, with its score; empty: none."""
    cell_id: str = ""
    score: float | None = None
    """That cell's first metric, 0..1; None: it has none."""
    tflops: float = 0.0
    """Its mean cost of a question."""


@dataclass(frozen=True)
class IndexProgress:
    """How far the indexes are that were missing when a group of cells started."""

    built: int
    missing: int
    """Those that were missing, the built ones included."""
    tokens: int = 0
    """Forwarded for them so far, over all models; a reply counts when it is complete."""


class RunHooks:
    """Base of the observers. By default every method does nothing; it must return quickly: the run waits."""

    def on_plan(self, cells: int, questions: int, purpose: str = "", first: int | None = None) -> None:
        """Called before the run, with the unfinished cells and questions of this process and its helpers.

        purpose: what the cells are for, where a command runs a second lot. first: in a pass that asks only
        this many questions of each cell.
        """

    def on_helper_progress(self, progress: HelperProgress) -> None:
        """A helper process made progress; called from another thread."""

    def on_start(self, cells: Sequence[Cell], done: Sequence[Mapping[str, Record]]) -> None:
        """A group of cells that share one run per question is about to run.

        done: for each cell its existing records by example id, read from disk on access.
        """

    def on_index(self, progress: IndexProgress) -> None:
        """Indexes are being built, or have been; called now and then, and whenever one is complete."""

    def on_record(self, record: Record) -> None:
        """A record was written."""

    def on_stop(self) -> None:
        """The cells of the last :meth:`on_start` are complete, or their run was interrupted."""

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """A cell is complete, whichever process finished it, also in an earlier run; or its first pass is.

        sweep: name of the sweep that it belongs to.
        """

    def on_pause(self) -> None:
        """The cells that were planned have run, or stopped; the command may print."""

    def close(self) -> None:
        """The session ends."""


def finished_line(cell: Cell, finished: FinishedCell) -> str:
    """A finished cell, or what has been asked of one, with its score, for the terminal."""
    metric, summary = cell.card.metrics[0], finished.summary
    failed = f", {summary.n_failed} failed" if summary.n_failed else ""
    score = summary.interval(metric)
    scored = "" if score is None else f"{label_of(metric)} {100 * score.mean:.1f} %, "
    all_ = finished.description.n_examples
    of_all = "" if finished.is_whole else f"of {all_} "
    return f"{cell.name}: {scored}{summary.n} {of_all}question{'' if all_ == 1 else 's'}{failed}"
