"""A results folder of 10,000 cells and 1,000,000 records: listing, resuming, rendering, comparing.

The store is written by this benchmark, in the shapes that a sweep writes: cells of 100 questions with
records of some 3 KB each, and two cells of 10,000 questions. Every command is a process of its own, measured
from outside: seconds on the clock, of the processor, and the most memory it held. *Again* is the sweep that
made the cells, which finds everything finished.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.files.atomic import write_json
from bench.results.models import Summary
from bench.results.records import (
    CELL_FILE,
    FLOP_CONVENTION,
    RECORDS_FILE,
    SUMMARY_FILE,
    ContextRecord,
    FlopCounts,
    Record,
    RecordStore,
    TokenCounts,
)
from bench.results.summary import summarize
from bench.run.cell import Cell, CellRequest
from bench.run.cell_folder import describe
from bench.schema import Document, DocumentSet, Example
from bench.sweeps.grid import plan_sweep
from performance.drawn import TINY
from performance.measuring import REPOSITORY, peak_memory, status_bytes
from performance.report import Measurement
from training.generator import sample_set

log = logging.getLogger(__name__)

QUESTIONS = 100
"""Of one cell."""
CHUNKS = (60, 65, 70, 75)
"""Values of the option that no method replays: each has cells that one run per question serves."""
LARGE = 10_000
"""Questions of each of the two large cells."""


def measure(quick: bool) -> list[Measurement]:
    """Write the store, then look at it."""
    with tempfile.TemporaryDirectory() as temporary:
        return _store(Path(temporary), 8 if quick else 10_000, 200 if quick else LARGE)


@dataclass(frozen=True)
class Spent:
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


COMMAND = """
import atexit, sys
from pathlib import Path
status = Path(sys.argv.pop())
atexit.register(lambda: status.write_text(Path("/proc/self/status").read_text()))
from bench.cli.main import main
main(sys.argv[1:])
"""
"""``bench``, leaving behind what the system says about it at its end. (What a parent is told of a child's
memory after the end includes its own.)"""


def command(arguments: Sequence[str]) -> Spent:
    """Run ``bench`` with these arguments; raises RuntimeError with what it said if it fails."""
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile() as status:
        started = time.perf_counter()
        line = [sys.executable, "-c", COMMAND, *arguments, status.name]
        process = subprocess.Popen(line, stdout=output, stderr=output, cwd=REPOSITORY)
        _, ended, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
        wall_s = time.perf_counter() - started
        if process.returncode:
            output.seek(0)
            raise RuntimeError(
                f"bench {' '.join(arguments)}: {output.read()[-3000:].decode(errors='replace')}"
            )
        peak = status_bytes("VmHWM", Path(status.name))
    return Spent(wall_s, usage.ru_utime + usage.ru_stime, peak)


def write_store(results: Path, data: Path, cells: int) -> list[str]:
    """A finished sweep of about ``cells`` cells on 100 questions; returns the arguments that name it."""
    rows = list(itertools.islice(sample_rows("hotpotqa"), QUESTIONS))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    per_group = max(1, cells // len(CHUNKS))
    base = CellRequest("bm25", "hotpotqa", TINY, str(data))
    planned = plan_sweep(base, {"chunk_tokens": list(CHUNKS), "k": list(range(1, per_group + 1))})
    first = planned[0].cell
    records = list(synthetic_records(first.data.examples))
    summary = summarize(records, first.card.metrics)
    for grid_cell in planned:
        _write_cell(grid_cell.cell, grid_cell.cell.folder(results), records, summary)
    grid = [f"chunk_tokens={','.join(map(str, CHUNKS))}", f"k=1:{per_group}"]
    return ["--method", "bm25", "--dataset", "hotpotqa", "--data", str(data), *grid]


def _write_cell(cell: Cell, folder: Path, records: Sequence[Record], summary: Summary) -> None:
    folder.mkdir(parents=True)
    body = "".join(record.to_line() for record in records).encode()
    (folder / RECORDS_FILE).write_bytes(body)
    (folder / CELL_FILE).write_text(json.dumps(describe(cell).to_json(), indent=2, sort_keys=True))
    digest = hashlib.sha256(body).hexdigest()
    own = summary.model_copy(update={"cell_id": cell.identity.cell_id, "records_sha256": digest}).sealed()
    (folder / SUMMARY_FILE).write_text(json.dumps(own.to_json(), indent=2, sort_keys=True))


def synthetic_records(examples: Sequence[Example], seed: int = 0) -> Iterator[Record]:
    """Records as a ranker writes them, with random scores and seven passages each."""
    rng = random.Random(seed)
    usage = {"calls": 9, "new_tokens": 700, "attended": 250_000, "logit_rows": 9, "flops": 10**10}
    for example in examples:
        documents = example.documents.documents
        context = [
            ContextRecord(
                document=at % len(documents),
                title=documents[at % len(documents)].title,
                start=at,
                end=at + 200,
                score=rng.random(),
            )
            for at in range(7)
        ]
        yield Record(
            example_id=example.id,
            document_ids=[document.id for document in documents],
            question=example.question,
            answers=list(example.answers),
            prediction=example.answers[0],
            scores={"f1": rng.random(), "rouge_l": rng.random()},
            context=context,
            retrieval={"evidence_recall": rng.random(), "answer_in_context": float(rng.random() < 0.5)},
            tokens=TokenCounts(prompt=700, completion=8, forwarded=707),
            flops=FlopCounts(
                query=10**10 + rng.randrange(10**9),
                index=0,
                convention=FLOP_CONVENTION,
                query_by_model={TINY: {"decode": usage, "prefill": usage}},
                index_by_model={},
            ),
            truncated=False,
            flags=[],
            wall_s=round(rng.random(), 4),
            error=None,
            trace={"chunks": 40, "kept": list(range(7)), "note": "x" * 1500},
        )


def sample_rows(dataset: str) -> Iterator[dict[str, Any]]:
    """Rows of the sample sets of one seed after the other, each with an id of its own."""
    for seed in itertools.count(1):
        for row in sample_set(dataset, seed):
            yield {**row, "id": f"{row['id']}-{seed}"}


def _store(folder: Path, cells: int, large: int) -> list[Measurement]:
    results, data = folder / "results", folder / "hotpotqa.jsonl"
    log.info("writing %s cells", f"{cells:,}")
    sweep = write_store(results, data, cells)
    pair = [_large_cell(folder / name, large, seed) for seed, name in enumerate(("a", "b"))]
    size = sum(path.stat().st_size for path in (results / "cells").glob("*/*"))
    details = {"cells": cells, "records": cells * QUESTIONS, "bytes": size}
    where = ["--results", str(results)]
    table = ["--dataset", "hotpotqa", "--data", str(data), "--render-only"]
    runs = {
        "sweep again, all finished": ["sweep", *where, "--no-track", *sweep],
        "render table 1": ["table", "table1", *table, *where],
        "report page of all cells": ["report", "--documents", str(data), *where],
        f"compare two cells of {large:,} questions": ["compare", *map(str, pair)],
    }
    measurements = []
    for name, arguments in runs.items():
        spent = command(arguments)
        log.info("%s: %.1f s, processor %.1f s", name, spent.wall_s, spent.cpu_s)
        measurements += [
            Measurement(name, spent.wall_s, "s", details={**details, "cpu_s": spent.cpu_s}),
            Measurement(f"{name}: processor", spent.cpu_s, "s"),
            Measurement(f"{name}: memory", spent.peak_bytes / 1e6, "MB"),
        ]
    return [*measurements, *_reopened(pair[0], large)]


def _large_cell(folder: Path, questions: int, seed: int) -> Path:
    """A finished cell of many questions, ten on each document."""
    document = [DocumentSet((Document("", f"document {at}"),)) for at in range(questions // 10)]
    examples = [
        Example(f"q{at}", "toy", "qa", f"question {at}?", ("answer",), document[at // 10])
        for at in range(questions)
    ]
    records = list(synthetic_records(examples, seed))
    folder.mkdir(parents=True)
    (folder / RECORDS_FILE).write_text("".join(record.to_line() for record in records))
    write_json(folder / SUMMARY_FILE, {})
    return folder


def _reopened(folder: Path, questions: int) -> list[Measurement]:
    """Continuing a large cell: its records read, checked and held."""
    started, before = time.perf_counter(), time.process_time()
    with peak_memory() as peak, RecordStore(folder) as store:
        held = len(store.done)
    assert held == questions
    return [
        Measurement(
            f"reopen a cell of {questions:,} records",
            time.perf_counter() - started,
            "s",
            details={"cpu_s": time.process_time() - before},
        ),
        Measurement(f"reopen a cell of {questions:,} records: memory", peak.growth / 1e6, "MB"),
    ]
