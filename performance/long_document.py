"""A document of 470,000 tokens: its chunks, BM25, and PECAN's graph of the whole.

470,000 tokens are about the longest text of NarrativeQA; the document is made of the generator's stories, and
read by the shipped model. PECAN's graph of a fortieth comes first: it says how far the whole has got, which
every half minute is printed, and whether time and memory grow with the text or faster.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.engine.engine import Engine
from bench.method.chunking import chunk_documents
from bench.models.loader import load_tokenizer
from bench.models.model_set import LoadedModels, load_language_model
from bench.models.spec import resolve
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Document, DocumentSet
from performance.drawn import TINY
from performance.measuring import peak_memory
from performance.report import Measurement
from performance.scale import sample_rows

log = logging.getLogger(__name__)

TOKENS = 470_000
PART = 40
"""PECAN's graph of so small a share comes first."""
PROGRESS_S = 30.0


def measure(quick: bool) -> list[Measurement]:
    """Chunks, BM25, PECAN's graph of a part, and of the whole."""
    tokens = 8_000 if quick else TOKENS
    pecan = plan_cell(CellRequest("pecan", "narrativeqa", TINY, limit=1))
    models = LoadedModels(pecan.roles)
    engine = load_language_model(pecan.reader).engine
    documents, part = long_document(tokens), long_document(tokens // PART)
    measurements = _flat(documents, models, f"document of {tokens:,} tokens")
    expected: float | None = None
    for text, count in ((part, tokens // PART), (documents, tokens)):
        name = f"document of {count:,} tokens: PECAN's graph"
        before = engine.runner.tokens

        def build(text: DocumentSet = text) -> object:
            return asyncio.run(pecan.method.index(text, models))

        with _progress(name, engine, expected):
            lines = _timed(name, build)
        read = engine.runner.tokens - before
        expected = read * tokens / count
        measurements += [*lines, Measurement(f"{name}: tokens through the model", read, "")]
    return measurements


def long_document(tokens: int) -> DocumentSet:
    """Stories of the generator, one after the other, until the shipped model counts so many tokens."""
    tokenizer = load_tokenizer(resolve(TINY))
    texts, counted = list[str](), 0
    for row in sample_rows("narrativeqa"):
        text = row["documents"][0]["text"]
        if text in texts[-1:]:
            continue  # questions of one document follow each other
        texts.append(text)
        counted += len(tokenizer.encode(text).ids)
        if counted >= tokens:
            break
    return DocumentSet((Document("A Long Chronicle", "\n".join(texts)),))


def _flat(documents: DocumentSet, models: LoadedModels, name: str) -> list[Measurement]:
    """Chunks and BM25."""
    bm25 = plan_cell(CellRequest("bm25", "narrativeqa", TINY, limit=1))
    question = replace(bm25.question(bm25.data.examples[0]), documents=documents)
    lm = models.lm()
    measurements = _timed(
        f"{name}: chunks", lambda: chunk_documents(documents, lm.tokenize, lm.geometry.chunk_tokens)
    )
    index = asyncio.run(bm25.method.index(documents, models))
    measurements += _timed(f"{name}: BM25 index", lambda: asyncio.run(bm25.method.index(documents, models)))
    return measurements + _timed(
        f"{name}: BM25 ranks and reads", lambda: asyncio.run(bm25.method.answer(index, question, models))
    )


@contextmanager
def _progress(name: str, engine: Engine, expected: float | None) -> Iterator[None]:
    """Say every half minute how many tokens went through the model, of how many that are expected."""
    started, first, done = time.perf_counter(), engine.runner.tokens, threading.Event()

    def say() -> None:
        while not done.wait(PROGRESS_S):
            read, of = engine.runner.tokens - first, f" of about {expected:,.0f}" if expected else ""
            log.info("%s: %s%s tokens after %.0f s", name, f"{read:,}", of, time.perf_counter() - started)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _timed(name: str, run: Callable[[], object]) -> list[Measurement]:
    """Seconds on the clock and of the processor, and by how much memory grew at most (details: to what)."""
    with peak_memory() as peak:
        started, cpu = time.perf_counter(), time.process_time()
        run()
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    log.info("%s: %.1f s, processor %.1f s, %.0f MB more", name, wall_s, cpu_s, peak.growth / 1e6)
    return [
        Measurement(name, wall_s, "s"),
        Measurement(f"{name}: processor", cpu_s, "s"),
        Measurement(
            f"{name}: memory", peak.growth / 1e6, "MB", details={"whole_process_bytes": peak.highest}
        ),
    ]
