"""Run cells: ask every question that has no record yet, and write each record at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.files.atomic import allow_open_files
from bench.models.conversation import ModelSet
from bench.results.finished import FinishedCell
from bench.results.index_store import IndexStore
from bench.results.records import Record, RecordStore
from bench.run.cell import Cell
from bench.run.cell_folder import FILES_OF_A_CELL, cell_so_far, finish, open_records
from bench.run.hooks import IndexProgress, RunHooks
from bench.run.question_runner import IN_FLIGHT, QuestionRunner, await_uncancelled
from bench.schema import Example

if TYPE_CHECKING:
    from bench.run.ray.executor import RayExecutor


@dataclass(frozen=True)
class Asking:
    """How the questions of a run are asked."""

    in_flight: int = IN_FLIGHT
    """Concurrent questions, per worker where an executor has several."""
    retry_failed: bool = False
    """Repeat questions whose record is a failure."""
    timeout_s: float | None = None
    """Most seconds for one answer or for the index of one document set (:mod:`bench.run.time_limit`);
    anything longer is a failure. None: unlimited."""
    hooks: Sequence[RunHooks] = ()
    """Notified of the start, of every record and of the end."""
    executor: RayExecutor | None = None
    """Its workers run the questions, with models of their own; None: this process does."""
    first: int | None = None
    """Only this many questions of each cell, from the start; None: all."""

    def kept(self, store: RecordStore) -> Mapping[str, Record]:
        """The records of questions that are not asked again."""
        if not self.retry_failed:
            return store.done
        return {example: record for example, record in store.done.items() if record.error is None}


def run_group(
    cells: Sequence[Cell],
    results: Path,
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    asking: Asking = Asking(),  # noqa: B008 - immutable
) -> list[FinishedCell]:
    """Run the cells until every question has a record, or each of the first ones where only they are asked.

    Finished questions are never asked again.

    Several cells must differ only in options that their method replays: each question is then asked
    once, and every cell's record is derived from that run. models: called once, if a question is missing.
    Raises BenchError if a folder belongs to another cell or cannot be written. An exception in one question
    is recorded as its failure; an interruption leaves every finished record in place.
    """
    allow_open_files(FILES_OF_A_CELL * len(cells))
    with ExitStack() as stack:
        # Always in the same order, so that two runs never wait for each other.
        by_folder = {
            folder: stack.enter_context(open_records(cell, folder))
            for folder, cell in sorted((cell.folder(results), cell) for cell in cells)
        }
        stores = [by_folder[cell.folder(results)] for cell in cells]
        before = [len(asking.kept(store)) for store in stores]
        _ask_missing(cells, stores, indexes, models, asking)
        return [
            _outcome(cell, store, asking, len(store.done) - asked)
            for cell, store, asked in zip(cells, stores, before, strict=True)
        ]


def _outcome(cell: Cell, store: RecordStore, asking: Asking, answered: int) -> FinishedCell:
    if len(store.done) == len(cell.data.examples):
        return finish(cell, store, answered)
    so_far = cell_so_far(cell, store.folder, asking.first)
    assert so_far is not None
    return replace(so_far, answered=answered)


def _ask_missing(
    cells: Sequence[Cell],
    stores: Sequence[RecordStore],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    asking: Asking,
) -> None:
    """Ask every question, or every one of the first, that has no record in one of the cells."""
    wanted = cells[0].data.examples[: asking.first]
    kept = [asking.kept(store) for store in stores]  # the failures stay until there is something better
    pending = [e for e in wanted if any(e.id not in done for done in kept)]
    for hook in asking.hooks:
        hook.on_start(cells, kept)
    try:
        if pending:
            cells[0].require_packages()
            limits = asking.timeout_s, asking.in_flight
            if asking.executor is not None:
                runner: QuestionRunner = asking.executor.question_runner(cells, indexes, *limits)
            else:
                runner = QuestionRunner(cells, indexes, models(), *limits)
            asyncio.run(_ask_all(runner, pending, kept, stores, asking.hooks))
    finally:
        for hook in asking.hooks:
            hook.on_stop()


async def _ask_all(
    runner: QuestionRunner,
    examples: Sequence[Example],
    kept: Sequence[Mapping[str, Record]],
    stores: Sequence[RecordStore],
    hooks: Sequence[RunHooks],
) -> None:
    """Work through the examples in order, at most ``runner.at_once`` at a time."""
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
            missing = [at for at, done in enumerate(kept) if example.id not in done]
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
    async with runner.working():
        await runner.learn()
        with ThreadPoolExecutor(1, "records") as disk:
            ahead = asyncio.create_task(runner.build_ahead(list(sets.values()), on_index))
            workers = [asyncio.create_task(worker(disk)) for _ in range(min(runner.at_once, len(examples)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for task in (ahead, *workers):
                    task.cancel()
                await asyncio.gather(ahead, *workers, return_exceptions=True)
