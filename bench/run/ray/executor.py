"""The driver's side of a run on Ray: workers that are replaced when they die, and who asks them what.

A question is given to the worker that has least to do, never more than a worker works on at a time: what
waits, waits here. A call that was lost with its worker is made again; nothing of it was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.errors import BenchError, ModelUnavailableError
from bench.flops.meter import Meter
from bench.method.contract import TrainingItem
from bench.models.api import Embedder, LanguageModel, ModelSet
from bench.models.presets import Pooling
from bench.results.index_store import CheckpointFile, IndexStore, StoredIndex
from bench.results.records import Record
from bench.run.cell import Cell
from bench.run.provenance import environment
from bench.run.question_runner import IN_FLIGHT, QuestionRunner
from bench.run.ray.cluster import Share, connect, share_out
from bench.run.ray.worker import Checkpointer, Failed, Group, Refused, Worker, load_models, travelling
from bench.run.redaction import fault_text
from bench.run.time_limit import TimeLimit, TimeLimitError
from bench.schema import DocumentSet, Example, Index, JsonValue

log = logging.getLogger(__name__)

LEAST_LOSSES = 5
"""Workers lost one after the other, no call ending between, after which a run gives up; 3 each if more."""

WAITING_S = 30.0
"""After how long without any worker it is said what is being waited for."""


SPARE_CALLS = 8
"""Calls that a worker takes besides the questions it works on."""


class _Seat:
    """One worker, from the request for it until it is lost."""

    def __init__(self, actor: Any, ready: Any) -> None:
        self.actor, self.ready = actor, ready
        self.at_work = 0
        self.usable = False
        self.lost = False


class RemoteFaultError(Exception):
    """What a method raised on a worker; the text is as the record keeps it."""


class _StuckError(Exception):
    """A call kept its worker's event loop from turning for longer than a call may take."""


class RayExecutor:
    """A :class:`bench.run.runner.Executor`: connects when there is work, keeps its workers between cells."""

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        gpus: float | None = None,
        models: Callable[[Cell], ModelSet] = load_models,
    ) -> None:
        """address, workers, gpus: as :class:`bench.run.executors.ExecutorOptions` has them.

        models: called on a worker for what a cell's method may ask; importable there.
        """
        self.address, self.workers, self.gpus, self._models = address, workers, gpus, models
        self._ray: Any = None
        self._share = Share(1, 1, 0)
        self._seats: list[_Seat] = []
        self._losses = 0
        self._numbers = itertools.count()
        self._in_flight = IN_FLIGHT

    def asker(
        self, cells: Sequence[Cell], indexes: IndexStore, limit: TimeLimit, in_flight: int
    ) -> RayQuestionRunner:
        """Answers questions of the cells on the workers, which are asked for now if they are not there.

        Raises BenchError where there is no cluster.
        """
        if self._ray is None:
            self._ray = connect(self.address)
            self._share = share_out(self._ray.nodes(), self.workers, self.gpus)
            self._in_flight = in_flight
            log.info("wanted: %s", self.wanted())
        return RayQuestionRunner(self, cells, indexes, limit)

    @property
    def at_once(self) -> int:
        """Questions that all workers together work on."""
        return self._in_flight * self._share.workers

    @property
    def ray(self) -> Any:
        """The module, connected."""
        return self._ray

    def close(self) -> None:
        """Give the workers back; a cluster that was started for this run ends."""
        if self._ray is not None:
            for seat in self._seats:
                self._ray.kill(seat.actor)
            self._ray.shutdown()
        self._ray, self._seats = None, []

    def number(self) -> str:
        """A name that no other call or group of this run has."""
        return str(next(self._numbers))

    def fill(self) -> list[_Seat]:
        """Every seat, those of lost workers taken by new ones, which the cluster places when it has room."""
        self._seats = [seat for seat in self._seats if not seat.lost]
        while len(self._seats) < self._share.workers:
            make = self._ray.remote(
                num_cpus=self._share.cpus,
                num_gpus=self._share.gpus,
                max_restarts=0,
                max_concurrency=self._in_flight + SPARE_CALLS,
                concurrency_groups={"watch": 1},
            )(Worker)
            actor = make.remote(self._models, self._share.gpus)
            self._seats.append(_Seat(actor, actor.ready.remote()))
        return self._seats

    def least_busy(self) -> _Seat | None:
        """The worker with least to do; None when all have as much as they may."""
        free = [seat for seat in self._seats if seat.usable and seat.at_work < self._in_flight]
        return min(free, key=lambda seat: seat.at_work, default=None)

    def lose(self, seat: _Seat, why: str) -> None:
        """Take a worker out; raises BenchError when nothing but losses has happened for a while."""
        if seat.lost:
            return
        seat.lost, seat.usable = True, False
        self._ray.kill(seat.actor)
        self._losses += 1
        log.warning("a worker is gone (%s); what it was asked is asked again", why)
        if self._losses >= max(LEAST_LOSSES, 3 * self._share.workers):
            raise BenchError(
                f"{self._losses} workers were lost one after the other, the last one with: {why}. Look at "
                "the memory and the logs of the machines (ray status, /tmp/ray/session_latest/logs). "
                "Everything finished is recorded; the same command continues."
            )

    def progressed(self) -> None:
        """A call came back."""
        self._losses = 0

    def wanted(self) -> str:
        """What is asked of the cluster and what it has, for people who wait."""
        has = {k: v for k, v in self._ray.cluster_resources().items() if k in ("CPU", "GPU")}
        return (
            f"{self._share.workers} worker(s) with {self._share.cpus:g} CPU and {self._share.gpus:g} GPU "
            f"each; the cluster has {has or 'nothing'}"
        )

    def keeper(self, file: CheckpointFile) -> Any:
        """An actor on this machine that keeps the checkpoints of a training."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(num_cpus=0, scheduling_strategy=here)(Checkpointer).remote(file)


@dataclass(frozen=True)
class _Shipped(StoredIndex):
    """An index that lies in the cluster's memory, not here; in its place an empty one."""

    documents: Any = None
    reference: Any = None


class RayQuestionRunner(QuestionRunner):
    """An asker whose work is done by workers."""

    def __init__(
        self, executor: RayExecutor, cells: Sequence[Cell], store: IndexStore, limit: TimeLimit
    ) -> None:
        """executor: connected."""
        super().__init__(cells, store, _NoModels(), limit, executor.at_once)
        self._executor = executor
        self._ray = executor.ray
        group = Group(tuple(map(travelling, cells)), limit.seconds)
        self._group = [executor.number(), self._ray.put(group)]
        self._learned_reference: Any = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._broken: BenchError | None = None
        self._pending: dict[str, tuple[asyncio.Future[None], Any]] = {}
        """Call -> what ends it from here, and the reference to its result."""
        self._looked_after: dict[_Seat, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Inside the block the workers are looked after."""
        self._look_after()
        waiting = asyncio.create_task(self._say_what_is_waited_for())
        try:
            yield
        finally:
            tasks = [waiting, *self._looked_after.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._looked_after.clear()

    async def build(self, documents: DocumentSet) -> StoredIndex:
        """The index as a worker builds it."""
        found = await self._call(
            "index", lambda actor, call: actor.build.remote(call, self._group, documents)
        )
        assert isinstance(found, StoredIndex)
        return found

    async def train(self, items: Sequence[TrainingItem], checkpoints: CheckpointFile) -> StoredIndex:
        """What the method learns from the items, on one worker; its checkpoints are kept here."""
        plan = self.cells[0].training
        assert plan is not None
        shipped, keeper = self._ray.put(list(items)), self._executor.keeper(checkpoints)
        try:
            found = await self._call(
                "training",
                lambda actor, call: actor.train.remote(call, self._group, shipped, plan.training, keeper),
            )
        finally:
            self._ray.kill(keeper)
        assert isinstance(found, StoredIndex)
        return found

    async def learn(self) -> None:
        """Have the method learn, and send what it learned to the cluster's memory."""
        await super().learn()
        if self._learned is not None:
            self._learned_reference = self._ray.put(self._learned)

    async def ask(self, example: Example, which: Sequence[int]) -> list[Record]:
        """The records of one example, made by a worker."""
        started = time.perf_counter()
        found: StoredIndex | None = None
        try:
            found = await self.index(example.documents)
            assert isinstance(found, _Shipped)
            about = [example.documents.id, found.documents, found.reference]
            if self._learned_reference is not None:
                about.append(self._learned_reference)
            lines = await self._call(
                "answer",
                lambda actor, call: actor.ask.remote(call, self._group, _alone(example), about, list(which)),
            )
        except BenchError:
            raise
        except Exception as fault:
            if found is not None and len(which) > 1:  # a cell that stops earlier may never get there
                return [record for at in which for record in await self.ask(example, [at])]
            kept = isinstance(fault, RemoteFaultError | _StuckError)
            text, wall_s = str(fault) if kept else fault_text(fault), time.perf_counter() - started
            index_meter = self._index_meter(found)
            return [self._record(example, None, text, Meter(), index_meter, wall_s) for _ in which]
        assert isinstance(lines, list)
        return [Record.model_validate_json(line) for line in lines]

    def _index_meter(self, found: StoredIndex | None) -> Meter:
        """What the index of a question cost, as far as it got; what finishing it cost, the worker knows."""
        learned = [] if self._learned is None else [self._learned.meter]
        return Meter() if found is None else Meter.combined([found.meter, *learned])

    async def _finished(self, documents: DocumentSet) -> StoredIndex:
        """Where in the cluster's memory the kept index lies; each worker finishes it for itself."""
        stored = await self.load_or_build(documents)
        return _Shipped(Index(), stored.meter, self._ray.put(documents), self._ray.put(stored))

    async def _call(self, what: str, ask: Callable[[Any, str], Any]) -> object:
        """What a worker returns; made again on another one as often as it is lost.

        Raises RemoteFaultError, _StuckError, and BenchError.
        """
        from ray.exceptions import RayError, RayTaskError

        while True:
            seat = await self._seat()
            call = self._executor.number()
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                reference = ask(seat.actor, call)
                self._pending[call] = ended, reference
                arriving = asyncio.ensure_future(_arrival(reference))
                await asyncio.wait({arriving, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done() and not arriving.done():
                    arriving.cancel()
                    raise _StuckError(
                        fault_text(TimeLimitError(f"no {what} within {self.limit.seconds:g} s"))
                    )
                found = await arriving
            except asyncio.CancelledError:
                self._ray.cancel(self._pending[call][1])
                raise
            except RayTaskError as error:
                raise BenchError(f"A worker failed outside of any question: {_said(error)}") from error
            except RayError as error:
                self._lose(seat, _said(error))
                continue
            finally:
                self._pending.pop(call, None)
                seat.at_work -= 1
                self._wake(1)
            self._executor.progressed()
            if isinstance(found, Refused):
                raise (ModelUnavailableError if found.model else BenchError)(found.text)
            if isinstance(found, Failed):
                raise RemoteFaultError(found.text)
            return found

    async def _seat(self) -> _Seat:
        """The worker with least to do, once one has room; raises BenchError when none will."""
        while True:
            if self._broken is not None:
                raise self._broken
            seat = self._executor.least_busy()
            if seat is not None:
                seat.at_work += 1
                return seat
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake(1)
                raise

    def _wake(self, most: int | None = None) -> None:
        """Let those who wait for a worker look again, the first ones first; None: all of them."""
        while self._waiting and most != 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                most = None if most is None else most - 1

    def _look_after(self) -> None:
        """Greet new workers, and watch each of them; seats of lost ones are filled."""
        for seat in self._executor.fill():
            if seat not in self._looked_after:
                self._looked_after[seat] = asyncio.create_task(self._watch(seat))

    async def _watch(self, seat: _Seat) -> None:
        """Make a worker usable once it is there, and end what keeps it from working."""
        from ray.exceptions import RayError, RayTaskError

        try:
            if not seat.usable:
                require_same(await _arrival(seat.ready))
                seat.usable = True
            self._wake()
            if self.limit.seconds is not None:
                stuck = seat.actor.stuck.options(concurrency_group="watch").remote(self.limit.seconds)
                try:
                    ended, _ = self._pending.get(await _arrival(stuck), (None, None))
                finally:
                    self._ray.cancel(stuck)
                if ended is not None and not ended.done():
                    ended.set_result(None)
                self._executor.progressed()
                self._lose(seat, "a method on it does not return")
        except BenchError as error:
            self._end(error)
        except RayTaskError as error:
            self._end(BenchError(f"A worker cannot start: {_said(error)}"))
        except RayError as error:
            with contextlib.suppress(BenchError):
                self._lose(seat, _said(error))

    def _lose(self, seat: _Seat, why: str) -> None:
        try:
            self._executor.lose(seat, why)
        except BenchError as error:
            self._end(error)
            raise
        self._look_after()

    def _end(self, error: BenchError) -> None:
        """Whoever waits for a worker, or will, gets this error."""
        self._broken = error
        self._wake()

    async def _say_what_is_waited_for(self) -> None:
        while True:
            await asyncio.sleep(WAITING_S)
            if not any(seat.usable for seat in self._looked_after):
                log.warning("no worker yet; wanted: %s", self._executor.wanted())


class _NoModels:
    """In the place of the models, which are the workers'."""

    def lm(self, role: str = "reader") -> LanguageModel:
        raise RuntimeError("models are on the workers")

    def embedder(self, role: str = "embedder", *, pooling: Pooling | None = None) -> Embedder:
        raise RuntimeError("models are on the workers")


def require_same(found: Mapping[str, JsonValue]) -> None:
    """Raise BenchError where a worker runs other software than this process: its records might differ."""
    own = environment()
    commits = own["git_commit"], found["git_commit"]
    differing = [
        f"{name} {found['versions'].get(name, 'missing')} instead of {version}"
        for name, version in own["versions"].items()
        if found["versions"].get(name) != version
    ]
    if None not in commits and commits[0] != commits[1]:
        differing.append(f"commit {commits[1]} instead of {commits[0]}")
    if differing:
        raise BenchError(
            f"A machine of the cluster has {', '.join(differing)}. Install the same versions on all of "
            "them (constraints.txt); otherwise their records would not be those of one experiment."
        )


def _alone(example: Example) -> Example:
    """The example without its documents, which travel apart, once for all questions about them."""
    return replace(example, documents=DocumentSet(()))


async def _arrival(reference: Any) -> Any:
    return await reference


def _said(error: Exception) -> str:
    """What an error of Ray says: its first line, and the last one, where the cause stands."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
    return f"{type(error).__name__}: {text[:500]}"
