"""Questions of the shipped sample sets that several benchmarks share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bench.flops.meter import Meter, metered
from bench.models.language_model import CausalLanguageModel
from bench.models.model_set import LoadedModels
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.schema import DocumentSet, Example, Index, Prediction
from performance.drawn import TINY, in_flight
from performance.measuring import one_thread


@dataclass(frozen=True)
class Asked:
    """A question's prediction and what it cost."""

    prediction: Prediction
    meter: Meter


@dataclass(frozen=True)
class PecanWork:
    """Questions of the shipped sample sets for PECAN on the shipped model."""

    cells: Mapping[str, Cell]
    examples: Sequence[Example]
    documents: Sequence[DocumentSet]
    models: LoadedModels

    @property
    def lm(self) -> CausalLanguageModel:
        """The model that builds, searches and answers."""
        lm = self.models.lm()
        assert isinstance(lm, CausalLanguageModel)
        return lm

    def cell(self, example: Example) -> Cell:
        """The cell that a question belongs to."""
        return self.cells[example.dataset]

    def build(self, most: int, documents: Sequence[DocumentSet] | None = None) -> dict[str, Index]:
        """Graphs by document, at most so many documents at a time."""
        method = next(iter(self.cells.values())).method
        chosen = self.documents if documents is None else documents
        built = asyncio.run(in_flight(lambda one: method.index(one, self.models), chosen, most))
        return {one.id: index for one, index in zip(chosen, built, strict=True)}

    def ask(self, indexes: Mapping[str, Index], most: int) -> list[Asked]:
        """Every question answered, at most so many at a time."""

        async def one(example: Example) -> Asked:
            cell = self.cell(example)
            with metered(Meter()) as meter:
                index = indexes[example.documents.id]
                prediction = await cell.method.answer(index, cell.question(example), self.models)
            return Asked(prediction, meter)

        return asyncio.run(in_flight(one, self.examples, most))


@lru_cache(maxsize=4)
def pecan_work(documents: tuple[tuple[str, int], ...], questions: int | None = None) -> PecanWork:
    """The first so many documents of each data set, with all questions asked about them.

    questions: at most so many, evenly over the documents. Arithmetic is on one thread.
    """
    one_thread()
    cells = {
        dataset: plan_cell(CellRequest("pecan", dataset, TINY, dtype="float32")) for dataset, _ in documents
    }
    examples: list[Example] = []
    sets: dict[str, DocumentSet] = {}
    for dataset, count in documents:
        chosen = list({e.documents.id: e.documents for e in cells[dataset].data.examples}.values())[:count]
        sets |= {one.id: one for one in chosen}
        examples += [e for e in cells[dataset].data.examples if e.documents.id in sets]
    if questions is not None:
        step = len(examples) / min(questions, len(examples))
        examples = [examples[int(at * step)] for at in range(min(questions, len(examples)))]
    roles = {role: spec.loaded(device="cpu") for cell in cells.values() for role, spec in cell.roles.items()}
    work = PecanWork(cells, examples, list(sets.values()), LoadedModels(roles))
    asyncio.run(work.models.embedder().embed(["Loaded before anything is timed."]))
    work.lm.engine.scheduler.limits  # noqa: B018 - set up on first use
    return work
