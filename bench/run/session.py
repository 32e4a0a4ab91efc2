"""One process's run of several cells: models loaded once, indexes shared, each cell mirrored when done."""

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

from bench.models.api import ModelSet
from bench.results.index_store import IndexStore
from bench.results.json_lines import is_locked
from bench.results.models import Summary
from bench.results.records import RECORDS_FILE
from bench.run.cell import Cell, CellRequest
from bench.run.cell_folder import finished_summary
from bench.run.hooks import News, RunHooks
from bench.run.local import Helpers, LocalWorkers
from bench.run.question_runner import IN_FLIGHT
from bench.run.runner import CellResult, ProbeResult, probe_cells, run_cells
from bench.run.threads import Threads

if TYPE_CHECKING:
    from bench.run.ray.executor import RayExecutor

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_AGAIN_S = 0.2
"""Between looks at cells that are all held by further processes."""


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
        """results: where everything is written; hooks: who is told of the run.

        timeout_s: most seconds for one answer or one document set's index; None: any number. executor: where
        questions are worked on; None: here alone. threads: of this process; None: they are left as they
        are. alone: no other process of the same command works beside this one.
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
        """Raise ConfigError where several processes of this machine were asked for; ``what`` can use one."""
        self._local.require_one(what)

    def run(self, cell: Cell, folder: Path | None = None) -> CellResult:
        """Run what the cell misses and mirror it; see :func:`bench.run.runner.run_cells`."""
        (result,) = self.run_together([(cell, folder)])
        return result

    def run_together(
        self, cells: Sequence[tuple[Cell, Path | None]], sweep: str | None = None
    ) -> list[CellResult]:
        """Run cells that one run per question serves, and mirror each; folder None: its place in results.

        sweep: name of the sweep they belong to, their parent run in MLflow. SIGTERM ends it as Ctrl-C does,
        with KeyboardInterrupt.
        """
        with _terminated_like_interrupted():
            return self._run_together(cells, sweep)

    def _run_together(self, cells: Sequence[tuple[Cell, Path | None]], sweep: str | None) -> list[CellResult]:
        first = cells[0][0]
        for warning in first.data.warnings:
            log.warning("%s", warning)
        places = [(cell, folder or cell.folder(self.results)) for cell, folder in cells]
        found = run_cells(
            places,
            self.indexes,
            lambda: self._models(first),
            in_flight=self.in_flight,
            retry_failed=self.retry_failed,
            timeout_s=self.timeout_s,
            hooks=self.hooks,
            executor=self.executor,
        )
        own_files = [Path(first.request.data)] if first.data.source == "path" else []
        for (cell, _), result in zip(places, found, strict=True):
            for hook in self.hooks:
                if result.answered:
                    hook.on_answered(_line(cell, result.summary))
                hook.on_cell_finished(result.folder, sweep=sweep, own_files=own_files)
        return found

    def finish_sweep(self, name: str, folders: Sequence[Path]) -> None:
        """Tell the hooks that all cells of a sweep are complete."""
        for hook in self.hooks:
            hook.on_sweep_finished(name, folders)

    @contextlib.contextmanager
    def helped(self, groups: Sequence[Sequence[tuple[Cell, Path | None]]]) -> Iterator[None]:
        """Inside the block further processes of this machine, if there are to be any, run groups as well.

        Each group is what :meth:`run_together` takes, and what is left of it that method does; best in the
        order of :meth:`free_first`.
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
            hook.on_plan(cells, questions)

        def told(news: News) -> None:
            for hook in self.hooks:
                hook.on_news(news)

        with self._local.helping(
            missing, self.results, self.in_flight, self.timeout_s, parameters=parameters, told=told
        ) as self._helpers:
            self._alone = not self._helpers.count
            yield

    def free_first(self, waiting: Iterable[T], folders: Callable[[T], Iterable[Path]]) -> Iterator[T]:
        """What is waiting, that first whose folders nobody holds when it is taken.

        While further processes hold all that is left, they are waited for.
        """
        left = list(waiting)
        while left:
            free = (at for at, one in enumerate(left) if not any(map(is_locked, folders(one))))
            at = next(free, None)
            if at is None and self._helpers.working:
                time.sleep(LOOK_AGAIN_S)
                continue
            yield left.pop(at or 0)

    def close(self) -> None:
        """Give workers back, and let the hooks end."""
        if self.executor is not None:
            self.executor.close()
        for hook in self.hooks:
            hook.close()

    def probe(self, cells: Sequence[tuple[Cell, Path | None]], questions: int) -> ProbeResult:
        """Ask a few of the missing questions and time them; see :func:`bench.run.runner.probe_cells`."""
        places = [(cell, folder or cell.folder(self.results)) for cell, folder in cells]
        with _terminated_like_interrupted():
            return probe_cells(
                places,
                self.indexes,
                lambda: self._models(cells[0][0]),
                questions,
                in_flight=self.in_flight,
                timeout_s=self.timeout_s,
                executor=self.executor,
            )

    def _models(self, cell: Cell) -> ModelSet:
        from bench.models.model_set import LoadedModels

        if self._threads is not None:
            self._threads.settle(cell.roles.values(), alone=self._alone)
        return LoadedModels(cell.roles)


def _line(cell: Cell, summary: Summary) -> str:
    """A finished cell with its score."""
    metric = cell.card.metrics[0]
    failed = f", {summary.n_failed} failed" if summary.n_failed else ""
    score = 100 * summary.metrics[metric].mean
    return f"{cell.title}: {metric} {score:.1f}, {summary.n} questions{failed}"


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Inside the block SIGTERM, as schedulers send it, raises KeyboardInterrupt; in the main thread only."""
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
