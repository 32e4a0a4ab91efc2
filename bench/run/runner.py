"""Run cells: ask every question that has no record yet, and write each record at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.errors import BenchError
from bench.files.atomic import allow_open_files
from bench.models.api import ModelSet
from bench.results.index_store import IndexStore
from bench.results.models import Summary
from bench.results.records import Record, RecordStore
from bench.run.cell import Cell
from bench.run.cell_folder import FILES_OF_A_CELL, finish, finished_summary, open_records
from bench.run.hooks import IndexProgress, RunHooks
from bench.run.question_runner import IN_FLIGHT, QuestionRunner, await_uncancelled
from bench.run.time_limit import TimeLimit
from bench.schema import Example


class Executor(Protocol):
    """Runs questions outside this process (:mod:`bench.run.executors`)."""

    def question_runner(
        self, cells: Sequence[Cell], indexes: IndexStore, limit: TimeLimit, in_flight: int
    ) -> QuestionRunner:
        """A runner for cells that share one run per question; the caller writes the records.

        in_flight: concurrent questions per worker.
        """


@dataclass(frozen=True)
class CellResult:
    """A cell whose every question has a record."""

    folder: Path
    summary: Summary
    answered: int
    """Questions answered by this run; 0 if the cell was already finished."""


def run_cell(
    cell: Cell,
    folder: Path,
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    *,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
    timeout_s: float | None = None,
    hooks: Sequence[RunHooks] = (),
) -> CellResult:
    """Run ``cell`` until every question has a record in ``folder``; see :func:`run_cells`."""
    (result,) = run_cells(
        [(cell, folder)],
        indexes,
        models,
        in_flight=in_flight,
        retry_failed=retry_failed,
        timeout_s=timeout_s,
        hooks=hooks,
    )
    return result


def run_cells(
    cells: Sequence[tuple[Cell, Path]],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    *,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
    timeout_s: float | None = None,
    hooks: Sequence[RunHooks] = (),
    executor: Executor | None = None,
) -> list[CellResult]:
    """Run the cells until every question has a record; finished questions are never asked again.

    Several cells must differ only in options that their method replays: each question is then asked
    once, and every cell's record is derived from that run. A cell that is listed twice runs once.
    models: called once, only if a question is missing. in_flight: concurrent questions.
    retry_failed: repeat questions whose record is a failure. timeout_s: maximum seconds for one answer or
    for the index of one document set (:mod:`bench.run.time_limit`); anything longer is a failure.
    hooks: notified of the start, of every record and of the end. executor: runs the questions, with models
    of its own; by default this process does.
    Raises BenchError if a folder belongs to another cell or cannot be written. An exception in one question
    is recorded as its failure; an interruption leaves every finished record in place.
    """
    distinct = _distinct(cells)
    results: dict[Path, CellResult] = {}
    for place, (cell, folder) in distinct.items():
        done = finished_summary(cell, folder)
        if done is not None and not (retry_failed and done.n_failed):
            results[place] = CellResult(folder, done, 0)
    allow_open_files(FILES_OF_A_CELL * len(distinct.keys() - results.keys()))
    with ExitStack() as stack:
        open_cells: dict[Path, tuple[Cell, RecordStore]] = {}
        # Always in the same order, so that two runs never wait for each other.
        for place in sorted(distinct.keys() - results.keys()):
            cell, folder = distinct[place]
            store = stack.enter_context(open_records(cell, folder))
            if retry_failed:
                store.discard([i for i, record in store.done.items() if record.error is not None])
            open_cells[place] = (cell, store)
        before = {place: len(store.done) for place, (_, store) in open_cells.items()}
        unfinished = [open_cells[place] for place in distinct if place in open_cells]
        _ask_missing(unfinished, indexes, models, in_flight, TimeLimit(timeout_s), hooks, executor)
        for place, (cell, store) in open_cells.items():
            summary = finish(cell, store)
            results[place] = CellResult(store.folder, summary, len(store.done) - before[place])
    return [results[folder.resolve()] for _, folder in cells]


def _distinct(cells: Sequence[tuple[Cell, Path]]) -> dict[Path, tuple[Cell, Path]]:
    """Resolved folder -> cell and folder, each once; raises BenchError for two cells in one folder."""
    distinct: dict[Path, tuple[Cell, Path]] = {}
    for cell, folder in cells:
        other, _ = distinct.setdefault(folder.resolve(), (cell, folder))
        if other.identity.cell_id != cell.identity.cell_id:
            raise BenchError(
                f"{folder} would hold the records of two cells ({other.identity.cell_id} and "
                f"{cell.identity.cell_id}). Give each its own folder."
            )
    return distinct


@dataclass(frozen=True)
class ProbeResult:
    """How long a few questions took; their records count like any others."""

    asked: int
    answer_s: float
    indexed: int
    """Document sets whose index had to be built."""
    index_s: float


def probe_cells(
    cells: Sequence[tuple[Cell, Path]],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    questions: int,
    *,
    in_flight: int = IN_FLIGHT,
    timeout_s: float | None = None,
    executor: Executor | None = None,
) -> ProbeResult:
    """Ask the first ``questions`` that have no record yet, as :func:`run_cells` would, and time them.

    The cells stay unfinished; run_cells resumes from there. A method with training is trained here, before
    the first question. Raises BenchError like run_cells.
    """
    allow_open_files(FILES_OF_A_CELL * len(cells))
    with ExitStack() as stack:
        by_place = {
            place: stack.enter_context(open_records(cell, path))
            for place, (cell, path) in sorted(_distinct(cells).items())
        }
        stores = [by_place[folder.resolve()] for _, folder in cells]
        missing = [e for e in cells[0][0].data.examples if any(e.id not in s.done for s in stores)]
        planned, limit = [cell for cell, _ in cells], TimeLimit(timeout_s)
        runner = _question_runner(planned, indexes, models, in_flight, limit, executor)
        return asyncio.run(_probe(runner, missing[:questions], stores))


async def _probe(
    runner: QuestionRunner, examples: Sequence[Example], stores: Sequence[RecordStore]
) -> ProbeResult:
    sets = {example.documents.id: example.documents for example in examples}
    async with runner.working():
        await runner.learn()
        new = [documents for documents in sets.values() if not runner.has_index(documents)]
        started = time.perf_counter()
        await runner.build_ahead(new)
        built = time.perf_counter()
        await _ask_in_order(runner, examples, stores, ())
        return ProbeResult(len(examples), time.perf_counter() - built, len(new), built - started)


def _ask_missing(
    cells: Sequence[tuple[Cell, RecordStore]],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    in_flight: int,
    limit: TimeLimit,
    hooks: Sequence[RunHooks],
    executor: Executor | None,
) -> None:
    """Ask every question that has no record in one of the cells."""
    if not cells:
        return
    examples = cells[0][0].data.examples
    pending = [example for example in examples if any(example.id not in s.done for _, s in cells)]
    planned = [cell for cell, _ in cells]
    for hook in hooks:
        hook.on_start(planned, [store.done for _, store in cells])
    try:
        if pending:
            runner = _question_runner(planned, indexes, models, in_flight, limit, executor)
            asyncio.run(_ask_all(runner, pending, [store for _, store in cells], hooks))
    finally:
        for hook in hooks:
            hook.on_stop()


def _question_runner(
    cells: Sequence[Cell],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    in_flight: int,
    limit: TimeLimit,
    executor: Executor | None,
) -> QuestionRunner:
    cells[0].require_packages()
    if executor is not None:
        return executor.question_runner(cells, indexes, limit, in_flight)
    return QuestionRunner(cells, indexes, models(), limit, in_flight)


async def _ask_all(
    runner: QuestionRunner,
    examples: Sequence[Example],
    stores: Sequence[RecordStore],
    hooks: Sequence[RunHooks],
) -> None:
    """Work through the examples in order, at most ``runner.at_once`` at a time."""
    async with runner.working():
        await runner.learn()
        await _ask_in_order(runner, examples, stores, hooks)


async def _ask_in_order(
    runner: QuestionRunner,
    examples: Sequence[Example],
    stores: Sequence[RecordStore],
    hooks: Sequence[RunHooks],
) -> None:
    queue = iter(examples)
    loop = asyncio.get_running_loop()

    def on_index(progress: IndexProgress) -> None:
        for hook in hooks:
            hook.on_index(progress)

    def write(records: Sequence[tuple[int, Record]]) -> None:
        for at, record in records:
            stores[at].append(record)

    async def worker(disk: ThreadPoolExecutor) -> None:
        for example in queue:
            missing = [at for at, store in enumerate(stores) if example.id not in store.done]
            records = await runner.ask(example, missing)
            # Waiting for the disk delays only this question; an answer is written even if cancelled here.
            await await_uncancelled(
                loop.run_in_executor(disk, write, list(zip(missing, records, strict=True)))
            )
            for record in records:
                for hook in hooks:
                    hook.on_record(record)

    # Questions on one document wait for one index; others are built ahead, so that the model always has
    # work from many documents.
    sets = {example.documents.id: example.documents for example in examples}
    with ThreadPoolExecutor(1, "records") as disk:
        ahead = asyncio.create_task(runner.build_ahead(list(sets.values()), on_index))
        workers = [asyncio.create_task(worker(disk)) for _ in range(min(runner.at_once, len(examples)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in (ahead, *workers):
                task.cancel()
            await asyncio.gather(ahead, *workers, return_exceptions=True)
