"""One worker: the models of a run in a process of their own, and the questions answered with them.

It is a Ray actor whose calls run in one event loop, so that the engine batches what many questions ask,
as it does in a single process. What goes wrong is returned, not raised: errors with a signature of
their own do not survive the way between processes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from bench.data import LoadedData
from bench.errors import BenchError, ModelUnavailableError
from bench.flops.meter import Meter, metered
from bench.method.contract import Training, TrainingItem
from bench.models.api import ModelSet
from bench.models.spec import ModelSpec, cuda_available
from bench.results.index_store import CheckpointFile, IndexStore, StoredIndex
from bench.run.cell import Cell
from bench.run.provenance import environment
from bench.run.question_runner import INDEXES_IN_MEMORY, QuestionRunner
from bench.run.ray.cluster import load_ray
from bench.run.redaction import fault_text
from bench.run.time_limit import TURN_S, TimeLimit
from bench.schema import DocumentSet, Example, Index, JsonValue

_call: ContextVar[str] = ContextVar("bench_call", default="")


@dataclass(frozen=True)
class Refused:
    """A BenchError: the set-up is at fault, and the run ends."""

    text: str
    model: bool
    """Whether a model is not to be had."""


@dataclass(frozen=True)
class Failed:
    """What a method raised, as a record keeps it."""

    text: str


@dataclass(frozen=True)
class Group:
    """Cells that one run per question serves, without their data."""

    cells: tuple[Cell, ...]
    timeout_s: float | None


def travelling(cell: Cell) -> Cell:
    """The cell without its data, its models' number formats decided: a worker must not choose its own."""
    roles = {role: _decided(spec) for role, spec in cell.roles.items()}
    nothing = LoadedData((), "", "path", "", "")
    return replace(cell, data=nothing, training=None, reader=_decided(cell.reader), roles=roles)


def _decided(spec: ModelSpec) -> ModelSpec:
    if not isinstance(spec, ModelSpec) or spec.kind == "encoder":
        return spec
    return replace(spec, dtype=spec.actual_dtype)


def load_models(cell: Cell) -> ModelSet:
    """The cell's models as this machine has them.

    Raises BenchError where they are not those of the cell's identity, and what loading raises.
    """
    from bench.models.model_set import LoadedModels

    several = cuda_available() and _gpus() > 1
    # Made anew, so that they forget what the sender looked up.
    roles = {
        role: replace(spec, device="balanced" if several and spec.kind == "causal" else None)
        for role, spec in cell.roles.items()
    }
    for role, spec in roles.items():
        found, planned = spec.identity(), cell.identity.models[role]
        if found != planned:
            differing = [key for key in planned if found.get(key) != planned[key]]
            said = ", ".join(f"{key} {found.get(key)!r} instead of {planned[key]!r}" for key in differing)
            raise BenchError(
                f"A worker has another {spec.name} (role {role}): {said}. Give every machine of the cluster "
                "the same files."
            )
    return LoadedModels(roles)


def _gpus() -> int:
    """How many GPUs Ray has given to this process."""
    import torch

    return torch.cuda.device_count()


class Checkpointer:
    """A second actor, beside the one who writes results: keeps how far a training on a worker got."""

    def __init__(self, file: CheckpointFile) -> None:
        """file: where."""
        self.file = file

    def load(self) -> Index | None:
        """What was saved last."""
        return self.file.load()

    def save(self, state: Index) -> None:
        """Keep this state."""
        self.file.save(state)


class RemoteCheckpoints:
    """A :class:`bench.method.contract.Checkpoints` that asks a :class:`Checkpointer`."""

    def __init__(self, keeper: Any) -> None:
        """keeper: the actor."""
        self.keeper = keeper

    def load(self) -> Index | None:
        """What was saved last."""
        found: Index | None = load_ray().get(self.keeper.load.remote())
        return None if found is None else _own_arrays(found)

    def save(self, state: Index) -> None:
        """Keep this state; returns once it is on disk."""
        load_ray().get(self.keeper.save.remote(state))


@dataclass
class _Handed:
    """Documents that a worker was handed."""

    documents: DocumentSet
    index: Any
    """Reference to their index."""
    users: int = 0
    """Questions about them that are being worked on."""


class _HandedAsker(QuestionRunner):
    """Answers with the indexes that it is handed; builds them only when told to."""

    def __init__(self, group: Group, models: ModelSet) -> None:
        super().__init__(group.cells, _nowhere(), models, TimeLimit(group.timeout_s))
        self._handed: OrderedDict[str, _Handed] = OrderedDict()

    @asynccontextmanager
    async def documents(self, id_: str, documents: Any, index: Any) -> AsyncIterator[DocumentSet]:
        """The documents behind a reference; inside the block their index, behind the other, is at hand."""
        if id_ not in self._handed:
            found = await documents
            self._handed.setdefault(id_, _Handed(found, index))
        handed = self._handed[id_]
        self._handed.move_to_end(id_)
        handed.index = index  # of two references to the same the older one may be let go
        handed.users += 1
        try:
            yield handed.documents
        finally:
            handed.users -= 1
            unused = (id_ for id_, other in self._handed.items() if not other.users)
            for other_id in list(islice(unused, max(0, len(self._handed) - INDEXES_IN_MEMORY))):
                del self._handed[other_id]

    def hand_learned(self, learned: StoredIndex) -> None:
        """What the method learned before any question."""
        self._learned = learned

    async def _load_or_build(self, documents: DocumentSet) -> StoredIndex:
        stored: StoredIndex = await self._handed[documents.id].index
        return _own(stored)


class Worker:
    """The actor; every call has a name, so that one that hangs can be told from its neighbours."""

    def __init__(self, models: Callable[[Cell], ModelSet], gpus: float) -> None:
        """models: gives a cell's models, loaded on first use. gpus: this worker's share of one."""
        self._models, self._gpus = models, gpus
        self._group = ""
        self._asker: _HandedAsker | None = None
        self._opened, self._opening = AsyncExitStack(), asyncio.Lock()
        self._turned = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()

    async def ready(self) -> dict[str, JsonValue]:
        """Versions and commit of the software of this worker; from here on it can be asked."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_task_factory(self._named_task)
        self._ticking = asyncio.create_task(self._tick())
        if 0 < self._gpus < 1:
            import torch

            torch.cuda.set_per_process_memory_fraction(self._gpus)
        return environment()

    async def build(self, call: str, group: Sequence[Any], documents: DocumentSet) -> object:
        """The index of these documents: a StoredIndex, Failed or Refused."""
        return await self._outcome(call, group, lambda asker: asker.build(documents))

    async def train(
        self, call: str, group: Sequence[Any], items: Sequence[TrainingItem], training: Training, keeper: Any
    ) -> object:
        """What the method learns from the items: a StoredIndex, Failed or Refused."""

        async def learned(asker: QuestionRunner) -> StoredIndex:
            owned = [replace(item, index=_own_arrays(item.index)) for item in items]
            with metered(Meter()) as meter:
                found = await asker.cells[0].method.train(
                    owned, training, asker.models, RemoteCheckpoints(keeper)
                )
            return StoredIndex(found, meter)

        return await self._outcome(call, group, learned)

    async def ask(
        self, call: str, group: Sequence[Any], example: Example, about: Sequence[Any], which: Sequence[int]
    ) -> object:
        """The records of one example for the cells at ``which``, as JSON lines; or Failed, or Refused.

        example: without its documents. about: the documents' id, references to them and to their index,
        and to what was learned, if anything was.
        """

        async def asked(asker: _HandedAsker) -> list[str]:
            id_, documents, index, *learned = about
            async with asker.documents(id_, documents, index) as own:
                if learned and asker.learned is None:
                    asker.hand_learned(_own(await learned[0]))
                found = await asker.ask(replace(example, documents=own), which)
                return [record.to_line() for record in found]

        return await self._outcome(call, group, asked)

    async def stuck(self, limit_s: float) -> str:
        """The call that keeps the event loop from turning for longer than it may; waits until one does.

        Must be run by another event loop than the other calls.
        """
        while True:
            await asyncio.sleep(min(TURN_S, limit_s / 4))
            if time.monotonic() - self._turned < limit_s + 2 * TURN_S or self._loop is None:
                continue
            task = asyncio.current_task(self._loop)
            # Otherwise the engine is at work, or what is between the calls.
            if task is not None and self._asker is not None and self._asker.limit.holds(task):
                return self._calls.get(task, "")

    async def _outcome(
        self, call: str, group: Sequence[Any], work: Callable[[_HandedAsker], Awaitable[object]]
    ) -> object:
        _call.set(call)
        try:
            return await work(await self._asker_of(*group))
        except BenchError as error:
            return Refused(str(error), isinstance(error, ModelUnavailableError))
        except Exception as fault:
            return Failed(fault_text(fault))

    async def _asker_of(self, id_: str, reference: Any) -> _HandedAsker:
        """The asker of a group; a worker has one at a time."""
        async with self._opening:
            if self._asker is None or self._group != id_:
                await self._opened.aclose()
                group: Group = await reference
                asker = _HandedAsker(group, self._models(group.cells[0]))
                await self._opened.enter_async_context(asker.working())
                self._group, self._asker = id_, asker
            return self._asker

    async def _tick(self) -> None:
        while True:
            self._turned = time.monotonic()
            await asyncio.sleep(TURN_S / 4)

    def _named_task(
        self, loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """A task that remembers which call it is part of."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        self._calls[task] = (context or copy_context()).get(_call, "")
        return task


def _own(stored: StoredIndex) -> StoredIndex:
    return StoredIndex(_own_arrays(stored.index), stored.meter)


def _own_arrays(index: Index) -> Index:
    """The index with arrays of its own: what comes out of shared memory cannot be written to."""
    return Index(index.data, {name: array.copy() for name, array in index.arrays.items()})


def _nowhere() -> IndexStore:
    """A store for an asker that neither loads nor saves."""
    return IndexStore(Path(os.devnull))
