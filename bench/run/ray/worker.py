"""One worker: a process with the models of a run, which answers questions.

It is a Ray actor whose calls run in one event loop, so that the engine batches the requests of many
questions, as in a single process. Errors are returned, not raised: exceptions with their own constructor
signature cannot be sent between processes.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bench.data import LoadedData
from bench.errors import BenchError, ModelUnavailableError
from bench.method.contract import Training, TrainingItem
from bench.models.conversation import ModelSet
from bench.models.spec import ModelSpec, cuda_available
from bench.results.index_store import IndexStore, StoredIndex
from bench.run.cell import Cell
from bench.run.provenance import environment
from bench.run.question_runner import INDEXES_IN_MEMORY, QuestionRunner
from bench.run.redaction import fault_text
from bench.schema import DocumentSet, Example, Index, JsonValue


@dataclass(frozen=True)
class Failed:
    """An exception of a method, as a record's error text; or a BenchError, which ends the run."""

    text: str
    error: type[BenchError] | None = None


@dataclass(frozen=True)
class Group:
    """Cells that share one run per question, without their data."""

    cells: tuple[Cell, ...]
    timeout_s: float | None


def without_data(cell: Cell) -> Cell:
    """The cell without its data and with fixed number formats, which a worker must not choose itself."""
    roles = {role: _with_dtype(spec) for role, spec in cell.roles.items()}
    nothing = LoadedData((), "", "path", "", "")
    return replace(cell, data=nothing, training=None, reader=_with_dtype(cell.reader), roles=roles)


def _with_dtype(spec: ModelSpec) -> ModelSpec:
    return spec if spec.kind == "encoder" else spec.loaded(dtype=spec.actual_dtype)


def load_models(cell: Cell) -> ModelSet:
    """The cell's models, from this machine's files.

    Raises BenchError if they differ from those in the cell's identity, and whatever loading raises.
    """
    import torch

    from bench.models.model_set import LoadedModels

    several = cuda_available() and torch.cuda.device_count() > 1  # those that Ray gave to this process
    # New specs, without the properties that the sender has cached.
    roles = {
        role: spec.loaded(device="balanced" if several and spec.kind == "causal" else None)
        for role, spec in cell.roles.items()
    }
    for role, spec in roles.items():
        actual, planned = spec.identity(), cell.identity.models[role]
        if actual != planned:
            differing = ", ".join(
                f"{key} {actual.get(key)!r} instead of {value!r}"
                for key, value in planned.items()
                if actual.get(key) != value
            )
            raise BenchError(
                f"A worker has another {spec.name} (role {role}): {differing}. Install the same files on "
                "every machine of the cluster."
            )
    return LoadedModels(roles)


@dataclass
class _Received:
    """Documents that a worker has received from the driver."""

    documents: DocumentSet
    index: Any
    """Reference to their index."""
    users: int = 0
    """Questions in progress on these documents."""


class _WorkerQuestionRunner(QuestionRunner):
    """Answers with indexes from the driver; builds one only on request."""

    def __init__(self, group: Group, models: ModelSet) -> None:
        nowhere = IndexStore(Path(os.devnull))  # it neither loads nor saves
        super().__init__(group.cells, nowhere, models, group.timeout_s)
        self._received: OrderedDict[str, _Received] = OrderedDict()

    @asynccontextmanager
    async def documents(self, id_: str, documents: Any, index: Any) -> AsyncIterator[DocumentSet]:
        """The documents behind a reference; inside the block their index, also a reference, is available."""
        if id_ not in self._received:
            received = await documents
            self._received.setdefault(id_, _Received(received, index))
        entry = self._received[id_]
        self._received.move_to_end(id_)
        entry.index = index  # the older reference to the same index can be released
        entry.users += 1
        try:
            yield entry.documents
        finally:
            entry.users -= 1
            unused = (id_ for id_, other in self._received.items() if not other.users)
            for other_id in list(islice(unused, max(0, len(self._received) - INDEXES_IN_MEMORY))):
                del self._received[other_id]

    async def load_or_build(self, documents: DocumentSet) -> StoredIndex:
        stored: StoredIndex = await self._received[documents.id].index
        return _own(stored)


class Worker:
    """The actor."""

    def __init__(self, models: Callable[[Cell], ModelSet], gpus: float) -> None:
        """models: returns a cell's models, loaded on first use. gpus: GPUs per worker; may be a fraction."""
        self._models, self._gpus = models, gpus
        self._group = ""
        self._runner: _WorkerQuestionRunner | None = None
        self._opened, self._opening = AsyncExitStack(), asyncio.Lock()

    async def ready(self) -> dict[str, JsonValue]:
        """Versions and commit of this worker's software; after this call it accepts work."""
        if 0 < self._gpus < 1:
            import torch

            torch.cuda.set_per_process_memory_fraction(self._gpus)
        return environment()

    async def build(self, group: Sequence[Any], documents: DocumentSet) -> object:
        """The index of these documents: a StoredIndex or Failed."""
        return await self._outcome(group, lambda runner: runner.build(documents))

    async def train(self, group: Sequence[Any], items: Sequence[TrainingItem], training: Training) -> object:
        """The result of training the method on the items: a StoredIndex or Failed."""

        def learned(runner: QuestionRunner) -> Awaitable[StoredIndex]:
            return runner.train([replace(item, index=_own_arrays(item.index)) for item in items], training)

        return await self._outcome(group, learned)

    async def ask(
        self, group: Sequence[Any], example: Example, about: Sequence[Any], which: Sequence[int]
    ) -> object:
        """The records of one example for the cells at ``which``, as JSON lines; or Failed.

        example: without its documents. about: the documents' id, references to them and to their index,
        and to what was learned, if anything.
        """

        async def records(runner: _WorkerQuestionRunner) -> list[str]:
            id_, documents, index, *learned = about
            async with runner.documents(id_, documents, index) as own:
                if learned and runner.learned is None:
                    runner.learned = _own(await learned[0])
                answered = await runner.ask(replace(example, documents=own), which)
                return [record.to_line() for record in answered]

        return await self._outcome(group, records)

    async def _outcome(
        self, group: Sequence[Any], work: Callable[[_WorkerQuestionRunner], Awaitable[object]]
    ) -> object:
        try:
            return await work(await self._runner_of(*group))
        except BenchError as error:
            kind = ModelUnavailableError if isinstance(error, ModelUnavailableError) else BenchError
            return Failed(str(error), kind)
        except Exception as fault:
            return Failed(fault_text(fault))

    async def _runner_of(self, id_: str, reference: Any) -> _WorkerQuestionRunner:
        """The question runner of a group; a worker has one at a time."""
        async with self._opening:
            if self._runner is None or self._group != id_:
                await self._opened.aclose()
                group: Group = await reference
                runner = _WorkerQuestionRunner(group, self._models(group.cells[0]))
                await self._opened.enter_async_context(runner.working())
                self._group, self._runner = id_, runner
            return self._runner


def _own(stored: StoredIndex) -> StoredIndex:
    return StoredIndex(_own_arrays(stored.index), stored.meter)


def _own_arrays(index: Index) -> Index:
    """The index with copied arrays: those in shared memory are read-only."""
    return Index(index.data, {name: array.copy() for name, array in index.arrays.items()})
