"""What a sweep will cost, before it starts: counted from what is there, estimated from a few questions.

The questions of the probe are asked for real and their records kept: nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.cell import Cell
from bench.cell_folder import finished_summary, other_cell_in
from bench.index_store import IndexStore, index_key
from bench.json_lines import whole_rows
from bench.records import RECORDS_FILE, Record
from bench.runner import Probed
from bench.sweep import GridCell


@dataclass(frozen=True)
class GroupCost:
    """Cells that one run per question serves, what of them is there, and what the rest will take."""

    cells: tuple[GridCell, ...]
    folders: tuple[Path, ...]
    finished: int
    """Cells that need nothing."""
    to_ask: int
    """Questions that some cell misses; each is asked once for all cells."""
    to_index: int
    """Document sets whose index is not there; one that several groups share counts for the first."""
    query_flops: float | None = None
    """Of one question, in the cell that reads most; None: not known."""
    index_flops: float | None = None
    """Of one document set; None: not known."""
    query_s: float | None = None
    """Seconds for one question; None: not known."""
    index_s: float | None = None
    """Seconds for one document set; None: not known."""

    @property
    def first(self) -> Cell:
        """One of the cells; they agree in all but replayed options."""
        return self.cells[0].cell

    @property
    def learns(self) -> bool:
        """Whether the method learns from documents before its first question; never probed, may take long."""
        return self.first.training is not None

    @property
    def flops(self) -> float | None:
        """Estimated FLOPs still to be computed; None: not known."""
        parts = ((self.to_ask, self.query_flops), (self.to_index, self.index_flops))
        return None if self.learns and self.to_ask else _sum(parts)

    @property
    def seconds(self) -> float | None:
        """Estimated seconds still to be spent; None: not known."""
        parts = ((self.to_ask, self.query_s), (self.to_index, self.index_s))
        return None if self.learns and self.to_ask else _sum(parts)


def survey(
    groups: Sequence[Sequence[GridCell]],
    place: Callable[[GridCell], Path],
    indexes: IndexStore,
    retry_failed: bool = False,
) -> list[GroupCost]:
    """What of each group is there; nothing is run.

    place: a cell's folder. retry_failed: failed questions count as not asked.
    """
    counted: set[tuple[str, str]] = set()
    return [_standing(tuple(group), place, indexes, retry_failed, counted) for group in groups]


@dataclass(frozen=True)
class Timing:
    """What the probe of a group measured."""

    query_s: float
    """Seconds for one question."""
    index_s: float | None
    """Seconds for one document set; None: all that were needed had been there."""


def measure(
    cost: GroupCost, ask: Callable[[GroupCost, int], Probed], questions: int, warm: bool
) -> Timing | None:
    """How long a few of the group's missing questions take; None where there is nothing to learn.

    ask: asks that many questions and keeps their records. warm: the group's models are loaded; otherwise
    one more question is asked first, which is not timed. A method that learns before its first question
    is left alone.
    """
    if not cost.to_ask or cost.learns or questions < 1:
        return None
    first = None if warm or cost.to_ask == 1 else ask(cost, 1)
    timed = ask(cost, questions)
    if not timed.asked:  # the first one was the last, or what is missing failed before
        timed = first or timed
    if not timed.asked:
        return None
    built = next((found for found in (timed, first) if found is not None and found.indexed), None)
    return Timing(timed.answer_s / timed.asked, built.index_s / built.indexed if built else None)


def with_timing(cost: GroupCost, timing: Timing | None) -> GroupCost:
    """The group with estimated times; where no index was built, it takes what its FLOPs take elsewhere."""
    if timing is None:
        return cost
    index_s = timing.index_s
    if index_s is None and cost.query_flops and cost.index_flops is not None:
        index_s = timing.query_s * cost.index_flops / cost.query_flops
    return replace(cost, query_s=timing.query_s, index_s=index_s)


def cost_table(costs: Sequence[GroupCost]) -> str:
    """The groups as a table with a line of totals."""
    head = (
        "method",
        "data",
        "model",
        "cells",
        "finished",
        "questions",
        "to ask",
        "to index",
        "TFLOPs",
        "time",
    )
    rows = [
        (
            group_title(cost),
            cost.first.data.label,
            cost.first.reader.label,
            str(len(cost.cells)),
            str(cost.finished),
            str(len(cost.first.data.examples)),
            str(cost.to_ask),
            str(cost.to_index),
            _tflops(cost.flops),
            duration(cost.seconds),
        )
        for cost in costs
    ]
    total = (
        "total",
        "",
        "",
        str(sum(len(cost.cells) for cost in costs)),
        str(sum(cost.finished for cost in costs)),
        "",
        str(sum(cost.to_ask for cost in costs)),
        str(sum(cost.to_index for cost in costs)),
        _tflops(sum(cost.flops or 0.0 for cost in costs)) + ("" if all_known(costs) else " + ?"),
        duration(sum(cost.seconds or 0.0 for cost in costs)) + ("" if all_known(costs) else " + ?"),
    )
    lines = [head, *rows, *([total] if len(rows) > 1 else [])]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    shown = [
        "  ".join(
            text.ljust(width) if at < 3 else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown)


def group_title(cost: GroupCost) -> str:
    """The method, with the options that are fixed for all of the group's cells."""
    found = cost.cells[0]
    replayed = found.cell.method.replayed
    apart = {key: value for key, value in found.point.items() if key not in replayed}
    options = {**found.fixed, **apart}
    return " ".join([found.cell.request.method, *(f"{key}={value}" for key, value in options.items())])


def all_known(costs: Sequence[GroupCost]) -> bool:
    """Whether no estimate is missing."""
    return all(cost.flops is not None and cost.seconds is not None for cost in costs)


def duration(seconds: float | None) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``; ``?`` for None."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _tflops(flops: float | None) -> str:
    return "?" if flops is None else f"{flops / 1e12:.3g}"


def _sum(parts: Sequence[tuple[int, float | None]]) -> float | None:
    """The sum of count x each; what is not counted need not be known."""
    total = 0.0
    for count, each in parts:
        if count and each is None:
            return None
        total += count * (each or 0.0)
    return total


@dataclass(frozen=True)
class _Line:
    """What of a record is needed here."""

    example_id: str
    documents: str
    query_flops: int
    index_flops: int
    counts: bool
    """Whether it is of this cell and need not be asked again."""


def _standing(
    cells: tuple[GridCell, ...],
    place: Callable[[GridCell], Path],
    indexes: IndexStore,
    retry_failed: bool,
    counted: set[tuple[str, str]],
) -> GroupCost:
    folders = tuple(place(found) for found in cells)
    first = cells[0].cell
    examples = first.data.examples
    finished = 0
    means: list[float] = []
    by_documents: dict[str, float] = {}
    missing: set[str] = set()
    for found, folder in zip(cells, folders, strict=True):
        summary = finished_summary(found.cell, folder)
        if summary is not None and not (retry_failed and summary["n_failed"]):
            finished += 1
            means.append(summary["query_flops"]["mean"])
            by_documents.setdefault(f"mean of {folder}", summary["index_flops"])
            continue
        lines = _lines(found.cell, folder, retry_failed)
        missing |= {example.id for example in examples} - {line.example_id for line in lines}
        if lines:
            means.append(fmean(line.query_flops for line in lines))
        by_documents |= {line.documents: line.index_flops for line in lines}
    to_index = 0
    for documents in {e.documents.id for e in examples if e.id in missing}:
        key = index_key({**first.index_key_parts(), "documents": documents})
        if (first.index_name, key) not in counted and not indexes.has(first.index_name, key):
            to_index += 1
        counted.add((first.index_name, key))
    return GroupCost(
        cells,
        folders,
        finished=finished,
        to_ask=len(missing),
        to_index=to_index,
        query_flops=max(means, default=None),
        index_flops=fmean(by_documents.values()) if by_documents else None,
    )


def _lines(cell: Cell, folder: Path, retry_failed: bool) -> list[_Line]:
    """What is recorded of the cell's questions, in a file that may still be growing; nothing is locked.

    A folder of another cell, which a run would refuse, holds nothing of this one.
    """
    if other_cell_in(cell, folder) is not None:
        return []
    asked = {example.id for example in cell.data.examples}
    found: dict[str, _Line] = {}
    try:
        for record in whole_rows(folder / RECORDS_FILE, Record):
            again = retry_failed and record.error is not None
            found[record.example_id] = _Line(
                record.example_id,
                " ".join(record.document_ids),
                record.flops.query,
                record.flops.index,
                counts=record.example_id in asked and not again,
            )
    except OSError:
        return []
    return [line for line in found.values() if line.counts]
