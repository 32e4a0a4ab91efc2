"""The driver's side of a run on Ray: it assigns questions to workers and replaces workers that die.

A question goes to the least busy worker, up to a fixed number of concurrent calls per worker; the rest wait
in the driver. A call that was lost with its worker is repeated, since nothing of it was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.errors import BenchError
from bench.flops.meter import Meter
from bench.method.contract import Training, TrainingItem
from bench.models.conversation import ModelSet
from bench.models.model_set import LoadedModels
from bench.results.index_store import IndexStore, StoredIndex
from bench.results.records import Record
from bench.run.cell import Cell
from bench.run.provenance import environment
from bench.run.question_runner import IN_FLIGHT, QuestionRunner
from bench.run.ray.cluster import Share, connect, share_out
from bench.run.ray.worker import Failed, Group, Worker, load_models, without_data
from bench.run.redaction import fault_text
from bench.schema import DocumentSet, Example, Index, JsonValue

log = logging.getLogger(__name__)

MIN_LOSSES = 5
"""A run gives up after this many lost workers without a finished call, or 3 per worker if that is more."""


class _WorkerHandle:
    """One worker, from the request for it until it is lost."""

    def __init__(self, actor: Any, ready: Any) -> None:
        self.actor, self.ready = actor, ready
        self.calls = 0
        self.usable = False
        self.lost = False


class RemoteFaultError(Exception):
    """An exception of a method on a worker; the message is the record's error text."""


class RayExecutor:
    """Runs questions on workers: connects when there is work, reuses its workers between cells."""

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        gpus: float | None = None,
        models: Callable[[Cell], ModelSet] = load_models,
    ) -> None:
        """address, workers, gpus: see :func:`bench.run.executors.open_executor`.

        models: called on a worker for a cell's models; must be importable there.
        """
        self.address, self.workers, self.gpus, self._models = address, workers, gpus, models
        self.ray: Any = None
        """The module, connected; None before there is work."""
        self._share = Share(1, 1, 0)
        self._workers: list[_WorkerHandle] = []
        self.losses = 0
        """Workers that were lost since a call has finished."""
        self._in_flight = IN_FLIGHT

    def question_runner(
        self, cells: Sequence[Cell], indexes: IndexStore, timeout_s: float | None, in_flight: int
    ) -> RayQuestionRunner:
        """A runner that answers the cells' questions on the workers; connects to the cluster if needed.

        Raises BenchError if there is no cluster.
        """
        if self.ray is None:
            self.ray = connect(self.address)
            self._share = share_out(self.ray.nodes(), self.workers, self.gpus)
            self._in_flight = in_flight
            log.info("%s on %s", self._share, self.ray.cluster_resources())
        return RayQuestionRunner(self, cells, indexes, timeout_s)

    @property
    def at_once(self) -> int:
        """Concurrent questions of all workers together."""
        return self._in_flight * self._share.workers

    def close(self) -> None:
        """Release the workers; a cluster that was started for this run ends."""
        if self.ray is not None:
            for worker in self._workers:
                self.ray.kill(worker.actor)
            self.ray.shutdown()
        self.ray, self._workers = None, []

    def replace_lost(self) -> list[_WorkerHandle]:
        """All workers, with new ones for those lost, which the cluster starts when it has room."""
        self._workers = [worker for worker in self._workers if not worker.lost]
        while len(self._workers) < self._share.workers:
            make = self.ray.remote(
                num_cpus=self._share.cpus,
                num_gpus=self._share.gpus,
                max_restarts=0,
                max_concurrency=self._in_flight,
            )(Worker)
            actor = make.remote(self._models, self._share.gpus)
            self._workers.append(_WorkerHandle(actor, actor.ready.remote()))
        return self._workers

    def least_busy(self) -> _WorkerHandle | None:
        """The worker with the fewest calls; None if all are at their limit."""
        free = [worker for worker in self._workers if worker.usable and worker.calls < self._in_flight]
        return min(free, key=lambda worker: worker.calls, default=None)

    def discard(self, worker: _WorkerHandle, reason: str) -> None:
        """Kill a lost worker; raises BenchError after too many losses without a finished call."""
        if worker.lost:
            return
        worker.lost, worker.usable = True, False
        self.ray.kill(worker.actor)
        self.losses += 1
        log.warning("a worker was lost (%s); its calls are repeated", reason)
        if self.losses >= max(MIN_LOSSES, 3 * self._share.workers):
            raise BenchError(
                f"{self.losses} workers were lost in a row, the last one with: {reason}. Check the memory "
                "and the logs of the machines (ray status, /tmp/ray/session_latest/logs). What is finished "
                "is recorded; run the same command again to resume."
            )


@dataclass(frozen=True)
class _Shipped(StoredIndex):
    """An index in the cluster's object store; the index in this process is empty."""

    documents: Any = None
    reference: Any = None


class RayQuestionRunner(QuestionRunner):
    """A question runner that delegates to the workers."""

    def __init__(
        self, executor: RayExecutor, cells: Sequence[Cell], store: IndexStore, timeout_s: float | None
    ) -> None:
        """executor: already connected."""
        super().__init__(cells, store, LoadedModels({}), timeout_s, executor.at_once)  # the workers have them
        self._executor = executor
        self._ray = executor.ray
        group = Group(tuple(map(without_data, cells)), timeout_s)
        self._group = [uuid.uuid4().hex, self._ray.put(group)]
        self._learned_reference: Any = None
        self._changed = asyncio.Event()
        """A worker may have room, or the run has failed."""
        self._broken: BenchError | None = None
        self._starting: dict[_WorkerHandle, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Inside the block lost workers are replaced."""
        self._start_workers()
        try:
            yield
        finally:
            tasks = list(self._starting.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._starting.clear()

    async def build(self, documents: DocumentSet) -> StoredIndex:
        """A newly built index of these documents, from a worker."""
        built = await self._call(lambda actor: actor.build.remote(self._group, documents))
        assert isinstance(built, StoredIndex)
        return built

    async def train(self, items: Sequence[TrainingItem], training: Training) -> StoredIndex:
        """The result of training the method on one worker."""
        shipped = self._ray.put(list(items))
        learned = await self._call(lambda actor: actor.train.remote(self._group, shipped, training))
        assert isinstance(learned, StoredIndex)
        return learned

    async def learn(self) -> None:
        """Train the method, and put the result into the cluster's object store."""
        await super().learn()
        if self.learned is not None:
            self._learned_reference = self._ray.put(self.learned)

    async def ask(self, example: Example, which: Sequence[int]) -> list[Record]:
        """The records of one example, from a worker."""
        started = time.perf_counter()
        index: StoredIndex | None = None
        try:
            index = await self.index(example.documents)
            assert isinstance(index, _Shipped)
            about = [example.documents.id, index.documents, index.reference]
            if self._learned_reference is not None:
                about.append(self._learned_reference)
            # Its documents are sent separately, once for all questions on them.
            alone = replace(example, documents=DocumentSet(()))
            lines = await self._call(lambda actor: actor.ask.remote(self._group, alone, about, list(which)))
        except BenchError:
            raise
        except Exception as fault:
            if index is not None and len(which) > 1:  # a cell that stops earlier may not reach the fault
                return [record for at in which for record in await self.ask(example, [at])]
            text = str(fault) if isinstance(fault, RemoteFaultError) else fault_text(fault)
            wall_s = time.perf_counter() - started
            # Of the index and of the training; only the worker knows what finishing the index cost.
            learned = [] if self.learned is None else [self.learned.meter]
            index_meter = Meter() if index is None else Meter.combined([index.meter, *learned])
            return [self._record(example, None, text, Meter(), index_meter, wall_s) for _ in which]
        assert isinstance(lines, list)
        return [Record.model_validate_json(line) for line in lines]

    async def _finished(self, documents: DocumentSet) -> StoredIndex:
        """A reference to the stored index in the object store; each worker finishes it itself."""
        stored = await self.load_or_build(documents)
        return _Shipped(Index(), stored.meter, self._ray.put(documents), self._ray.put(stored))

    async def _call(self, ask: Callable[[Any], Any]) -> object:
        """The result of a call on a worker; repeated on another worker whenever one is lost.

        Raises RemoteFaultError and BenchError.
        """
        from ray.exceptions import RayError, RayTaskError

        while True:
            worker = await self._free_worker()
            reference = None
            try:
                reference = ask(worker.actor)
                outcome = await reference
            except asyncio.CancelledError:
                if reference is not None:
                    self._ray.cancel(reference)
                raise
            except RayTaskError as error:
                raise BenchError(f"A worker failed outside of any question: {_error_text(error)}") from error
            except RayError as error:
                self._discard(worker, _error_text(error))
                continue
            finally:
                worker.calls -= 1
                self._changed.set()
            self._executor.losses = 0
            if isinstance(outcome, Failed):
                raise (outcome.error or RemoteFaultError)(outcome.text)
            return outcome

    async def _free_worker(self) -> _WorkerHandle:
        """The least busy worker, once one has room; raises BenchError if the run has failed."""
        while self._broken is None:
            worker = self._executor.least_busy()
            if worker is not None:
                worker.calls += 1
                return worker
            self._changed.clear()
            await self._changed.wait()
        raise self._broken

    def _start_workers(self) -> None:
        """Replace lost workers, and use the new ones as soon as they have started."""
        for worker in self._executor.replace_lost():
            if worker not in self._starting:
                self._starting[worker] = asyncio.create_task(self._start(worker))

    async def _start(self, worker: _WorkerHandle) -> None:
        from ray.exceptions import RayError, RayTaskError

        try:
            if not worker.usable:
                require_same_software(await worker.ready)
                worker.usable = True
            self._changed.set()
        except BenchError as error:
            self._fail(error)
        except RayTaskError as error:
            self._fail(BenchError(f"A worker cannot start: {_error_text(error)}"))
        except RayError as error:
            with contextlib.suppress(BenchError):
                self._discard(worker, _error_text(error))

    def _discard(self, worker: _WorkerHandle, reason: str) -> None:
        try:
            self._executor.discard(worker, reason)
        except BenchError as error:
            self._fail(error)
            raise
        self._start_workers()

    def _fail(self, error: BenchError) -> None:
        """Raise this error in every call that waits for a worker, now or later."""
        self._broken = error
        self._changed.set()


def require_same_software(worker: Mapping[str, JsonValue]) -> None:
    """Raise BenchError if a worker's software differs from this process's: its records might differ.

    worker: the worker's :func:`bench.run.provenance.environment`.
    """
    own = environment()
    commits = own["git_commit"], worker["git_commit"]
    differing = [
        f"{name} {worker['versions'].get(name, 'missing')} instead of {version}"
        for name, version in own["versions"].items()
        if worker["versions"].get(name) != version
    ]
    if None not in commits and commits[0] != commits[1]:
        differing.append(f"commit {commits[1]} instead of {commits[0]}")
    if differing:
        raise BenchError(
            f"A machine of the cluster has {', '.join(differing)}. Install the same versions on all of "
            "them (constraints.txt), so that all records come from the same software."
        )


def _error_text(error: Exception) -> str:
    """The message of a Ray error: its first line and its last one, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
    return f"{type(error).__name__}: {text[:500]}"
