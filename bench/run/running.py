"""A method on a data set, from Python: what ``bench run`` does, without its printing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bench.results.finished import FinishedCell
from bench.run.cell import CellRequest
from bench.run.equal_cost import planned
from bench.run.session import Session
from bench.run.threads import Threads
from bench.schema import JsonValue

T = TypeVar("T")


def run(
    method: str,
    data: str | Path = "sample",
    *,
    dataset: str = "",
    model: str = "",
    options: Mapping[str, JsonValue] | None = None,
    limit: int | None = None,
    seed: int = 0,
    dtype: str | None = None,
    results: str | Path = "results",
) -> FinishedCell:
    """The finished cell of a method on a data set; only questions without a record are asked.

    data: ``sample``, ``hub``, or a file or folder. dataset: its name; for a path it may be left out. model:
    the reader; left out, the small shipped one, which refuses text that it cannot read. options: of the
    method, as ``--set`` takes them. results: where records and indexes are kept.
    ``result.summary`` has the scores, ``result.records`` every answer. Raises BenchError.
    """
    setting = CellRequest(model=model or "tiny", data=str(data), limit=limit, seed=seed, dtype=dtype)
    request = replace(setting.of(method, dataset, options), model_named=bool(model))
    session = Session(Path(results), threads=Threads.begin())
    return run_blocking(lambda: session.run(planned(request, session)))


def run_blocking(work: Callable[[], T]) -> T:
    """The result of ``work``, which runs an event loop; in another thread where one runs, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, "bench") as thread:
        return thread.submit(work).result()
