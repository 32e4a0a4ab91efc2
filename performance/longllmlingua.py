"""LongLLMLingua's compressor: how often it reads a document, and how long that takes.

Documents of the shipped sample sets, compressed for their questions by the shipped model at the method's
defaults, one at a time (the library works by itself, not through the engine). *Passes* are the compressor's
token-forwards per token of the document, for ranking the chunks and for dropping tokens; the papers' method
is charged with all of them.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from bench.models.model_set import LoadedModels
from bench.run.cell import CellRequest, plan_cell
from performance.drawn import TINY
from performance.measuring import stopwatch, wrapped
from performance.report import Measurement, NotRun, spread


def measure(quick: bool) -> list[Measurement]:
    """Short and long documents."""
    try:
        library = importlib.import_module("methods.longllmlingua.library")
    except Exception as error:
        raise NotRun(str(error)) from error
    measurements = []
    for dataset, documents in (("hotpotqa", 1),) if quick else (("hotpotqa", 6), ("qasper", 6)):
        measurements += _one_set(library, dataset, documents)
    return measurements


def _one_set(library: Any, dataset: str, documents: int) -> list[Measurement]:
    cell = plan_cell(CellRequest("longllmlingua", dataset, TINY, dtype="float32"))
    models = LoadedModels(cell.roles)
    asyncio.run(models.lm().generate("Loaded before anything is timed.", 2))
    examples = list({example.documents.id: example for example in cell.data.examples}.values())[:documents]
    seconds: list[float] = []

    def timed(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with stopwatch(seconds):
                return own(*args, **kwargs)

        return call

    traces = []
    with wrapped(library, "compress", timed):
        for example in examples:
            index = asyncio.run(cell.method.index(example.documents, models))
            prediction = asyncio.run(cell.method.answer(index, cell.question(example), models))
            traces.append(prediction.trace)
    tokens = [trace["document_tokens"] for trace in traces]
    what = f"{dataset}, documents of {sum(tokens) / len(tokens):.0f} tokens"
    passes = [trace["compressor_tokens"] / n for trace, n in zip(traces, tokens, strict=True)]
    forwards = [trace["compressor_forwards"] for trace in traces]
    rates = [trace["achieved_rate"] for trace in traces]
    per_token = [1000 * s / n for s, n in zip(seconds, tokens, strict=True)]
    return [
        spread(f"{what}: passes over the document", passes, "", rates=rates),
        spread(f"{what}: forwards per document", forwards, ""),
        spread(f"{what}: time per token of the document", per_token, "ms", seconds=seconds),
    ]
