"""Answer the questions of cells: index (once per document set), answer, score, make the record.

An exception or a timeout in a method's code becomes the failure of one question.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from bench.errors import BenchError, NoAttentionError
from bench.flops.meter import Meter, metered
from bench.method.contract import Replayed, Training, TrainingItem
from bench.method.validation import require_index, require_prediction
from bench.metrics import get_metrics
from bench.metrics.retrieval import retrieval_quality
from bench.metrics.scoring import question_scores
from bench.metrics.yes_no import only_yes_or_no
from bench.models.conversation import ModelSet
from bench.results.index_store import IndexStore, StoredIndex, index_key
from bench.results.records import FLOP_CONVENTION, ContextRecord, FlopCounts, Record, TokenCounts
from bench.run.cell import Cell
from bench.run.hooks import IndexProgress
from bench.run.redaction import fault_text
from bench.run.time_limit import within
from bench.run.training_plan import training_parts
from bench.schema import DocumentSet, Example, Index, Prediction

log = logging.getLogger(__name__)

T = TypeVar("T")

IN_FLIGHT = 32
"""Concurrent questions; if the engine's memory has room for fewer contexts, the rest wait."""

REPORT_S = 5.0
"""Seconds between two reports on indexes that are being built."""

INDEXES_IN_MEMORY = 64
"""Indexes in memory; the least recently used are dropped and reloaded from disk when needed."""


class QuestionRunner:
    """Answers examples for cells that share an index: index (once per document set), answer, score."""

    def __init__(
        self,
        cells: Sequence[Cell],
        store: IndexStore,
        models: ModelSet,
        timeout_s: float | None = None,
        at_once: int = IN_FLIGHT,
        *,
        compute: bool = True,
    ) -> None:
        """cells: share their method and all that an index depends on; at_once: concurrent questions.

        timeout_s: most seconds of one call of the method; None: unlimited. compute: make what is not stored.
        """
        self.cells, self.store, self.models, self.timeout_s = cells, store, models, timeout_s
        self.at_once, self.compute = at_once, compute
        self.metrics = get_metrics(cells[0].card.metrics)
        self._parts = cells[0].index_key_parts()
        if any(cell.index_key_parts() != self._parts for cell in cells):
            raise ValueError("cells that are run together must share their index")
        first, *others = [cell.method.config.model_dump(exclude=set(cell.method.replayed)) for cell in cells]
        if any(other != first for other in others):
            raise ValueError(
                "cells that are run together may only differ in what their method replays: "
                + (", ".join(sorted(cells[0].method.replayed)) or "nothing")
            )
        self._indexes: OrderedDict[str, asyncio.Task[StoredIndex]] = OrderedDict()
        self.learned: StoredIndex | None = None
        """What the method learned; None before :meth:`learn` and for a method without training."""
        self._index_meters: list[Meter] = []
        """One for each index that was begun here."""

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Questions can be asked inside the block."""
        await self._require_servers()
        self._require_attention(index=False)
        yield

    async def _require_servers(self) -> None:
        """Check every served language model before anything is computed; raises ServerError, ConfigError."""
        cell = self.cells[0]
        served = [role for role, spec in cell.roles.items() if spec.server and spec.kind == "causal"]
        if not served:
            return
        from bench.models.served.language_model import ServedLanguageModel

        needed = cell.method.roles()
        for role in served:
            lm = self.models.lm(role)
            if isinstance(lm, ServedLanguageModel):
                await lm.require()
                if needed[role].needs == "probabilities" and not lm.has_probed:
                    await lm.require_probes(needed[role].ways_out)

    def _require_attention(self, *, index: bool) -> None:
        """Raise NoAttentionError for a model of this process that lacks the attention it is needed for.

        index: of the roles that build indexes, before the first is built; else of those that only answer.
        """
        method, roles = self.cells[0].method, self.cells[0].roles
        for role, needed in method.roles().items():
            if needed.needs != "attention" or needed.index is not index or roles[role].server:
                continue
            from bench.models.language_model import CausalLanguageModel

            lm = self.models.lm(role)
            if isinstance(lm, CausalLanguageModel):
                try:
                    lm.require_attention()
                except NoAttentionError as error:
                    raise NoAttentionError(f"{method.name}, {role}: {error} {needed.ways_out}") from None

    async def learn(self) -> None:
        """Train the method before any question, once, or load the stored result; nothing without a plan.

        Documents that cannot be indexed are left out of the training, whose result is then stored under the
        hash of the others. Its meter is one document set's share of the total cost. Raises BenchError, and
        whatever the training raises.
        """
        cell = self.cells[0]
        plan = cell.training
        if plan is None:
            return

        def key(sets: Sequence[DocumentSet]) -> str:
            documents = training_parts(sets, plan.references)
            return index_key({**cell.training_key_parts(), "documents": documents})

        name, sets = cell.method.name, list(plan.sets)
        stored = self.store.load(name, key(sets))
        if stored is None:
            indexes = await self._all_indexes(sets)
            for outcome in indexes:
                if isinstance(outcome, BenchError):
                    raise outcome
            usable = [(s, i) for s, i in zip(sets, indexes, strict=True) if isinstance(i, StoredIndex)]
            if len(usable) < len(sets):
                left_out = len(sets) - len(usable)
                log.warning("%d of %d document sets cannot be learned from", left_out, len(sets))
                sets = [documents for documents, _ in usable]
                stored = self.store.load(name, key(sets))
            if stored is None:
                async with self.store.building(name, key(sets)):
                    stored = self.store.load(name, key(sets))
                    if stored is None:
                        items = [TrainingItem(s, i.index, plan.references.get(s.id, ())) for s, i in usable]
                        stored = await self.train(items, plan.training)
                        self.store.save(name, key(sets), stored.index, stored.meter)
        asked = {example.documents.id for example in cell.data.examples}
        others = await self._all_indexes([documents for documents in sets if documents.id not in asked])
        spent = [stored.meter, *(index.meter for index in others if isinstance(index, StoredIndex))]
        self.learned = StoredIndex(stored.index, Meter.combined(spent).shared(max(1, len(asked))))

    async def _all_indexes(self, sets: Sequence[DocumentSet]) -> list[StoredIndex | BaseException]:
        """The indexes of document sets in order, with the exception for each that failed."""
        slots = asyncio.Semaphore(self.at_once)

        async def one(documents: DocumentSet) -> StoredIndex:
            async with slots:
                return await self.load_or_build(documents)

        return await asyncio.gather(*map(one, sets), return_exceptions=True)

    async def train(self, items: Sequence[TrainingItem], training: Training) -> StoredIndex:
        """The result of training the method on the items, with its cost."""
        self._require_computing("what it learned")
        with metered(Meter()) as meter:
            learned = await self.cells[0].method.train(items, training, self.models)
        return StoredIndex(learned, meter)

    async def ask(self, example: Example, which: Sequence[int]) -> list[Record]:
        """The records of one example for the cells at ``which``.

        Several records come from one run; if that run fails, each cell is run separately, since a cell
        that stops earlier may never reach the fault.
        """
        if len(which) > 1:
            started = time.perf_counter()
            try:
                stored = await self.index(example.documents)
                first = self.cells[which[0]]
                configs = [self.cells[at].method.config for at in which]
                replayed = await within(
                    self.timeout_s,
                    first.method.replay(stored.index, first.question(example), self.models, configs),
                    "answers",
                )
                wall_s = time.perf_counter() - started
                return self._shared(example, replayed, len(which), stored.meter, wall_s)
            except BenchError:
                raise
            except Exception:
                log.debug("question %s failed in a shared run", example.id, exc_info=True)
        return [await self._ask_alone(example, self.cells[at]) for at in which]

    def _shared(
        self, example: Example, replayed: Sequence[Replayed], cells: int, index_meter: Meter, wall_s: float
    ) -> list[Record]:
        """The records of one run for several cells; equal answers from one context are measured once."""
        if len(replayed) != cells:
            raise ValueError(f"replay() returned {len(replayed)} answers for {cells} configs")
        predictions = [require_prediction(one.prediction, example.documents) for one in replayed]
        measured: dict[tuple[int, str, tuple[str, ...]], _Measured] = {}
        records = []
        for one, prediction in zip(replayed, predictions, strict=True):
            alike = id(prediction.context), prediction.text, prediction.drawn
            if alike not in measured:
                measured[alike] = self._measure(example, prediction)
            records.append(
                self._record(
                    example, prediction, None, one.meter, index_meter, wall_s, measured=measured[alike]
                )
            )
        return records

    async def _ask_alone(self, example: Example, cell: Cell) -> Record:
        """The record of one example in one cell; an exception in the method becomes the record's error."""
        started = time.perf_counter()
        meter, index_meter = Meter(), Meter()
        prediction: Prediction | None = None
        error: str | None = None
        try:
            stored = await self.index(example.documents)
            index_meter = stored.meter
            with metered(meter):
                answer = cell.method.answer(stored.index, cell.question(example), self.models)
                prediction = require_prediction(
                    await within(self.timeout_s, answer, "answer"), example.documents
                )
        except BenchError:
            raise  # the setup is at fault, not the question
        except Exception as fault:  # the one place where a question may fail: recorded, counted, shown
            log.debug("question %s failed", example.id, exc_info=True)
            error = fault_text(fault)
        return self._record(example, prediction, error, meter, index_meter, time.perf_counter() - started)

    async def build_ahead(
        self, sets: Sequence[DocumentSet], on_progress: Callable[[IndexProgress], None]
    ) -> None:
        """Build the indexes that are not on disk yet, in order.

        on_progress: called at the start, after every index, and every few seconds between.
        """
        name = self.cells[0].index_name
        missing = [documents for documents in sets if not self.store.has(name, self._key(documents))]
        if not missing:
            return
        queue, built = iter(missing), 0
        self._index_meters.clear()

        def report() -> None:
            tokens = sum(meter.new_tokens for meter in self._index_meters)
            on_progress(IndexProgress(built, len(missing), tokens))

        async def builder() -> None:
            nonlocal built
            for documents in queue:
                # Errors surface again in the questions that need this index.
                await asyncio.gather(self.index(documents), return_exceptions=True)
                built += 1
                report()

        async def clock() -> None:
            while True:
                report()
                await asyncio.sleep(REPORT_S)

        ticking = asyncio.create_task(clock())
        try:
            await asyncio.gather(*(builder() for _ in range(min(self.at_once, len(missing)))))
        finally:
            ticking.cancel()

    def _key(self, documents: DocumentSet) -> str:
        return index_key({**self._parts, "documents": documents.id})

    async def index(self, documents: DocumentSet) -> StoredIndex:
        """The index for answering questions on these documents; built once for all of them."""
        task = self._indexes.get(documents.id)
        if task is None:
            task = asyncio.create_task(self._finished(documents))
            self._indexes[documents.id] = task
            # An index still being built stays, so that it is not built a second time.
            done = (id_ for id_, other in self._indexes.items() if other.done())
            for id_ in list(itertools.islice(done, max(0, len(self._indexes) - INDEXES_IN_MEMORY))):
                del self._indexes[id_]
        else:
            self._indexes.move_to_end(documents.id)
        return await await_uncancelled(task)

    async def _finished(self, documents: DocumentSet) -> StoredIndex:
        """The index for answering, with every cost that is not a single question's."""
        stored, learned = await self.load_or_build(documents), self.learned
        with metered(Meter()) as meter:
            index = self.cells[0].method.finish(stored.index, learned.index if learned else None)
        parts = [stored.meter, meter, *([learned.meter] if learned else [])]
        return StoredIndex(index, Meter.combined(parts))

    async def load_or_build(self, documents: DocumentSet) -> StoredIndex:
        """The stored index of these documents, built and stored first if it is missing."""
        name, key = self.cells[0].index_name, self._key(documents)
        stored = self.store.load(name, key)
        if stored is not None:
            return stored
        async with self.store.building(name, key):
            if self.store.has(name, key) and (stored := self.store.load(name, key)) is not None:
                return stored
            built = await self.build(documents)
            self.store.save(name, key, built.index, built.meter)
            return built

    async def build(self, documents: DocumentSet) -> StoredIndex:
        """A newly built index of these documents, with its cost."""
        self._require_computing("an index")
        self._require_attention(index=True)
        with metered(Meter()) as meter:
            self._index_meters.append(meter)
            built = self.cells[0].method.index(documents, self.models)
            index = require_index(await within(self.timeout_s, built, "index"))
        return StoredIndex(index, meter)

    def _require_computing(self, what: str) -> None:
        if not self.compute:
            raise BenchError(f"{self.cells[0].name}: {what} is no longer stored; leave out --render-only.")

    def _measure(self, example: Example, prediction: Prediction | None) -> _Measured:
        text = None if prediction is None else prediction.text
        answer = prediction or Prediction("")
        context = [
            ContextRecord(**{**vars(item), "text": item.text if item.start is None else None})
            for item in answer.context
        ]
        return _Measured(
            context,
            question_scores(text, example.answers, self.metrics, answer.drawn),
            retrieval_quality(context, example),
            ["bare_yes_no"] if text and only_yes_or_no(text, example.question) else [],
        )

    def _record(
        self,
        example: Example,
        prediction: Prediction | None,
        error: str | None,
        meter: Meter,
        index_meter: Meter,
        wall_s: float,
        *,
        measured: _Measured | None = None,
    ) -> Record:
        """measured: of an equal answer from the same context."""
        measured = measured or self._measure(example, prediction)
        answer = prediction or Prediction("")
        return Record(
            example_id=example.id,
            document_ids=[document.id for document in example.documents.documents],
            question=example.question,
            answers=list(example.answers),
            prediction=None if prediction is None else prediction.text,
            drawn=list(answer.drawn),
            scores=measured.scores,
            context=measured.context,
            retrieval=measured.retrieval,
            tokens=TokenCounts(
                prompt=answer.prompt_tokens,
                completion=answer.completion_tokens,
                forwarded=meter.new_tokens,
                computed=meter.new_tokens - meter.reused_tokens if meter.reuse_known else None,
            ),
            flops=FlopCounts(
                query=meter.flops,
                index=index_meter.flops,
                convention=FLOP_CONVENTION,
                query_by_model=meter.to_json(),
                index_by_model=index_meter.to_json(),
            ),
            truncated=answer.truncated,
            flags=[*answer.flags, *sorted(meter.events), *measured.flags],
            wall_s=round(wall_s, 4),
            error=error,
            trace=answer.trace,
        )


@dataclass(frozen=True)
class _Measured:
    """What a record says of an answer and its context."""

    context: list[ContextRecord]
    scores: dict[str, float]
    retrieval: dict[str, float]
    flags: list[str]


async def await_uncancelled(work: asyncio.Future[T]) -> T:
    """Await ``work`` without cancelling it; unlike ``asyncio.shield``, a late exception is not logged."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([work])
    return work.result()


@dataclass(frozen=True)
class Prepared:
    """What is needed to answer questions of a cell."""

    indexes: Mapping[str, Index]
    """Id of a document set -> its stored index, to be combined with ``learned`` by
    :meth:`bench.method.contract.Method.finish`."""
    learned: Index | None
    """What the method learned before any question; None for a method without training."""


def stored_index(cell: Cell, indexes: IndexStore, documents: DocumentSet) -> StoredIndex | None:
    """The stored index of a document set with its cost; None if it has not been built."""
    return indexes.load(cell.index_name, index_key({**cell.index_key_parts(), "documents": documents.id}))


async def prepare(
    cell: Cell, indexes: IndexStore, models: ModelSet, sets: Sequence[DocumentSet], *, compute: bool = True
) -> Prepared:
    """The stored indexes of these document sets and what the method learned; missing ones are built.

    Raises BenchError, also for a missing one if nothing is to be computed, and whatever building raises.
    """
    runner = QuestionRunner([cell], indexes, models, compute=compute)
    async with runner.working():
        await runner.learn()
        stored = {documents.id: (await runner.load_or_build(documents)).index for documents in sets}
    return Prepared(stored, runner.learned.index if runner.learned else None)
