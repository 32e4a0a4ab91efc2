"""Observers of a session: the terminal's bar and MLflow's mirror learn of a run here alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results.records import Record
from bench.run.cell import Cell


@dataclass(frozen=True)
class News:
    """What a further process has done."""

    answered: int = 0
    """Questions, since the last news."""
    line: str = ""
    """A cell that it has finished, with its score; empty: none."""


class RunHooks:
    """Every method does nothing by default and must return quickly: the run waits for it."""

    def on_plan(self, cells: int, questions: int) -> None:
        """So many cells are to be finished, with so many questions left, here and by further processes."""

    def on_news(self, news: News) -> None:
        """A further process got on; called from another thread."""

    def on_start(self, cells: Sequence[Cell], done: Sequence[Mapping[str, Record]]) -> None:
        """Cells that one run per question serves are about to be run.

        done: for each cell the records that exist already, by example id; they are read from disk only when
        they are looked at.
        """

    def on_record(self, record: Record) -> None:
        """One more record was written."""

    def on_stop(self) -> None:
        """The cells of the last :meth:`on_start` have all their records, or their run was interrupted."""

    def on_answered(self, line: str) -> None:
        """This process has finished a cell just now; line: which, with its score."""

    def on_cell_finished(self, folder: Path, *, sweep: str | None, own_files: Sequence[Path]) -> None:
        """A cell is complete in ``folder``, whoever finished it, and when.

        sweep: name of the sweep that it belongs to. own_files: the user's files that its data came from.
        """

    def on_sweep_finished(self, name: str, folders: Sequence[Path]) -> None:
        """All cells of a sweep are complete."""

    def close(self) -> None:
        """The session ends."""
