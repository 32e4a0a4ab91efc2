"""Train a method before the first question: once, with the result stored like an index."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from bench.errors import BenchError
from bench.flops.meter import Meter
from bench.method.contract import TrainingItem
from bench.results.index_store import IndexStore, StoredIndex, index_key
from bench.run.cell import Cell
from bench.run.training_plan import training_parts
from bench.schema import DocumentSet

log = logging.getLogger(__name__)


async def learn(
    cell: Cell,
    store: IndexStore,
    build: Callable[[Sequence[DocumentSet]], Awaitable[Sequence[StoredIndex | BaseException]]],
    train: Callable[[Sequence[TrainingItem]], Awaitable[StoredIndex]],
) -> StoredIndex | None:
    """What the cell's method learned, from the store or from training now; None without a training plan.

    build: returns the indexes of document sets in order, with the exception for each that failed. Documents
    that cannot be indexed are left out of the training, whose result is then stored under the hash of the
    others. train: trains the method. The returned meter is one document set's share of the total cost.
    Raises BenchError, and whatever the training raises.
    """
    plan = cell.training
    if plan is None:
        return None

    def key(sets: Sequence[DocumentSet]) -> str:
        return index_key({**cell.training_key_parts(), "documents": training_parts(sets, plan.references)})

    name, sets = cell.method.name, list(plan.sets)
    stored = store.load(name, key(sets))
    if stored is None:
        indexes = await build(sets)
        for outcome in indexes:
            if isinstance(outcome, BenchError):
                raise outcome
        usable = [(s, i) for s, i in zip(sets, indexes, strict=True) if isinstance(i, StoredIndex)]
        if len(usable) < len(sets):
            log.warning("%d of %d document sets cannot be learned from", len(sets) - len(usable), len(sets))
            sets = [documents for documents, _ in usable]
            stored = store.load(name, key(sets))
        if stored is None:
            async with store.building(name, key(sets)):
                stored = store.load(name, key(sets))
                if stored is None:
                    items = [TrainingItem(s, i.index, plan.references.get(s.id, ())) for s, i in usable]
                    stored = await train(items)
                    store.save(name, key(sets), stored.index, stored.meter)
    asked = {example.documents.id for example in cell.data.examples}
    others = await build([documents for documents in sets if documents.id not in asked])
    spent = [stored.meter, *(index.meter for index in others if isinstance(index, StoredIndex))]
    return StoredIndex(stored.index, Meter.combined(spent).shared(max(1, len(asked))))
