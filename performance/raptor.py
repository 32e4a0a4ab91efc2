"""RAPTOR's index, phase by phase: time and peak memory per document.

Documents of the shipped sample sets, one at a time, in a process of its own: leaves and summaries are
embedded, UMAP and a Gaussian mixture cluster them (threads limited to one, as the seed demands), the shipped
model writes a summary per cluster, all summaries of a layer in flight. The first document pays for importing
UMAP and compiling it, once per process; the others are the rule. Memory is by how much a phase's peak lies
above what the process had before the document.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.models.api import Generation
from bench.models.model_set import LoadedModels
from bench.run.cell import CellRequest, plan_cell
from performance.drawn import TINY
from performance.measuring import in_own_process, memory_can_be_measured, peak_memory, wrapped
from performance.report import Measurement, spread

PHASES = ("embedding", "UMAP", "GMM", "summaries")


def measure(quick: bool) -> list[Measurement]:
    """Two data sets: short documents and the longest."""
    measurements = []
    for dataset, documents in (("hotpotqa", 2),) if quick else (("qasper", 5), ("narrativeqa", 5)):
        measurements += _report(dataset, in_own_process("performance.raptor:index", dataset, documents))
    return measurements


def _report(dataset: str, documents: Sequence[dict[str, Any]]) -> list[Measurement]:
    first, *others = documents
    shape: dict[str, Any] = {key: [one[key] for one in others] for key in ("tokens", "leaves", "nodes")}
    what = f"{dataset}, {sum(shape['leaves']) / len(others):.0f} leaves"
    measurements = [
        spread(f"{what}: index of a document", [one["seconds"] for one in others], "s", **shape),
        Measurement(f"{dataset}: the process's first document", first["seconds"], "s", details=first),
    ]
    for phase in (*PHASES, "the rest"):
        measurements.append(spread(f"{what}: {phase}", [one["phases"][phase] for one in others], "s"))
    for phase in PHASES if memory_can_be_measured() else ():
        values = [one["peak_bytes"][phase] / 1e6 for one in others]
        measurements.append(spread(f"{what}: peak memory in {phase}", values, "MB"))
    return measurements


@dataclass
class Phases:
    """Seconds and peak memory of each phase while one document is indexed; phases do not overlap."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    highest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    """Most bytes resident at once."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The block belongs to this phase."""
        with ExitStack() as stack:
            peak = stack.enter_context(peak_memory(settle=False)) if memory_can_be_measured() else None
            started = time.perf_counter()
            try:
                yield
            finally:
                self.seconds[name] += time.perf_counter() - started
                stack.close()
                if peak is not None:
                    self.highest[name] = max(self.highest[name], peak.highest)

    def of_calls(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What makes every call of a function belong to this phase."""

        def around(own: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                with self.phase(name):
                    return own(*args, **kwargs)

            return call

        return around


class WatchedModels:
    """The models of a run; what the encoder and the reader do belongs to a phase."""

    def __init__(self, models: LoadedModels, phases: Phases) -> None:
        """phases: where time and memory are added up."""
        self._models, self._phases = models, phases
        self._summaries: ExitStack | None = None
        self._waiting = 0

    def __getattr__(self, name: str) -> Any:
        """What the reader has, but for :meth:`generate`."""
        return getattr(self._models.lm(), name)

    def lm(self, role: str = "reader") -> Any:
        """The reader, watched."""
        return self

    def embedder(self, role: str = "embedder", **options: Any) -> Any:
        """The encoder, watched."""
        return WatchedEncoder(self._models.embedder(role, **options), self._phases)

    async def generate(self, prompt: str, max_new_tokens: int, **options: Any) -> Generation:
        """A summary; the phase lasts while any is under way."""
        if self._waiting == 0:
            self._summaries = ExitStack()
            self._summaries.enter_context(self._phases.phase("summaries"))
        self._waiting += 1
        try:
            return await self._models.lm().generate(prompt, max_new_tokens, **options)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and self._summaries is not None:
                self._summaries.close()


class WatchedEncoder:
    """An encoder whose embeddings belong to a phase."""

    def __init__(self, encoder: Any, phases: Phases) -> None:
        """encoder: what embeds."""
        self._encoder, self._phases = encoder, phases

    def __getattr__(self, name: str) -> Any:
        """What the encoder has, but for :meth:`embed`."""
        return getattr(self._encoder, name)

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> Any:
        """Embeddings of the texts."""
        with self._phases.phase("embedding"):
            return await self._encoder.embed(texts)


def index(dataset: str, documents: int) -> list[dict[str, Any]]:
    """Index the first so many documents, one after the other; what each took."""
    cell = plan_cell(CellRequest("raptor", dataset, TINY, dtype="float32"))
    models = LoadedModels(cell.roles)
    sets = list({example.documents.id: example.documents for example in cell.data.examples}.values())
    clustering = importlib.import_module("methods.raptor.clustering")
    asyncio.run(models.embedder().embed(["Loaded before anything is timed."]))
    asyncio.run(models.lm().generate("Loaded as well.", 2))
    profiles = []
    for one in sets[:documents]:
        phases = Phases()
        before = 0
        if memory_can_be_measured():
            with peak_memory() as peak:
                before = peak.before
        started = time.perf_counter()
        with (
            wrapped(clustering, "reduced", phases.of_calls("UMAP")),
            wrapped(clustering, "cluster_labels", phases.of_calls("GMM")),
        ):
            tree = asyncio.run(cell.method.index(one, WatchedModels(models, phases)))
        seconds = time.perf_counter() - started
        leaves = len(tree.data["leaves"])
        profiles.append(
            {
                "tokens": sum(models.lm().count_tokens(text.full_text) for text in one.documents),
                "leaves": leaves,
                "nodes": leaves + len(tree.data["summaries"]),
                "seconds": seconds,
                "phases": {**phases.seconds, "the rest": seconds - sum(phases.seconds.values())},
                "peak_bytes": {name: max(0, peak - before) for name, peak in phases.highest.items()},
            }
        )
    return profiles
