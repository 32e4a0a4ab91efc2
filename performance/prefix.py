"""Contexts that begin alike: what is computed of what is credited, and the time that saves.

*Full context*: the questions of the shipped NarrativeQA-shaped set, five about each story, as a run asks
them, with shared prefixes and without. *Sweep over k*: BM25's passages in rank order, so that the context of
k passages begins that of k + 1; k = 1 to 14 against k = 14 alone, in tokens computed. Whether the texts are
the same with and without is among the details.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.models.model_set import LoadedModels
from bench.results.index_store import IndexStore
from bench.results.records import Record
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.runner import run_group
from performance.drawn import TINY
from performance.measuring import Candidate, by_turns
from performance.report import Measurement, ratio

MOST_K = 14


def measure(quick: bool) -> list[Measurement]:
    """Both workloads, on the shipped model."""
    limit, rounds = (6, 1) if quick else (None, 1)
    return [*_full_context(limit, rounds), *_sweep_over_k(4 if quick else 16)]


def _full_context(limit: int | None, rounds: int) -> list[Measurement]:
    first, cell = (
        plan_cell(CellRequest("full_context", "narrativeqa", TINY, limit=most, dtype="float32"))
        for most in (2, limit)
    )
    models = LoadedModels(cell.roles)
    with tempfile.TemporaryDirectory() as temporary:
        _answered([first], models, temporary, share=False)  # what a process does once
        timed = by_turns(
            {
                "shared": Candidate(lambda: _answered([cell], models, temporary, share=True)),
                "alone": Candidate(lambda: _answered([cell], models, temporary, share=False)),
            },
            rounds,
            warm_up=False,
        )
    shared, alone = timed["shared"].result, timed["alone"].result
    details = {"questions": len(shared), "same_texts": _texts(shared) == _texts(alone)}
    computed = _computed(shared) / sum(one.tokens.forwarded for one in shared)
    return [
        Measurement("full context, tokens computed over credited", computed, "x", "<= 0.22", details=details),
        ratio("full context, time with shared prefixes over without", timed["shared"], timed["alone"],
              "<= 0.35", **details),
    ]  # fmt: skip


def _sweep_over_k(limit: int) -> list[Measurement]:
    cells = [
        plan_cell(CellRequest("bm25", "narrativeqa", TINY, options={"k": k, "order": "rank"}, limit=limit))
        for k in range(1, MOST_K + 1)
    ]
    models = LoadedModels(cells[0].roles)
    with tempfile.TemporaryDirectory() as temporary:
        together = _answered(cells, models, temporary, share=True)
        most = _answered(cells[-1:], models, temporary, share=False)
    details: dict[str, Any] = {"questions": limit, "cells": len(cells)}
    value = _computed(together) / _computed(most)
    return [Measurement(f"k = 1:{MOST_K} over k = {MOST_K} alone, tokens computed", value, "x", "<= 1.6",
                        details=details)]  # fmt: skip


def _answered(cells: Sequence[Cell], models: LoadedModels, folder: str, *, share: bool) -> list[Record]:
    """The records of a run of the cells; a run of several is a sweep."""
    lm: Any = models.lm()
    engine = lm.engine
    engine.scheduler.share_prefixes = share
    engine.scheduler.forget()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        placed = [replace(cell, out=Path(place) / str(at)) for at, cell in enumerate(cells)]
        finished = run_group(placed, Path(place), IndexStore(Path(folder) / "indexes"), lambda: models)
        return [record for cell in finished for record in cell.records]


def _computed(records: Sequence[Record]) -> int:
    return sum(record.tokens.computed or 0 for record in records)


def _texts(records: Sequence[Record]) -> list[str | None]:
    return [record.prediction for record in records]
