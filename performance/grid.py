"""A sweep of 8 x 5 stop rules, against the most expensive of its cells run alone.

`t_p` from 1 to 8 and `t_c` of 0.3, 0.5, 0.7, 0.9 and 0.98, on questions of the shipped sample sets with the
shipped model, graphs built before. The most expensive cell is the one whose questions cost most FLOPs
together. *Search* is what the method does for it, 32 questions in flight; *run* is the whole command but for
the MLflow mirror: one record per question and cell, scored and written to disk, and a summary per cell. FLOPs
of the sweep are those really spent, not the sum over its cells. Arithmetic is on one thread.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.flops.meter import Meter, metered
from bench.method.contract import Replayed
from bench.results.index_store import IndexStore
from bench.run.cell import CellRequest
from bench.run.runner import Asking, run_group
from bench.schema import Example
from bench.sweeps.grid import GridCell, plan_sweep
from performance.drawn import TINY, in_flight
from performance.measuring import Candidate, by_turns
from performance.report import Measurement, ratio
from performance.workloads import PecanWork, pecan_work

GRID: dict[str, list[Any]] = {"t_p": list(range(1, 9)), "t_c": [0.3, 0.5, 0.7, 0.9, 0.98]}
IN_FLIGHT = 32


def measure(quick: bool) -> list[Measurement]:
    """Each data set by itself: how far its searches go differs."""
    if quick:
        return _one_set("hotpotqa", questions=2, rounds=1)
    return [*_one_set("hotpotqa", questions=16, rounds=3), *_one_set("qasper", questions=12, rounds=3)]


def _one_set(dataset: str, questions: int, rounds: int) -> list[Measurement]:
    request = CellRequest("pecan", dataset, TINY, limit=questions, dtype="float32")
    cells = plan_sweep(request, GRID)
    documents = len({example.documents.id for example in cells[0].cell.data.examples})
    work = pecan_work(((dataset, documents),))
    with tempfile.TemporaryDirectory() as temporary:
        return _measured(cells, work, cells[0].cell.data.examples, rounds, Path(temporary))


def _measured(
    cells: Sequence[GridCell], work: PecanWork, examples: Sequence[Example], rounds: int, folder: Path
) -> list[Measurement]:
    store = IndexStore(folder / "indexes")
    numbers = itertools.count()

    def run(chosen: Sequence[GridCell]) -> None:
        place = folder / str(next(numbers))
        placed = [replace(one.cell, out=place / one.name) for one in chosen]
        run_group(placed, folder, store, lambda: work.models, Asking(IN_FLIGHT))

    run(cells)  # builds the graphs and finds the cells' costs
    graphs = work.build(IN_FLIGHT)
    spent = Meter()

    def search(chosen: Sequence[GridCell]) -> list[list[Replayed]]:
        async def one(example: Example) -> list[Replayed]:
            first = chosen[0].cell
            with metered(Meter()) as meter:
                replayed = await first.method.replay(
                    graphs[example.documents.id],
                    first.question(example),
                    work.models,
                    [one.cell.method.config for one in chosen],
                )
            spent.usage.update(Meter.combined([spent, meter]).usage)
            return replayed

        return asyncio.run(in_flight(one, examples, IN_FLIGHT))

    asked = search(cells)
    whole = spent.flops
    by_cell = [sum(each[at].meter.flops for each in asked) for at in range(len(cells))]
    dearest = max(range(len(cells)), key=by_cell.__getitem__)
    alone = [cells[dearest]]
    stops = sum(len({len(one.prediction.trace["steps"]) for one in each}) for each in asked) / len(examples)
    units = len(examples)
    timed = by_turns(
        {
            "search": Candidate(lambda: search(cells), units),
            "search alone": Candidate(lambda: search(alone), units),
            "run": Candidate(lambda: run(cells), units),
            "run alone": Candidate(lambda: run(alone), units),
        },
        rounds,
    )
    what = f"{alone[0].cell.card.name}, {len(cells)} cells over the dearest ({alone[0].name})"
    details: dict[str, Any] = {"questions": units, "stopping_points_per_question": round(stops, 2)}
    return [
        Measurement(f"{what}, FLOPs", whole / by_cell[dearest], "x", "<= 1.3", details=details),
        ratio(f"{what}, time of the search", timed["search"], timed["search alone"], "<= 1.5", **details),
        ratio(f"{what}, time of the run", timed["run"], timed["run alone"], "<= 1.5", **details),
    ]
