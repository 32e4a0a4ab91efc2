"""One command's run of many cells: models load once, cells share indexes, helpers help, hooks observe."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bench.errors import BenchError, ConfigError
from bench.models.conversation import ModelSet
from bench.results.finished import FinishedCell, so_far
from bench.results.index_store import IndexStore
from bench.results.json_lines import is_locked
from bench.results.records import RECORDS_FILE
from bench.run.cell import Cell
from bench.run.cell_folder import cell_so_far, finished_cell
from bench.run.fitness import caution, refusal
from bench.run.hooks import HelperProgress, RunHooks
from bench.run.local import Helper, LocalWorkers
from bench.run.question_runner import IN_FLIGHT
from bench.run.runner import Asking, run_group
from bench.run.threads import Threads

if TYPE_CHECKING:
    from bench.run.ray.executor import RayExecutor

log = logging.getLogger(__name__)

POLL_S = 0.2
"""Seconds between checks while helper processes have locked all remaining cells."""

Group: TypeAlias = Sequence[Cell]
"""Cells that one run per question serves: they differ only in options that their method replays."""


class Session:
    """Runs planned cells below one results folder; the one door to a finished cell."""

    def __init__(
        self,
        results: Path,
        *,
        in_flight: int = IN_FLIGHT,
        retry_failed: bool = False,
        timeout_s: float | None = None,
        executor: RayExecutor | LocalWorkers | None = None,
        hooks: Sequence[RunHooks] = (),
        threads: Threads | None = None,
        alone: bool = True,
        compute: bool = True,
    ) -> None:
        """results: folder for everything that the run writes; hooks: observers of the run.

        executor: runs the questions; None: this process does. threads: the thread setting of this process;
        None: unchanged. alone: whether this is the only process of the command. compute: False runs nothing
        and only finds what is finished. The others as in :class:`bench.run.runner.Asking`.
        """
        self.results, self.compute = results, compute
        self._threads, self._alone = threads, alone
        self._helpers: Sequence[Helper] = ()
        self._local = executor if isinstance(executor, LocalWorkers) else LocalWorkers(1)
        ray = None if isinstance(executor, LocalWorkers) else executor
        self.asking = Asking(in_flight, retry_failed, timeout_s, tuple(hooks), ray)
        self._finished: dict[Path, FinishedCell] = {}
        self._so_far: dict[Path, FinishedCell] = {}
        """Cells of which this pass has seen a part; the next one looks again."""
        self._ran: set[Path] = set()
        self.tried: set[Path] = set()
        """Folders of trial cells for which a k was measured."""

    @property
    def hooks(self) -> Sequence[RunHooks]:
        """The observers of the run."""
        return self.asking.hooks

    def add_hook(self, hook: RunHooks) -> None:
        """One more observer of the run."""
        self.asking = replace(self.asking, hooks=(*self.asking.hooks, hook))

    @cached_property
    def indexes(self) -> IndexStore:
        """The index cache of this results folder."""
        return IndexStore(self.results / "indexes")

    def require_one_process(self) -> None:
        """Raise ConfigError if ``--workers`` asks for several local processes, for a command of one cell."""
        if (wanted := self._local.wanted or 1) > 1:
            raise ConfigError(
                f"--workers {wanted}: bench run answers the questions of one cell, and without Ray one "
                "process runs a cell. Leave the option out, or distribute the questions with --ray local."
            )

    def passes(self, first: int) -> Iterator[None]:
        """One pass over the first questions of every cell, then, unless that was all, one over the rest.

        In each pass the caller runs the same cells. first: questions of each cell in the first pass; 0: none.
        """
        if first and self.compute and not self.asking.retry_failed:
            self.begin_pass(first)
            yield
            if not self._so_far:
                return
        self.begin_pass(None)
        yield

    def begin_pass(self, first: int | None) -> None:
        """From now on ask only this many questions of each cell; None: all."""
        self.asking, self._so_far = replace(self.asking, first=first), {}

    def finished(self, cell: Cell) -> FinishedCell | None:
        """The cell, read and checked once, if its every question has a record; nothing is run.

        In a first pass also one whose first questions have one, and in a session that runs nothing what there
        is of it; neither :attr:`is whole <FinishedCell.is_whole>`.
        """
        folder = cell.folder(self.results)
        if (finished := self._finished.get(folder) or finished_cell(cell, folder)) is not None:
            self._finished[folder] = finished
            return finished
        in_part = self.asking.first is not None or not self.compute
        if in_part and folder not in self._so_far:
            found = cell_so_far(cell, folder, self.asking.first)
            self._so_far |= {folder: found} if found else {}
        return self._so_far.get(folder)

    @property
    def so_far(self) -> str:
        """How far the cells of this pass have come, in words; empty if they are whole."""
        return so_far(self._so_far.values())

    def run(self, cell: Cell) -> FinishedCell:
        """The finished cell; its missing questions are asked first. Raises BenchError."""
        try:
            return self._run_group([cell], None)[0]
        finally:
            self._pause()

    def run_all(
        self,
        groups: Sequence[Group],
        *,
        sweep: str | None = None,
        purpose: str = "",
        failed: Callable[[Group, BenchError], None] | None = None,
        done: Callable[[Group, Sequence[FinishedCell]], None] = lambda group, finished: None,
    ) -> dict[str, FinishedCell]:
        """Cell id -> finished cell, for all cells of the groups; missing questions are asked first.

        Helper processes on this machine take groups, too; groups that another process has locked come last.
        sweep: name of the sweep that the cells belong to, their parent run in MLflow. purpose: what they are
        for, where a command runs a second lot. failed: called with a group that cannot run, whose cells are
        then not in the result; None: the error is raised. done: called with each group as it is finished.
        SIGTERM ends the run as Ctrl-C does, with KeyboardInterrupt.
        """
        if self.compute:
            try:
                with _sigterm_as_interrupt(), self._helped(groups, purpose):
                    for group in self._unlocked_first(groups):
                        try:
                            done(group, self._run_group(group, sweep))
                        except BenchError as error:
                            if failed is None:
                                raise
                            failed(group, error)
            finally:
                self._pause()
        cells = [cell for group in groups for cell in group]
        found = {cell.identity.cell_id: self.finished(cell) for cell in cells}
        return {id_: finished for id_, finished in found.items() if finished is not None}

    def _run_group(self, group: Group, sweep: str | None) -> list[FinishedCell]:
        first = group[0]
        for warning in first.data.warnings:
            log.warning("%s", warning)
        _require_fitness(first)
        distinct = {(cell.identity.cell_id, cell.out): cell for cell in group}
        left = [cell for cell in distinct.values() if not self.is_done(cell)]
        ran: dict[Path, FinishedCell] = {}
        if left:
            models = partial(self.models, first)
            with _sigterm_as_interrupt():
                just_now = run_group(left, self.results, self.indexes, models, self.asking)
            ran = {outcome.folder: outcome for outcome in just_now}
            for folder, outcome in ran.items():
                known = self._finished if outcome.is_whole else self._so_far
                known[folder] = replace(outcome, answered=0)
            self._ran |= ran.keys()
        outcomes = []
        for cell in group:
            finished = ran.get(cell.folder(self.results)) or self.finished(cell)
            assert finished is not None
            outcomes.append(finished)
            for hook in self.hooks:
                hook.on_cell_finished(cell, finished, sweep=sweep)
        return outcomes

    def is_done(self, cell: Cell) -> bool:
        """Whether nothing of the cell is to be asked by this command."""
        finished = self.finished(cell)
        if finished is None or not (self.asking.retry_failed and finished.summary.n_failed):
            return finished is not None
        return cell.folder(self.results) in self._ran  # its failures were asked again a moment ago

    @contextlib.contextmanager
    def _helped(self, groups: Sequence[Group], purpose: str) -> Iterator[None]:
        """Inside the block, helper processes on this machine, if any, run groups too."""
        missing = [group for group in groups if any(self.finished(cell) is None for cell in group)]
        left = [cell for group in missing for cell in group if self.finished(cell) is None]
        questions = sum(
            max(0, len(cell.data.examples[: self.asking.first]) - _lines(cell.folder(self.results)))
            for cell in left
        )
        parameters = max(
            (spec.architecture.parameters for group in missing for spec in group[0].roles.values()), default=0
        )
        first = self.asking.first  # where some cell has more questions
        if all(len(cell.data.examples) <= (first or 0) for cell in left):
            first = None
        for hook in self.hooks if missing else ():
            hook.on_plan(len(left), questions, purpose, first)

        def notify(progress: HelperProgress) -> None:
            for hook in self.hooks:
                hook.on_helper_progress(progress)

        with self._local.helping(missing, self.results, self.asking, parameters, notify) as self._helpers:
            self._alone = not self._helpers
            yield

    def _unlocked_first(self, groups: Sequence[Group]) -> Iterator[Group]:
        """The groups, each as soon as no other process has locked one of its cells.

        Waits while helper processes have locked everything that is left.
        """
        left = list(groups)
        while left:
            locked = (any(is_locked(cell.folder(self.results)) for cell in group) for group in left)
            free = next((at for at, is_taken in enumerate(locked) if not is_taken), None)
            if free is None and any(helper.working for helper in self._helpers):
                time.sleep(POLL_S)
                continue
            yield left.pop(free or 0)

    def _pause(self) -> None:
        for hook in self.hooks:
            hook.on_pause()

    def close(self) -> None:
        """Release the executor's workers and close the hooks."""
        if self.asking.executor is not None:
            self.asking.executor.close()
        for hook in self.hooks:
            hook.close()

    def models(self, cell: Cell) -> ModelSet:
        """The models of a cell, each loaded on first use, in as many threads as pay."""
        from bench.models.model_set import LoadedModels

        if self._threads is not None:
            self._threads.settle(cell.roles.values(), alone=self._alone)
        return LoadedModels(cell.roles, self.asking.in_flight)


def _require_fitness(cell: Cell) -> None:
    """Warn of small models on text that they cannot read; raise ConfigError where the user named none."""
    if cell.unfit and not cell.request.model_named:
        raise ConfigError(refusal(cell.unfit))
    if cell.unfit:
        log.warning("%s", caution(cell.unfit))


def _lines(folder: Path) -> int:
    """Number of records, damaged ones included."""
    try:
        return (folder / RECORDS_FILE).read_bytes().count(b"\n")
    except OSError:
        return 0


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Inside the block SIGTERM, which schedulers send, does what Ctrl-C does; in the main thread only.

    Its handler sends SIGINT rather than raise: an event loop has a handler of its own for that, and an
    exception from a signal handler is lost where it interrupts a finalizer. Shells make the background jobs
    of a script ignore SIGINT; these end as well.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
