"""Latency of one answer: questions asked one at a time on this machine, with the index ready.

The ``wall_s`` of records does not measure it: there, many questions run concurrently and wait for each other.
Here the first questions of a finished cell are answered again one by one, after an uncounted question from
the end of the data that loads and warms up the models. Two times are measured: ranking alone, which is what
Graph of Records prints (Sec. 3.5: without "the inference time brought by the LLM itself"), and ranking with
reading. Both include :meth:`Method.finish <bench.method.contract.Method.finish>`, since a question on a new
document waits for it: there, a graph network embeds nodes, and node2vec walks. Before each measurement the
keys and values that closed contexts left for others are dropped, and the embeddings of questions, so that
nothing of the question has been read before; only a server keeps its own. The times depend on the machine, so
they are not part of the records: they are stored separately with the machine's name, which the table prints,
and another machine measures them again.
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
from bench.method.ranking import PickAndRead
from bench.method.validation import require_prediction
from bench.models.conversation import LanguageModel, ModelSet
from bench.models.embedder import Embedder
from bench.models.language_model import CausalLanguageModel
from bench.models.presets import Pooling
from bench.models.spec import cuda_available
from bench.results.index_store import IndexStore
from bench.run.cell import Cell
from bench.run.question_runner import Prepared, prepare
from bench.run.redaction import fault_text
from bench.run.session import Session
from bench.schema import Example, Index, JsonValue, Question
from bench.tables.caption import about_times, caption, not_timed, without_values
from bench.tables.cells import Plan, TableCell, TableData
from bench.tables.formats import DASH, TextTable, plain_table, three_digits
from bench.tables.published import Published

log = logging.getLogger(__name__)

FOLDER = "query_times"
"""Name of the folder of measured times in the results folder."""
QUESTIONS = 5
"""Number of questions timed per cell.  # our choice"""
VERSION = 5


@dataclass(frozen=True)
class QueryTime:
    """Measured latencies of one cell."""

    version: int
    cell_id: str
    seconds: tuple[float, ...]
    """Ranking and reading, for each answered question, in the order of the data."""
    ranking: tuple[float, ...]
    """Ranking alone, for each of them; empty if the method does not rank once per question."""
    machine: str
    """The machine on which they were measured."""
    load: float | None
    """Load average of the machine over the last minute; above the threads used, other programs ran too."""

    @property
    def mean(self) -> float:
        """Mean seconds per question, reading included."""
        return statistics.fmean(self.seconds)

    @property
    def mean_ranking(self) -> float | None:
        """Mean seconds per question for ranking alone; None if the method does not rank."""
        return statistics.fmean(self.ranking) if self.ranking else None


def machine() -> str:
    """Name of the GPU, or of the processor with the number of threads that torch uses."""
    import torch

    if cuda_available():
        return torch.cuda.get_device_name()
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"


def stored_time(cell: Cell, results: Path) -> QueryTime | None:
    """The stored latencies of the cell; None if there are none of the current version."""
    try:
        stored: dict[str, JsonValue] = json.loads(_path(cell, results).read_bytes())
    except (OSError, ValueError):
        return None
    if stored.get("version") != VERSION:
        return None
    seconds, ranking = tuple(stored["seconds"]), tuple(stored["ranking"])
    return QueryTime(VERSION, stored["cell_id"], seconds, ranking, stored["machine"], stored["load"])


def measure(cell: Cell, results: Path, models: ModelSet, questions: int = QUESTIONS) -> QueryTime | None:
    """Measure the latency of the cell's first questions, each answered alone, and store it in ``results``.

    The cell must be finished, so that its indexes exist. A question that fails, as it may have in the run, is
    not timed; returns None if none of them can be answered. Raises BenchError for a fault of the setup.
    """
    times = asyncio.run(_answer_alone(cell, results, models, questions))
    if not times:
        log.warning("%s: none of the first %d questions could be answered", cell.identity.folder, questions)
        return None
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    seconds = tuple(round(one.answer_s, 4) for one in times)
    ranking = tuple(round(one.ranking_s, 6) for one in times if one.ranking_s is not None)
    measured = QueryTime(VERSION, cell.identity.cell_id, seconds, ranking, machine(), load)
    write_json(_path(cell, results), asdict(measured))
    return measured


@dataclass(frozen=True)
class _Clocked:
    """Latencies of one question, in seconds."""

    answer_s: float
    ranking_s: float | None


class _ColdModels:
    """A model set whose models can drop what they have read."""

    def __init__(self, models: ModelSet) -> None:
        self._models = models
        self._used: set[CausalLanguageModel | Embedder] = set()
        self.pair_scorer = models.pair_scorer

    def lm(self, role: str = "reader") -> LanguageModel:
        """The causal model in this role."""
        lm = self._models.lm(role)
        if isinstance(lm, CausalLanguageModel):
            self._used.add(lm)
        return lm

    def embedder(self, role: str = "embedder", *, pooling: Pooling | None = None) -> Embedder:
        """The text encoder in this role."""
        encoder = self._models.embedder(role, pooling=pooling)
        if isinstance(encoder, Embedder):
            self._used.add(encoder)
        return encoder

    def forget(self) -> None:
        """Drop the keys and values of closed contexts, and the embeddings of questions."""
        for model in self._used:
            model.forget()


async def _answer_alone(cell: Cell, results: Path, loaded: ModelSet, questions: int) -> list[_Clocked]:
    examples = cell.data.examples
    models = _ColdModels(loaded)
    store = IndexStore(results / "indexes")
    prepared: dict[str, Prepared] = {}

    async def clocked(example: Example) -> _Clocked | None:
        try:
            documents, question = example.documents, cell.question(example)
            if documents.id not in prepared:
                prepared[documents.id] = await prepare(cell, store, models, [documents])
            ready = prepared[documents.id]
            with metered(Meter()):
                models.forget()
                started = time.perf_counter()
                index = cell.method.finish(ready.indexes[documents.id], ready.learned)
                finish_s = time.perf_counter() - started
                rank_s = await _ranking_s(cell, index, question, models)
                models.forget()
                started = time.perf_counter()
                answer = await cell.method.answer(index, question, models)
                answer_s = time.perf_counter() - started
            require_prediction(answer, documents)
        except BenchError:
            raise  # the setup is at fault, not the question
        except Exception as fault:  # fails only its own question, as in a run
            log.warning("question %s failed and is not timed: %s", example.id, fault_text(fault))
            return None
        return _Clocked(finish_s + answer_s, None if rank_s is None else finish_s + rank_s)

    for example in reversed(examples[-questions:]):  # warm-up
        if await clocked(example) is not None:
            break
    times = [await clocked(example) for example in examples[:questions]]
    return [one for one in times if one is not None]


async def _ranking_s(cell: Cell, index: Index, question: Question, models: ModelSet) -> float | None:
    """Seconds from the question to the selected passages; None if the method does not rank."""
    method = cell.method
    if not isinstance(method, PickAndRead):
        return None
    started = time.perf_counter()
    method.pick(await method.rank(index, question, models), method.config)
    return time.perf_counter() - started


def _path(cell: Cell, results: Path) -> Path:
    return results / FOLDER / f"{cell.identity.folder}.json"


def timed_table(
    table: TableData,
    planned: Mapping[tuple[str, str], Plan],
    published: Mapping[tuple[str, str, str], Published],
    session: Session,
) -> TextTable:
    """One line per row and data set: seconds of ranking with the published ones, and with the reader.

    Cells that were not timed on this machine are measured now. If the session runs nothing, only stored
    latencies are shown, and a footnote names the cells without.
    """
    from bench.models.model_set import LoadedModels

    columns = (
        *("Data and method", "ranking, s", "publ. ranking, s", "with reader, s", "slowest, s"),
        *("questions", "TFLOPs"),
    )
    rows, times, untimed = [], [], []
    for dataset in table.definition.datasets:
        for row in table.definition.rows:
            cell, plan = table.cells[row.id, dataset], planned[row.id, dataset]
            measured = None
            if cell.summary is not None and isinstance(plan, Cell):
                measured = stored_time(plan, session.results)
                if session.compute and (measured is None or measured.machine != machine()):
                    measured = measure(plan, session.results, LoadedModels(plan.roles))
            printed = published.get((row.id, dataset, "seconds"))
            rows.append(_line(cell, measured, None if printed is None else printed.value))
            times += [measured] if measured else []
            untimed += [rows[-1][0]] if measured is None and cell.summary is not None else []
    machines = {measured.machine for measured in times}
    loads = [measured.load for measured in times if measured.load is not None]
    return plain_table(
        table.definition.id,
        table.definition.title,
        columns,
        tuple(rows),
        (about_times(QUESTIONS, machines, loads), *caption(table)),
        (*without_values(table), *not_timed(untimed)),
    )


def _line(cell: TableCell, measured: QueryTime | None, printed: float | None) -> tuple[str, ...]:
    label = f"{cell.data}: {cell.row.label}"
    tflops = DASH if cell.summary is None else three_digits(cell.summary.tflops)
    publ = DASH if printed is None else f"{printed:g}"
    if measured is None:
        return label, DASH, publ, DASH, DASH, DASH, tflops
    ranking = measured.mean_ranking
    return (
        label,
        DASH if ranking is None else three_digits(ranking),
        publ,
        f"{measured.mean:.2f}",
        f"{max(measured.seconds):.2f}",
        str(len(measured.seconds)),
        tflops,
    )
