"""Latency of one answer: questions asked one at a time on this machine, with the index ready.

The ``wall_s`` of records does not measure it: there, many questions run concurrently and wait for each other.
Here the first questions of a finished cell are answered again one by one, after one from the end of the data
that loads the models. Two times are measured: ranking alone, which is what Graph of Records prints (Sec. 3.5:
without "the inference time brought by the LLM itself"), and ranking with reading. Both include
:meth:`Method.finish <bench.method.contract.Method.finish>`, since a question on a new document waits for it.
Before each question the models forget what they have read. The times depend on the machine, so they are not
part of the records: they are stored with the machine's name, and another machine measures them again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.flops.meter import Meter, metered
from bench.method.ranking import PickAndRead
from bench.models.spec import cuda_available
from bench.results.index_store import IndexStore
from bench.run.cell import Cell
from bench.run.question_runner import prepare
from bench.run.redaction import fault_text
from bench.run.session import Session
from bench.schema import Example
from bench.tables.caption import about_times, caption, listed, without_values
from bench.tables.cells import Plans, TableCell, TableData
from bench.tables.formats import DASH, TextTable, plain_table, three_digits
from bench.tables.published import PublishedValues, as_printed

log = logging.getLogger(__name__)

FOLDER = "query_times"
"""Name of the folder of measured times in the results folder."""
QUESTIONS = 5
"""Number of questions timed per cell.  # our choice"""
COLUMNS = ("Data and method", "ranking, s", "publ. ranking, s", "with reader, s", "questions", "TFLOPs")


@dataclass(frozen=True)
class QueryTime:
    """Measured latencies of one cell."""

    seconds: list[float]
    """Ranking and reading, for each answered question, in the order of the data."""
    ranking: list[float]
    """Ranking alone, for each of them; empty if the method does not rank once per question."""
    machine: str
    """The machine on which they were measured."""


def machine() -> str:
    """Name of the GPU, or of the processor with the number of threads that torch uses."""
    import torch

    if cuda_available():
        return torch.cuda.get_device_name()
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"


def stored_time(cell: Cell, results: Path) -> QueryTime | None:
    """The stored latencies of the cell; None if there are none."""
    try:
        return QueryTime(**json.loads(_path(cell, results).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def measure(cell: Cell, results: Path, questions: int = QUESTIONS) -> QueryTime | None:
    """Measure the latency of the cell's first questions, each answered alone, and store it in ``results``.

    The cell must be finished, so that its indexes exist. A question that fails, as it may have in the run, is
    not timed; returns None if none of them can be answered. Raises BenchError for a fault of the setup.
    """
    times = asyncio.run(_answer_alone(cell, results, questions))
    if not times:
        log.warning("%s: none of the first %d questions could be answered", cell.identity.folder, questions)
        return None
    ranking = [round(rank_s, 6) for _, rank_s in times if rank_s is not None]
    measured = QueryTime([round(answer_s, 4) for answer_s, _ in times], ranking, machine())
    write_json(_path(cell, results), asdict(measured))
    return measured


async def _answer_alone(cell: Cell, results: Path, questions: int) -> list[tuple[float, float | None]]:
    """Seconds of each answer, and of its ranking alone; the first, which loads the models, is left out."""
    from bench.models.model_set import LoadedModels, forget_all

    method, models, store = cell.method, LoadedModels(cell.roles), IndexStore(results / "indexes")

    async def clocked(example: Example) -> tuple[float, float | None]:
        documents, question = example.documents, cell.question(example)
        ready = await prepare(cell, store, models, [documents])
        forget_all()
        with metered(Meter()):
            started, rank_s = time.perf_counter(), None
            index = method.finish(ready.indexes[documents.id], ready.learned)
            if isinstance(method, PickAndRead) and type(method).replay is PickAndRead.replay:
                ranked = await method.rank(index, question, models)
                positions = method.pick(ranked, method.config).positions
                rank_s = time.perf_counter() - started
                await method.read_picked(ranked, positions, question, models)
            else:
                await method.answer(index, question, models)
            return time.perf_counter() - started, rank_s

    times = []
    for number, example in enumerate([cell.data.examples[-1], *cell.data.examples[:questions]]):
        try:
            taken = await clocked(example)
        except BenchError:
            raise  # the setup is at fault, not the question
        except Exception as fault:  # fails only its own question, as in a run
            log.warning("question %s failed and is not timed: %s", example.id, fault_text(fault))
        else:
            times += [taken] if number else []
    return times


def _path(cell: Cell, results: Path) -> Path:
    return results / FOLDER / f"{cell.identity.folder}.json"


def timed_table(table: TableData, planned: Plans, published: PublishedValues, session: Session) -> TextTable:
    """One line per row and data set: seconds of ranking with the published ones, and with the reader.

    Cells that were not timed on this machine are measured now. If the session runs nothing, only stored
    latencies are shown, and a footnote names the cells without.
    """
    machines: set[str] = set()
    untimed: list[str] = []

    def values(cell: TableCell) -> list[str]:
        place = cell.row.id, cell.dataset
        plan, measured = planned[place], None
        if cell.summary is not None and isinstance(plan, Cell):
            measured = stored_time(plan, session.results)
            if session.compute and (measured is None or measured.machine != machine()):
                measured = measure(plan, session.results)
        if measured is not None:
            machines.add(measured.machine)
        elif cell.summary is not None:
            untimed.append(f"{cell.data}: {cell.row.label}")
        return [
            three_digits(fmean(measured.ranking)) if measured and measured.ranking else DASH,
            as_printed(published, (*place, "seconds")),
            f"{fmean(measured.seconds):.2f}" if measured else DASH,
            str(len(measured.seconds)) if measured else DASH,
            DASH if cell.summary is None else three_digits(cell.summary.tflops),
        ]

    lines = table.lines(values)
    return plain_table(
        table.definition.id,
        table.definition.title,
        COLUMNS,
        lines,
        (about_times(QUESTIONS, machines), *caption(table)),
        (*without_values(table), *listed("Not timed, or no question could be answered", untimed)),
    )
