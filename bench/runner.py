"""Run cells: ask every question that has no record yet, score it, and write its record at once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from bench.cell import Cell
from bench.errors import BenchError
from bench.files import write_json
from bench.index_store import IndexStore, StoredIndex, index_key
from bench.learning import learn
from bench.metering import Meter, metered
from bench.metrics import get_metrics
from bench.models.api import ModelSet
from bench.provenance import environment
from bench.records import (
    CELL_FILE,
    RECORDS_FILE,
    SUMMARY_FILE,
    ContextRecord,
    FlopCounts,
    Record,
    RecordStore,
    TokenCounts,
)
from bench.retrieval_quality import retrieval_quality
from bench.schema import DocumentSet, Example, JsonValue, Prediction
from bench.scoring import question_scores
from bench.summary import SUMMARY_VERSION, summarize

log = logging.getLogger(__name__)

FLOP_CONVENTION = "paper"

IN_FLIGHT = 32
"""Questions worked on at a time; the engine's memory for contexts may hold fewer, the rest wait."""

INDEXES_IN_MEMORY = 64
"""Indexes kept loaded; the longest unused go first and are read from disk when they are needed again."""


class RunProgress(Protocol):
    """Whoever wants to see how a run gets on."""

    def start(self, total: int, old: Sequence[Record]) -> None:
        """``total`` records are wanted; ``old`` are there already."""

    def record(self, record: Record) -> None:
        """One more record was written."""


@dataclass(frozen=True)
class CellResult:
    """A cell whose every question has a record."""

    folder: Path
    summary: Mapping[str, JsonValue]
    answered: int
    """Questions answered now; 0 when the cell was finished before."""


def finished_summary(cell: Cell, folder: Path) -> Mapping[str, JsonValue] | None:
    """The summary of a finished cell in ``folder``, or None if anything of it is missing or stale."""
    try:
        summary = json.loads((folder / SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    current = (
        summary.get("cell_id") == cell.identity.cell_id
        and summary.get("summary_version") == SUMMARY_VERSION
        and set(summary.get("metrics", {})) == set(cell.card.metrics)
        and summary.get("records_sha256") == _sha256(folder / RECORDS_FILE)
    )
    return summary if current else None


def run_cell(
    cell: Cell,
    folder: Path,
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    *,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
    progress: RunProgress | None = None,
) -> CellResult:
    """Every question of ``cell`` with a record in ``folder``; see :func:`run_cells`."""
    (result,) = run_cells(
        [(cell, folder)],
        indexes,
        models,
        in_flight=in_flight,
        retry_failed=retry_failed,
        progress=progress,
    )
    return result


def run_cells(
    cells: Sequence[tuple[Cell, Path]],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    *,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
    progress: RunProgress | None = None,
) -> list[CellResult]:
    """Every question of the cells with a record in their folders; finished questions are never asked again.

    Several cells must differ only in options that their method replays: each question is then asked
    once, and every cell's record is derived from that run (design idea 6).
    models: called once, only when there is something to ask. in_flight: questions worked on at a time.
    retry_failed: ask questions again whose record is a failure.
    Raises BenchError when a folder holds another cell or cannot be written. What one question raises is
    recorded as its failure; an interruption leaves every finished record in place.
    """
    results: dict[int, CellResult] = {}
    for at, (cell, folder) in enumerate(cells):
        done = finished_summary(cell, folder)
        if done is not None and not (retry_failed and done["n_failed"]):
            results[at] = CellResult(folder, done, 0)
    with ExitStack() as stack:
        open_cells: dict[int, tuple[Cell, RecordStore]] = {}
        for at, (cell, folder) in enumerate(cells):
            if at not in results:
                _claim(cell, folder)
                store = stack.enter_context(RecordStore(folder))
                _refuse_foreign(cell, store)
                if retry_failed:
                    store.discard([i for i, record in store.done.items() if record.error is not None])
                open_cells[at] = (cell, store)
        before = {at: len(store.done) for at, (_, store) in open_cells.items()}
        _ask_missing(list(open_cells.values()), indexes, models, in_flight, progress)
        for at, (cell, store) in open_cells.items():
            _measure_retrieval(cell, store)
            store.put_in_order([example.id for example in cell.data.examples])
            summary = {
                **summarize(list(store.done.values()), cell.card.metrics),
                "cell_id": cell.identity.cell_id,
                "records_sha256": _sha256(store.path),
            }
            write_json(store.folder / SUMMARY_FILE, summary)
            results[at] = CellResult(store.folder, summary, len(store.done) - before[at])
    return [results[at] for at in range(len(cells))]


def _measure_retrieval(cell: Cell, store: RecordStore) -> None:
    """Records of a version that did not measure their context get its measures; nothing is asked again."""
    examples = {example.id: example for example in cell.data.examples}
    old = [record for record in store.done.values() if record.retrieval is None]
    if old:
        measured = ((r, retrieval_quality(r.context, examples[r.example_id])) for r in old)
        store.replace([record.model_copy(update={"retrieval": found}) for record, found in measured])


def _refuse_foreign(cell: Cell, store: RecordStore) -> None:
    asked = {example.id for example in cell.data.examples}
    foreign = [i for i in store.done if i not in asked]
    if foreign:
        raise BenchError(
            f"{store.path} holds {len(foreign)} record(s) of other questions, such as {foreign[0]!r}. "
            "Choose another --out, or move the file away."
        )


def _ask_missing(
    cells: Sequence[tuple[Cell, RecordStore]],
    indexes: IndexStore,
    models: Callable[[], ModelSet],
    in_flight: int,
    progress: RunProgress | None,
) -> None:
    """Ask what has no record yet in some of the cells."""
    if not cells:
        return
    examples = cells[0][0].data.examples
    pending = [example for example in examples if any(example.id not in s.done for _, s in cells)]
    if progress is not None:
        old = [record for _, store in cells for record in store.done.values()]
        progress.start(len(examples) * len(cells), old)
    if pending:
        asker = _Asker([cell for cell, _ in cells], indexes, models())
        asyncio.run(_ask_all(asker, pending, [store for _, store in cells], in_flight, progress))


def _claim(cell: Cell, folder: Path) -> None:
    """Write ``cell.json``; refuse a folder that belongs to another cell."""
    path = folder / CELL_FILE
    if path.exists():
        try:
            there = json.loads(path.read_bytes())["cell_id"]
        except (ValueError, KeyError):
            there = None
        if there == cell.identity.cell_id:
            return
        if there is not None:
            raise BenchError(
                f"{folder} holds the records of another cell ({there}); this run is "
                f"{cell.identity.cell_id}. A changed option, model or data set is another cell: choose "
                "another --out."
            )
    try:
        write_json(path, describe(cell))
    except OSError as error:
        raise BenchError(
            f"Cannot write to {folder}: {error.strerror or error}. "
            "Choose another place with --out DIR or --results DIR."
        ) from error


def describe(cell: Cell) -> dict[str, JsonValue]:
    """``cell.json``: the identity in full, labels, and where the numbers come from."""
    return {
        "cell_id": cell.identity.cell_id,
        **asdict(cell.identity),
        "model": cell.request.model,
        "model_label": cell.reader.label,
        "model_small": cell.reader.small,
        "dtype": cell.reader.actual_dtype,
        "limit": cell.request.limit,
        "flop_convention": FLOP_CONVENTION,
        "metrics": list(cell.card.metrics),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
    }


async def _ask_all(
    asker: _Asker,
    examples: Sequence[Example],
    stores: Sequence[RecordStore],
    in_flight: int,
    progress: RunProgress | None,
) -> None:
    """Work through the examples in order, ``in_flight`` at a time."""
    await asker.learn(in_flight)
    queue = iter(examples)

    async def worker() -> None:
        for example in queue:
            missing = [at for at, store in enumerate(stores) if example.id not in store.done]
            for at, record in zip(missing, await asker.ask(example, missing), strict=True):
                stores[at].append(record)
                if progress is not None:
                    progress.record(record)

    # Questions that share a document wait for one index: others are built ahead, so that the model
    # always has work from many documents.
    sets = {example.documents.id: example.documents for example in examples}
    ahead = asyncio.create_task(asker.build_ahead(list(sets.values()), in_flight))
    workers = [asyncio.create_task(worker()) for _ in range(min(in_flight, len(examples)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in (ahead, *workers):
            task.cancel()
        await asyncio.gather(ahead, *workers, return_exceptions=True)


class _Asker:
    """Answers examples for cells that share an index: index (once per document set), answer, score."""

    def __init__(self, cells: Sequence[Cell], store: IndexStore, models: ModelSet) -> None:
        self.cells, self.store, self.models = cells, store, models
        self.metrics = get_metrics(cells[0].card.metrics)
        self._parts = cells[0].index_key_parts()
        if any(cell.index_key_parts() != self._parts for cell in cells):
            raise ValueError("cells that are run together must share their index")
        self._indexes: OrderedDict[str, asyncio.Task[StoredIndex]] = OrderedDict()
        self._learned: StoredIndex | None = None

    async def learn(self, at_once: int) -> None:
        """Have the method learn what it learns before any question; once, the result is kept."""

        async def build(sets: Sequence[DocumentSet]) -> list[StoredIndex | BaseException]:
            slots = asyncio.Semaphore(at_once)

            async def one(documents: DocumentSet) -> StoredIndex:
                async with slots:
                    return await self._load_or_build(documents)

            return await asyncio.gather(*map(one, sets), return_exceptions=True)

        self._learned = await learn(self.cells[0], self.store, self.models, build)

    async def ask(self, example: Example, which: Sequence[int]) -> list[Record]:
        """The records of one example for the cells at ``which``.

        Several are derived from one run; if that run fails, each is asked alone, since a cell that
        stops earlier may never meet the fault.
        """
        if len(which) > 1:
            started = time.perf_counter()
            try:
                stored = await self._index(example.documents)
                first = self.cells[which[0]]
                found = await first.method.replay(
                    stored.index,
                    first.question(example),
                    self.models,
                    [self.cells[at].method.config for at in which],
                )
            except BenchError:
                raise
            except Exception:
                log.debug("question %s failed in a shared run", example.id, exc_info=True)
            else:
                wall_s = time.perf_counter() - started
                return [
                    self._record(example, one.prediction, None, one.meter, stored.meter, wall_s)
                    for one in found
                ]
        return [await self._ask_alone(example, self.cells[at]) for at in which]

    async def _ask_alone(self, example: Example, cell: Cell) -> Record:
        """The record of one example in one cell; what the method raises becomes the record's error."""
        started = time.perf_counter()
        meter, index_meter = Meter(), Meter()
        prediction: Prediction | None = None
        error: str | None = None
        try:
            stored = await self._index(example.documents)
            index_meter = stored.meter
            with metered(meter):
                prediction = await cell.method.answer(stored.index, cell.question(example), self.models)
        except BenchError:
            raise  # the set-up is at fault, not the question
        except Exception as fault:  # the one place where a question may fail: recorded, counted, shown
            log.debug("question %s failed", example.id, exc_info=True)
            error = f"{type(fault).__name__}: {fault}"
        return self._record(example, prediction, error, meter, index_meter, time.perf_counter() - started)

    async def build_ahead(self, sets: Sequence[DocumentSet], at_once: int) -> None:
        """Build the indexes that are not on disk yet, in order, ``at_once`` at a time."""
        queue = iter(sets)

        async def builder() -> None:
            for documents in queue:
                if not self.store.has(self.cells[0].index_name, self._key(documents)):
                    # A fault is the business of the questions that need this index.
                    await asyncio.gather(self._index(documents), return_exceptions=True)

        await asyncio.gather(*(builder() for _ in range(min(at_once, len(sets)))))

    def _key(self, documents: DocumentSet) -> str:
        return index_key({**self._parts, "documents": documents.id})

    async def _index(self, documents: DocumentSet) -> StoredIndex:
        task = self._indexes.get(documents.id)
        if task is None:
            task = asyncio.create_task(self._finished(documents))
            self._indexes[documents.id] = task
            while len(self._indexes) > INDEXES_IN_MEMORY:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end(documents.id)
        return await asyncio.shield(task)

    async def _finished(self, documents: DocumentSet) -> StoredIndex:
        """The index that questions are answered with; its meter holds all that is not a question's."""
        stored, learned = await self._load_or_build(documents), self._learned
        with metered(Meter()) as meter:
            index = self.cells[0].method.finish(stored.index, learned.index if learned else None)
        parts = [stored.meter, meter, *([learned.meter] if learned else [])]
        return StoredIndex(index, Meter.combined(parts))

    async def _load_or_build(self, documents: DocumentSet) -> StoredIndex:
        """The index as it is kept."""
        key = self._key(documents)
        stored = self.store.load(self.cells[0].index_name, key)
        if stored is not None:
            return stored
        with metered(Meter()) as meter:
            index = await self.cells[0].method.index(documents, self.models)
        self.store.save(self.cells[0].index_name, key, index, meter)
        return StoredIndex(index, meter)

    def _record(
        self,
        example: Example,
        prediction: Prediction | None,
        error: str | None,
        meter: Meter,
        index_meter: Meter,
        wall_s: float,
    ) -> Record:
        text = None if prediction is None else prediction.text
        given = prediction or Prediction("")
        context = [
            ContextRecord(
                document=item.document,
                title=item.title,
                start=item.start,
                end=item.end,
                node=item.node,
                score=item.score,
                text=item.text if item.start is None else None,
            )
            for item in given.context
        ]
        return Record(
            example_id=example.id,
            document_ids=[document.id for document in example.documents.documents],
            question=example.question,
            answers=list(example.answers),
            prediction=text,
            scores=question_scores(text, example.answers, self.metrics),
            context=context,
            retrieval=retrieval_quality(context, example),
            tokens=TokenCounts(
                prompt=given.prompt_tokens, completion=given.completion_tokens, forwarded=meter.new_tokens
            ),
            flops=FlopCounts(
                query=meter.flops,
                index=index_meter.flops,
                convention=FLOP_CONVENTION,
                query_by_model=meter.to_json(),
                index_by_model=index_meter.to_json(),
            ),
            truncated=given.truncated,
            flags=list(given.flags),
            wall_s=round(wall_s, 4),
            error=error,
            trace=given.trace,
        )


def _sha256(path: Path) -> str | None:
    """Hash of a file's bytes; None when there is no such file."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        return None
