"""How long one answer takes: questions asked one at a time, on the machine at hand, with the index ready.

The records' own ``wall_s`` will not do: there, many questions are in flight at once and wait for each other.
Here the first questions of a finished cell are answered again, alone, after one from the end of the data
that is not counted (it loads and warms up the models). What is measured depends on the machine, so it is no
record: it is kept apart, with the machine, and a table says what it was measured on; on another machine it is
measured again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.flops.meter import Meter, metered
from bench.method.validation import require_prediction
from bench.models.api import ModelSet
from bench.models.spec import cuda_available
from bench.results.index_store import IndexStore
from bench.run.cell import Cell
from bench.run.question_runner import make_ready
from bench.run.redaction import fault_text
from bench.run.session import Session
from bench.schema import Example, Index, JsonValue
from bench.tables.caption import about_times, caption, not_timed, without_values
from bench.tables.cells import Plan, TableCell, TableData
from bench.tables.formats import DASH, three_digits
from bench.tables.notes import notes_of
from bench.tables.plain import PlainTable
from bench.tables.published import Published

log = logging.getLogger(__name__)

FOLDER = "query_times"
"""Below the results folder."""
QUESTIONS = 5
"""Questions timed of a cell.  # our choice"""
VERSION = 3


@dataclass(frozen=True)
class QueryTime:
    """The seconds that answers of one cell took."""

    version: int
    cell_id: str
    seconds: tuple[float, ...]
    """One for each question that was answered, in the order of the data."""
    machine: str
    """What they were measured on."""
    load: float | None
    """Load average of that machine over the last minute of it; above the threads used, others ran beside."""

    @property
    def mean(self) -> float:
        """Seconds per question."""
        return statistics.fmean(self.seconds)


def machine() -> str:
    """Processor or GPU, and how many threads torch uses, in words."""
    import torch

    if cuda_available():
        return torch.cuda.get_device_name()
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"


def stored_time(cell: Cell, results: Path) -> QueryTime | None:
    """What was measured of the cell before; None where nothing was, or by another version."""
    try:
        stored: dict[str, JsonValue] = json.loads(_path(cell, results).read_bytes())
    except (OSError, ValueError):
        return None
    if stored.get("version") != VERSION:
        return None
    return QueryTime(VERSION, stored["cell_id"], tuple(stored["seconds"]), stored["machine"], stored["load"])


def measure(cell: Cell, results: Path, models: ModelSet, questions: int = QUESTIONS) -> QueryTime | None:
    """The time of the cell's first questions, each answered alone; kept below the results folder.

    The cell must be finished, so that its indexes are there. A question that fails, as it may have when the
    cell was run, is not timed; None where none of them can be answered. Raises BenchError where the set-up is
    at fault.
    """
    times = asyncio.run(_answer_alone(cell, results, models, questions))
    if not times:
        log.warning("%s: none of the first %d questions could be answered", cell.identity.folder, questions)
        return None
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    seconds = tuple(round(time_s, 4) for time_s in times)
    measured = QueryTime(VERSION, cell.identity.cell_id, seconds, machine(), load)
    write_json(_path(cell, results), asdict(measured))
    return measured


async def _answer_alone(cell: Cell, results: Path, models: ModelSet, questions: int) -> list[float]:
    examples = cell.data.examples
    store = IndexStore(results / "indexes")
    indexes: dict[str, Index] = {}

    async def seconds(example: Example) -> float | None:
        try:
            documents, question = example.documents, cell.question(example)
            if documents.id not in indexes:
                indexes.update((await make_ready(cell, store, models, [documents])).indexes)
            started = time.perf_counter()
            with metered(Meter()):
                answer = await cell.method.answer(indexes[documents.id], question, models)
            elapsed_s = time.perf_counter() - started
            require_prediction(answer, documents)
        except BenchError:
            raise  # the set-up is at fault, not the question
        except Exception as fault:  # fails its question alone, as in a run
            log.warning("question %s failed and is not timed: %s", example.id, fault_text(fault))
            return None
        return elapsed_s

    for example in reversed(examples[-questions:]):  # not counted: it loads what is loaded on first use
        if await seconds(example) is not None:
            break
    times = [await seconds(example) for example in examples[:questions]]
    return [elapsed_s for elapsed_s in times if elapsed_s is not None]


def _path(cell: Cell, results: Path) -> Path:
    return results / FOLDER / f"{cell.identity.folder}.json"


def timed_table(
    table: TableData,
    planned: Mapping[tuple[str, str], Plan],
    published: Mapping[tuple[str, str, str], Published],
    session: Session | None,
    results: Path,
) -> PlainTable:
    """A line for each row and data set: seconds and TFLOPs per question, beside the published seconds.

    session: answers what was not timed yet on this machine; None: what was is shown, other cells stay empty,
    and a footnote names them.
    """
    from bench.models.model_set import LoadedModels

    columns = ("Data and method", "seconds", "slowest", "questions", "TFLOPs", "publ. seconds")
    rows, times, untimed = [], [], []
    for dataset in table.definition.datasets:
        for row in table.definition.rows:
            cell, plan = table.cells[row.id, dataset], planned[row.id, dataset]
            measured = None
            if cell.summary is not None and isinstance(plan, Cell):
                measured = stored_time(plan, results)
                if session is not None and (measured is None or measured.machine != machine()):
                    measured = measure(plan, results, LoadedModels(plan.roles))
            printed = published.get((row.id, dataset, "seconds"))
            rows.append(_line(cell, measured, None if printed is None else printed.value))
            times += [measured] if measured else []
            untimed += [rows[-1][0]] if measured is None and cell.summary is not None else []
    machines = {measured.machine for measured in times}
    loads = [measured.load for measured in times if measured.load is not None]
    notes = notes_of(table)
    return PlainTable(
        table.definition.id,
        table.definition.title,
        columns,
        tuple(rows),
        (about_times(QUESTIONS, machines, loads), *caption(notes)),
        (*without_values(notes), *not_timed(untimed)),
    )


def _line(cell: TableCell, measured: QueryTime | None, printed: float | None) -> tuple[str, ...]:
    label = f"{cell.data}: {cell.row.label}"
    tflops = DASH if cell.summary is None else three_digits(cell.summary.tflops)
    publ = DASH if printed is None else f"{printed:g}"
    if measured is None:
        return label, DASH, DASH, DASH, tflops, publ
    return (
        label,
        f"{measured.mean:.2f}",
        f"{max(measured.seconds):.2f}",
        str(len(measured.seconds)),
        tflops,
        publ,
    )
