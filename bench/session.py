"""One process's run of several cells: models loaded once, indexes shared, each cell mirrored when done."""

from __future__ import annotations

import atexit
import contextlib
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bench.asking import IN_FLIGHT
from bench.cell import Cell, CellRequest
from bench.cell_folder import finished_summary
from bench.executors.local_workers import LocalWorkers
from bench.index_store import IndexStore
from bench.models.api import ModelSet
from bench.progress import Progress
from bench.runner import CellResult, Probed, probe_cells, run_cells
from bench.system_metrics import SystemMonitor

if TYPE_CHECKING:
    from bench.executors.ray_executor import RayExecutor
    from bench.tracking.background import BackgroundMirror

log = logging.getLogger(__name__)


class Session:
    """Runs planned cells one after the other below one results folder."""

    def __init__(
        self,
        results: Path,
        *,
        in_flight: int = IN_FLIGHT,
        retry_failed: bool = False,
        timeout_s: float | None = None,
        track: bool = True,
        trace: bool = False,
        executor: RayExecutor | LocalWorkers | None = None,
    ) -> None:
        """results: where everything is written; track: mirror finished cells into MLflow.

        trace: show there how each question was answered. timeout_s: most seconds for one answer or one
        document set's index; None: any number. executor: where questions are worked on; None: here alone.
        """
        self.results = results
        self.in_flight, self.retry_failed = in_flight, retry_failed
        self.track, self.trace = track, trace
        self._mirror: BackgroundMirror | None = None
        self.timeout_s = timeout_s
        self.executor = None if isinstance(executor, LocalWorkers) else executor
        self._local = executor if isinstance(executor, LocalWorkers) else LocalWorkers(1)

    @cached_property
    def indexes(self) -> IndexStore:
        """The index cache of this results folder."""
        return IndexStore(self.results / "indexes")

    @staticmethod
    def title(cell: Cell) -> str:
        """Method, data and model as every line and bar names them."""
        small = ", a small stand-in" if cell.reader.small else ""
        return f"{cell.request.method} on {cell.data.label} with {cell.reader.label}{small}"

    def run(self, cell: Cell, folder: Path | None = None) -> CellResult:
        """Run what the cell misses and mirror it; see :func:`bench.runner.run_cells`."""
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
        title = self.title(first) + (f", {len(cells)} cells" if len(cells) > 1 else "")
        with SystemMonitor() as monitor, Progress(title, first.card.metrics[0]) as progress:
            found = run_cells(
                places,
                self.indexes,
                lambda: self._models(first),
                in_flight=self.in_flight,
                retry_failed=self.retry_failed,
                timeout_s=self.timeout_s,
                progress=progress,
                executor=self.executor,
            )
        monitor.write([result.folder for result in found if result.answered])
        if self.track:
            own_files = [Path(first.request.data)] if first.data.source == "path" else []
            for result in found:
                self._mirrored().add(result.folder, parent=sweep, trace=self.trace, own_files=own_files)
        return found

    @contextlib.contextmanager
    def helped(self, groups: Sequence[Sequence[tuple[Cell, Path | None]]]) -> Iterator[None]:
        """Inside the block further processes of this machine, if there are to be any, run groups as well.

        Each group is what :meth:`run_together` takes, and what is left of it that method does.
        """
        missing: list[list[tuple[CellRequest, Path]]] = []
        for group in groups if groups and self._local.count > 1 else ():
            places = [(cell, folder or cell.folder(self.results)) for cell, folder in group]
            if any(finished_summary(cell, folder) is None for cell, folder in places):
                missing.append([(cell.request, folder) for cell, folder in places])
        with self._local.helping(missing, self.results, self.in_flight, self.timeout_s):
            yield

    def draw_sweep(self, name: str, folders: Sequence[Path]) -> None:
        """Show the figures of a sweep in MLflow, once its cells are."""
        if self.track:
            self._mirrored().add_sweep(name, list(folders))

    def close(self) -> None:
        """Give workers back, and wait until MLflow shows what was run, but never long for a dead server."""
        if self.executor is not None:
            self.executor.close()
        if self._mirror is not None:
            self._mirror.finish()

    def _mirrored(self) -> BackgroundMirror:
        """The mirror beside the run, started with the first cell and finished at the latest at exit."""
        if self._mirror is None:
            from bench.tracking.background import BackgroundMirror

            self._mirror = BackgroundMirror(self.results)
            atexit.register(self.close)
        return self._mirror

    def probe(self, cells: Sequence[tuple[Cell, Path | None]], questions: int) -> Probed:
        """Ask a few of the missing questions and time them; see :func:`bench.runner.probe_cells`."""
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

        return LoadedModels(cell.roles)


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
