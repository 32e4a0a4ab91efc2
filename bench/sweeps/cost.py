"""The cost of a sweep before it starts: counted from the records, estimated from a few questions.

The questions of the probe are answered for real and their records kept, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.results.index_store import IndexStore, index_key
from bench.results.json_lines import valid_rows
from bench.results.records import RECORDS_FILE, Record
from bench.run.cell import Cell
from bench.run.cell_folder import finished_summary, other_cell_in
from bench.run.runner import ProbeResult
from bench.sweeps.grid import GridCell


@dataclass(frozen=True)
class GroupCost:
    """Cells that share one run per question: how much is done, and the cost of the rest."""

    cells: tuple[GridCell, ...]
    folders: tuple[Path, ...]
    finished: int
    """Cells that are finished."""
    to_ask: int
    """Questions without a record in at least one cell; each is asked once for all cells."""
    to_index: int
    """Document sets without an index; an index that several groups share counts for the first."""
    query_flops: float | None = None
    """FLOPs of one question, in the cell that reads most; None: unknown."""
    index_flops: float | None = None
    """FLOPs of one document set; None: unknown."""
    query_s: float | None = None
    """Seconds for one question; None: unknown."""
    index_s: float | None = None
    """Seconds for one document set; None: unknown."""

    @property
    def first(self) -> Cell:
        """One of the cells; they agree in all but replayed options."""
        return self.cells[0].cell

    @property
    def learns(self) -> bool:
        """Whether the method trains before its first question; such groups are never probed."""
        return self.first.training is not None

    @property
    def flops(self) -> float | None:
        """Estimated FLOPs of the rest; None: unknown."""
        parts = ((self.to_ask, self.query_flops), (self.to_index, self.index_flops))
        return None if self.learns and self.to_ask else _sum(parts)

    @property
    def seconds(self) -> float | None:
        """Estimated seconds of the rest; None: unknown."""
        parts = ((self.to_ask, self.query_s), (self.to_index, self.index_s))
        return None if self.learns and self.to_ask else _sum(parts)


def survey(
    groups: Sequence[Sequence[GridCell]],
    place: Callable[[GridCell], Path],
    indexes: IndexStore,
    retry_failed: bool = False,
) -> list[GroupCost]:
    """The status of each group; nothing is run.

    place: a cell's folder. retry_failed: failed questions count as not asked.
    """
    counted: set[tuple[str, str]] = set()
    return [_group_status(tuple(group), place, indexes, retry_failed, counted) for group in groups]


@dataclass(frozen=True)
class Timing:
    """What the probe of a group measured."""

    query_s: float
    """Seconds for one question."""
    index_s: float | None
    """Seconds for one document set; None: all indexes were cached."""


def measure(
    cost: GroupCost, ask: Callable[[GroupCost, int], ProbeResult], questions: int, warm: bool
) -> Timing | None:
    """The time of a few of the group's missing questions; None if there is nothing to time.

    ask: asks that many questions and keeps their records. warm: the group's models are loaded; otherwise
    one more question is asked first, which is not timed. A method that trains before its first question
    is skipped.
    """
    if not cost.to_ask or cost.learns or questions < 1:
        return None
    first = None if warm or cost.to_ask == 1 else ask(cost, 1)
    timed = ask(cost, questions)
    if not timed.asked:  # no question was left after the first, or the missing ones failed before
        timed = first or timed
    if not timed.asked:
        return None
    indexing = next((probe for probe in (timed, first) if probe is not None and probe.indexed), None)
    return Timing(timed.answer_s / timed.asked, indexing.index_s / indexing.indexed if indexing else None)


def with_timing(cost: GroupCost, timing: Timing | None) -> GroupCost:
    """The group with estimated times; if no index was timed, its time is estimated from its FLOPs."""
    if timing is None:
        return cost
    index_s = timing.index_s
    if index_s is None and cost.query_flops and cost.index_flops is not None:
        index_s = timing.query_s * cost.index_flops / cost.query_flops
    return replace(cost, query_s=timing.query_s, index_s=index_s)


TEXT_COLUMNS = 3
"""The first columns of :func:`cost_rows`, which are no numbers."""


def cost_rows(costs: Sequence[GroupCost]) -> list[tuple[str, ...]]:
    """The groups as rows of text below their headings, with a line of totals."""
    head = (
        *("method", "data", "model", "cells", "finished", "questions"),
        *("to ask", "to index", "TFLOPs", "time"),
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
    return [head, *rows, *([total] if len(rows) > 1 else [])]


def cost_table(costs: Sequence[GroupCost]) -> str:
    """The rows of :func:`cost_rows` as aligned text."""
    lines = cost_rows(costs)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            text.ljust(width) if at < TEXT_COLUMNS else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown)


def gpu_hours(costs: Sequence[GroupCost], rate: float | None = None) -> str:
    """One line: hours of one device for the rest, at a named rate or at that of the probe.

    rate: TFLOP/s that one GPU sustains; None: the rate of the timed groups here; empty if there are none.
    """
    costed = [cost for cost in costs if cost.flops]
    timed = [cost for cost in costed if cost.seconds]
    seconds = sum(cost.seconds or 0.0 for cost in timed)
    if rate is not None:
        unit, source = "GPU-hours", "--rate"
    elif seconds:
        rate = sum(cost.flops or 0.0 for cost in timed) / seconds / 1e12
        unit, source = "Hours of one device like this", "measured here"
    else:
        return ""
    hours = sum(cost.flops or 0.0 for cost in costed) / (rate * 1e12) / 3600
    omitted = "" if all(cost.flops is not None for cost in costs) else ", without the lines marked ?"
    return f"{unit}: {hours:.2g} at {rate:.3g} TFLOP/s ({source}){omitted}."


def group_title(cost: GroupCost) -> str:
    """The method with the options that all cells of the group share."""
    member = cost.cells[0]
    replayed = member.cell.method.replayed
    varied = {key: value for key, value in member.point.items() if key not in replayed}
    options = {**member.fixed, **varied}
    return " ".join([member.cell.request.method, *(f"{key}={value}" for key, value in options.items())])


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
    """The sum of count x each; None if a counted part is unknown."""
    total = 0.0
    for count, each in parts:
        if count and each is None:
            return None
        total += count * (each or 0.0)
    return total


@dataclass(frozen=True)
class _Line:
    """The fields of a record that an estimate needs."""

    example_id: str
    documents: str
    query_flops: int
    index_flops: int
    counts: bool
    """Whether its question is of this cell and need not be asked again."""


def _group_status(
    cells: tuple[GridCell, ...],
    place: Callable[[GridCell], Path],
    indexes: IndexStore,
    retry_failed: bool,
    counted: set[tuple[str, str]],
) -> GroupCost:
    folders = tuple(place(member) for member in cells)
    first = cells[0].cell
    examples = first.data.examples
    finished = 0
    means: list[float] = []
    by_documents: dict[str, float] = {}
    missing: set[str] = set()
    for member, folder in zip(cells, folders, strict=True):
        summary = finished_summary(member.cell, folder)
        if summary is not None and not (retry_failed and summary.n_failed):
            finished += 1
            means.append(summary.query_flops.mean)
            by_documents.setdefault(f"mean of {folder}", summary.index_flops)
            continue
        lines = _lines(member.cell, folder, retry_failed)
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
    """The records of the cell's questions, from a file that may still be growing; takes no lock.

    Empty for a folder of another cell, which a run would refuse.
    """
    if other_cell_in(cell, folder) is not None:
        return []
    expected = {example.id for example in cell.data.examples}
    lines: dict[str, _Line] = {}
    try:
        for record in valid_rows(folder / RECORDS_FILE, Record):
            again = retry_failed and record.error is not None
            lines[record.example_id] = _Line(
                record.example_id,
                " ".join(record.document_ids),
                record.flops.query,
                record.flops.index,
                counts=record.example_id in expected and not again,
            )
    except OSError:
        return []
    return [line for line in lines.values() if line.counts]
