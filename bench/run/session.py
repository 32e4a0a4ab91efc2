"""One process's run of several cells: models load once, cells share indexes, hooks observe."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from bench.errors import ConfigError
from bench.metrics import METRIC_LABELS
from bench.models.api import ModelSet
from bench.results.index_store import IndexStore
from bench.results.json_lines import is_locked
from bench.results.models import Summary
from bench.results.records import RECORDS_FILE
from bench.run.cell import Cell, CellRequest
from bench.run.cell_folder import finished_summary
from bench.run.fitness import caution, refusal
from bench.run.hooks import HelperProgress, IndexProgress, RunHooks
from bench.run.local import Helpers, LocalWorkers
from bench.run.question_runner import IN_FLIGHT
from bench.run.runner import CellResult, ProbeResult, probe_cells, run_cells
from bench.run.threads import Threads

if TYPE_CHECKING:
    from bench.run.ray.executor import RayExecutor

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S = 0.2
"""Seconds between checks while helper processes have locked all remaining cells."""


class Session:
    """Runs planned cells one after the other below one results folder."""

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
    ) -> None:
        """results: folder for everything that the run writes; hooks: observers of the run.

        timeout_s: maximum seconds for one answer or one document set's index; None: unlimited.
        executor: runs the questions; None: this process does. threads: the thread setting of this process;
        None: unchanged. alone: whether this is the only process of the command.
        """
        self.results = results
        self.in_flight, self.retry_failed = in_flight, retry_failed
        self.hooks = tuple(hooks)
        self.timeout_s = timeout_s
        self._threads, self._alone = threads, alone
        self._helpers = Helpers()
        self.executor = None if isinstance(executor, LocalWorkers) else executor
        self._local = executor if isinstance(executor, LocalWorkers) else LocalWorkers(1)

    @cached_property
    def indexes(self) -> IndexStore:
        """The index cache of this results folder."""
        return IndexStore(self.results / "indexes")

    def require_one_process(self, what: str) -> None:
        """Raise ConfigError if ``--workers`` asks for several local processes; ``what`` can only use one."""
        self._local.require_one(what)

    def run(self, cell: Cell, folder: Path | None = None) -> CellResult:
        """Run the cell's missing questions and notify the hooks; see :func:`bench.run.runner.run_cells`."""
        (result,) = self.run_together([(cell, folder)])
        return result

    def run_together(
        self, cells: Sequence[tuple[Cell, Path | None]], sweep: str | None = None
    ) -> list[CellResult]:
        """Run cells that one run per question serves, and mirror each; folder None: its place in results.

        sweep: name of the sweep they belong to, their parent run in MLflow. SIGTERM ends it as Ctrl-C does,
        with KeyboardInterrupt.
        """
        with _sigterm_as_interrupt():
            return self._run_together(cells, sweep)

    def _run_together(self, cells: Sequence[tuple[Cell, Path | None]], sweep: str | None) -> list[CellResult]:
        first = cells[0][0]
        for warning in first.data.warnings:
            log.warning("%s", warning)
        _require_fitness(first)
        places = [(cell, folder or cell.folder(self.results)) for cell, folder in cells]
        outcomes = run_cells(
            places,
            self.indexes,
            lambda: self.models(first),
            in_flight=self.in_flight,
            retry_failed=self.retry_failed,
            timeout_s=self.timeout_s,
            hooks=self.hooks,
            executor=self.executor,
        )
        own_files = [Path(first.request.data)] if first.data.source == "path" else []
        for (cell, _), result in zip(places, outcomes, strict=True):
            for hook in self.hooks:
                if result.answered:
                    hook.on_answered(_line(cell, result.summary))
                hook.on_cell_finished(result.folder, sweep=sweep, own_files=own_files)
        return outcomes

    @contextlib.contextmanager
    def preparing(self, cell: Cell) -> Iterator[Callable[[IndexProgress], None]]:
        """Inside the block the hooks show the cell, of which nothing is asked; yields their ``on_index``."""

        def notify(progress: IndexProgress) -> None:
            for hook in self.hooks:
                hook.on_index(progress)

        for hook in self.hooks:
            hook.on_start([cell], [{}])
        try:
            yield notify
        finally:
            for hook in self.hooks:
                hook.on_stop()

    def finish_sweep(self, name: str, folders: Sequence[Path]) -> None:
        """Notify the hooks that all cells of a sweep are complete."""
        for hook in self.hooks:
            hook.on_sweep_finished(name, folders)

    @contextlib.contextmanager
    def with_helpers(
        self, groups: Sequence[Sequence[tuple[Cell, Path | None]]], purpose: str = ""
    ) -> Iterator[None]:
        """Inside the block, helper processes on this machine, if any, run groups too.

        Each group is an argument of :meth:`run_together`, which the caller still calls for every group, best
        in the order of :meth:`unlocked_first`: it skips what a helper has finished. purpose: as in
        :meth:`bench.run.hooks.RunHooks.on_plan`.
        """
        missing: list[list[tuple[CellRequest, Path]]] = []
        cells = questions = parameters = 0
        for group in groups:
            places = [(cell, folder or cell.folder(self.results)) for cell, folder in group]
            left = [(cell, folder) for cell, folder in places if finished_summary(cell, folder) is None]
            if not left:
                continue
            missing.append([(cell.request, folder) for cell, folder in places])
            cells += len(left)
            questions += sum(len(cell.data.examples) - _lines(folder / RECORDS_FILE) for cell, folder in left)
            largest = max(spec.architecture.parameters for spec in left[0][0].roles.values())
            parameters = max(parameters, largest)
        for hook in self.hooks if missing else ():
            hook.on_plan(cells, questions, purpose)

        def notify(progress: HelperProgress) -> None:
            for hook in self.hooks:
                hook.on_helper_progress(progress)

        with self._local.helping(
            missing, self.results, self.in_flight, self.timeout_s, parameters=parameters, on_progress=notify
        ) as self._helpers:
            self._alone = not self._helpers.count
            yield

    def unlocked_first(self, items: Iterable[T], folders: Callable[[T], Iterable[Path]]) -> Iterator[T]:
        """The items, each as soon as none of its folders is locked by another process.

        Waits while helper processes have locked everything that is left.
        """
        left = list(items)
        while left:
            free = (at for at, item in enumerate(left) if not any(map(is_locked, folders(item))))
            at = next(free, None)
            if at is None and self._helpers.working:
                time.sleep(POLL_S)
                continue
            yield left.pop(at or 0)

    def close(self) -> None:
        """Release the executor's workers and close the hooks."""
        if self.executor is not None:
            self.executor.close()
        for hook in self.hooks:
            hook.close()

    def probe(self, cells: Sequence[tuple[Cell, Path | None]], questions: int) -> ProbeResult:
        """Ask a few of the missing questions and time them; see :func:`bench.run.runner.probe_cells`."""
        _require_fitness(cells[0][0])
        places = [(cell, folder or cell.folder(self.results)) for cell, folder in cells]
        with _sigterm_as_interrupt():
            return probe_cells(
                places,
                self.indexes,
                lambda: self.models(cells[0][0]),
                questions,
                in_flight=self.in_flight,
                timeout_s=self.timeout_s,
                executor=self.executor,
            )

    def models(self, cell: Cell) -> ModelSet:
        """The models of a cell, each loaded on first use, in as many threads as pay."""
        from bench.models.model_set import LoadedModels

        if self._threads is not None:
            self._threads.settle(cell.roles.values(), alone=self._alone)
        return LoadedModels(cell.roles, self.in_flight)


def _require_fitness(cell: Cell) -> None:
    """Warn of small models on text that they cannot read; raise ConfigError where the user named none."""
    if cell.unfit and not cell.request.model_named:
        raise ConfigError(refusal(cell.unfit))
    if cell.unfit:
        log.warning("%s", caution(cell.unfit))


def _line(cell: Cell, summary: Summary) -> str:
    """A finished cell with its score, for the terminal."""
    metric = cell.card.metrics[0]
    failed = f", {summary.n_failed} failed" if summary.n_failed else ""
    score = summary.interval(metric)
    scored = "" if score is None else f"{METRIC_LABELS[metric]} {100 * score.mean:.1f} %, "
    return f"{cell.name}: {scored}{summary.n} question{'' if summary.n == 1 else 's'}{failed}"


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Inside the block SIGTERM, which schedulers send, raises KeyboardInterrupt; in the main thread only."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
