"""Observers of a session: the terminal's progress bar and the MLflow mirror follow a run through these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results.records import Record
from bench.run.cell import Cell


@dataclass(frozen=True)
class HelperProgress:
    """Progress of a helper process."""

    answered: int = 0
    """Questions answered since the last report."""
    line: str = ""
    """A cell that it has finished, with its score; empty: none."""


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

    def on_plan(self, cells: int, questions: int, purpose: str = "") -> None:
        """Called before the run, with the unfinished cells and questions of this process and its helpers.

        purpose: what the cells are for, where a command runs a second lot.
        """

    def on_helper_progress(self, news: HelperProgress) -> None:
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

    def on_answered(self, line: str) -> None:
        """This process has just finished a cell; line: its name and score."""

    def on_cell_finished(self, folder: Path, *, sweep: str | None, own_files: Sequence[Path]) -> None:
        """A cell is complete in ``folder``, whichever process finished it, also in an earlier run.

        sweep: name of the sweep that it belongs to. own_files: the user's files that its data came from.
        """

    def on_sweep_finished(self, name: str, folders: Sequence[Path]) -> None:
        """All cells of a sweep are complete."""

    def close(self) -> None:
        """The session ends."""
