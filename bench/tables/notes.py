"""The content of a table's caption and footnotes, as values; :mod:`bench.tables.caption` writes it out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from bench.flops.formulas import Convention
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.models.presets import PRESETS
from bench.results.models import CellDescription, MeasureInterval
from bench.run.equal_cost import PASSAGES, waiting_option
from bench.tables.cells import TableCell, TableData
from bench.tables.published import PublishedValues


@dataclass(frozen=True)
class ReaderNotes:
    """The models behind a table's cells."""

    labels: tuple[str, ...]
    """The readers with their dtype."""
    small: bool
    """Whether one of them is a small stand-in trained by this project."""
    roles: tuple[tuple[str, str], ...]
    """(role, model) as used in the names of rows (PECAN, Table 2)."""
    cautions: tuple[str, ...]
    """Caveats of the presets about the scores of their models."""
    others: tuple[str, ...]
    """Models besides the readers."""
    small_others: tuple[str, ...]
    """Models besides the readers that are small stand-ins."""
    unfit: tuple[str, ...] = ()
    """Small models that read documents which their generator did not write."""


@dataclass(frozen=True)
class GeometryNotes:
    """Lengths at which cells were run, in tokens of the reader."""

    chunk_tokens: int
    window: int
    input_limit: int


@dataclass(frozen=True)
class DataNotes:
    """Data, prompts and options of the cells."""

    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    commits: tuple[str, ...]
    prompts: tuple[str, ...]
    """The options ``prompt`` of the cells."""
    own_prompts: tuple[str, ...]
    """Rows whose method has its own prompt."""
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(``option=value``, rows that it applies to), for the options that methods report."""


@dataclass(frozen=True)
class CostNotes:
    """How the numbers are counted, and which the papers print."""

    conventions: tuple[Convention, ...]
    metrics: tuple[str, ...]
    """Metrics and measures of the table's columns."""
    published: tuple[str, ...] = ()
    """Metrics, ``tflops`` and ``ratio`` of which the papers print a value in some cell."""
    compared: bool = True
    """Whether differences from them are shown: not where reader or data are stand-ins."""
    published_elsewhere: str | None = None
    """The table, if the papers' values are for other data sets than those shown on the sample data, else
    empty; None: the table shows no published values."""


@dataclass(frozen=True)
class MissingRows:
    """Rows without a finished cell, all for the same reason."""

    reason: str
    rows: tuple[str, ...]
    datasets: tuple[str, ...]
    everywhere: bool
    """Whether ``datasets`` are all data sets of the table."""


@dataclass(frozen=True)
class Event:
    """What happened to some questions of a cell."""

    row: str
    """The row's id."""
    label: str
    """The row's label."""
    dataset: str
    kind: Literal["failed", "truncated", "flag", "undefined", "matched", "as_many"]
    """undefined: a measure of the contexts is not defined for every question; matched: k was chosen to match
    another method's cost; as_many: it reads the average number of nodes of another method."""
    count: int
    """Number of questions; for ``undefined`` those that have the measure; for ``matched`` k, for ``as_many``
    the number of nodes."""
    questions: int
    """All questions of the cell."""
    name: str = ""
    """The flag, the measure, or the other method."""
    errors: tuple[tuple[str, int], ...] = ()
    """(Kind of error, questions), for ``failed``."""


@dataclass(frozen=True)
class TableNotes:
    """The content of a table's caption and footnotes."""

    title: str
    source: str
    """Paper and table whose layout it follows."""
    reader: ReaderNotes | None
    """None: no cell has been run."""
    data: DataNotes
    geometry: tuple[GeometryNotes, ...]
    costs: CostNotes
    particular: tuple[str, ...]
    """Sentences of the table's definition."""
    missing: tuple[MissingRows, ...]
    events: tuple[Event, ...]
    """Row by row, in the order of the rows."""
    absent: tuple[Literal["failed", "truncated"], ...]
    """Kinds of events that occurred in no cell; empty if no cell has been run."""
    without_interval: tuple[tuple[str, tuple[str, ...]], ...]
    """(Reason, data sets) of scores without an interval."""

    @property
    def flagged(self) -> bool:
        """Whether a method's own flag was counted."""
        return any(event.kind == "flag" for event in self.events)


def printed(table: TableData) -> list[str]:
    """Columns that the papers can have values for: the metrics and the cost, not measures of contexts."""
    return [m for m in (*table.definition.metrics, "tflops", "ratio") if m not in RETRIEVAL_MEASURES]


def known_metrics(table: TableData, published: PublishedValues) -> list[str]:
    """The metrics with a published value in some cell."""
    return [m for m in printed(table) if any((*cell, m) in published for cell in table.cells)]


def compared(table: TableData, published: PublishedValues) -> bool:
    """Whether some cell is shown with its difference from a published value."""
    known = printed(table)
    return any(
        cell.comparable and any((*place, metric) in published for metric in known)
        for place, cell in table.cells.items()
    )


def notes_of(table: TableData, published: PublishedValues | None = None) -> TableNotes:
    """The notes of a table; published: the papers' values, if the table shows them."""
    definition = table.definition
    described = [cell.description for cell in table.cells.values() if cell.description is not None]
    known = [] if published is None else known_metrics(table, published)
    conventions = sorted({d.flop_convention for d in described})
    return TableNotes(
        title=definition.title,
        source=definition.source,
        reader=_reader(table, described) if described else None,
        data=_data(table),
        geometry=_each(
            GeometryNotes(d.geometry["chunk_tokens"], d.geometry["window"], d.geometry["input_limit"])
            for d in described
        ),
        costs=CostNotes(
            cast("tuple[Convention, ...]", tuple(conventions)),
            definition.metrics,
            tuple(known),
            compared=published is not None and compared(table, published),
            published_elsewhere=None if published is None else definition.id if definition.sample else "",
        ),
        particular=definition.notes,
        missing=tuple(_missing(table)),
        events=tuple(
            event
            for row in definition.rows
            for dataset in definition.datasets
            for event in _events(table, table.cells[row.id, dataset])
        ),
        absent=_absent(table),
        without_interval=_without_interval(table),
    )


def _reader(table: TableData, described: Sequence[CellDescription]) -> ReaderNotes:
    requested = {d.model for d in described}
    named = [
        (role, model)
        for reader, roles in table.definition.models.items()
        if reader in requested
        for role, model in {"large": reader, **roles}.items()
    ]
    readers = {str(d.models["reader"]["name"]) for d in described}
    models = {str(model["name"]) for d in described for model in d.models.values()}
    others = sorted(models - readers)
    small = tuple(name for name in others if name in PRESETS and PRESETS[name].small)
    return ReaderNotes(
        labels=_each(f"{d.model_label} ({d.dtype})" for d in described),
        small=any(d.model_small for d in described),
        roles=tuple(named),
        cautions=tuple(
            PRESETS[name].caution for name in sorted(models & PRESETS.keys()) if PRESETS[name].caution
        ),
        others=tuple(name for name in others if name not in small),
        small_others=small,
        unfit=_each(name for d in described for name in d.unfit_models),
    )


def _data(table: TableData) -> DataNotes:
    prompts: list[str] = []
    own: list[str] = []
    described = []
    options: dict[str, dict[str, None]] = {}
    for cell in table.cells.values():
        if cell.description is not None:
            described.append(cell.description)
            for option, value in cell.description.choices.items():
                options.setdefault(f"{option}={value}", {})[cell.row.label] = None
            prompt = cell.description.config.get("prompt")
            (own if prompt is None else prompts).append(cell.row.label if prompt is None else str(prompt))
    return DataNotes(
        labels=_each(d.data for d in described),
        seeds=_each(d.seed for d in described),
        commits=_each(d.git_commit for d in described if d.git_commit),
        prompts=_each(prompts),
        own_prompts=_each(own),
        options=tuple((choice, tuple(rows)) for choice, rows in options.items()),
    )


def _missing(table: TableData) -> Iterator[MissingRows]:
    """Rows without a cell, grouped by reason and data sets."""
    every = table.definition.datasets
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in table.definition.rows:
        reasons: dict[str, list[str]] = {}
        for dataset in every:
            cell = table.cells[row.id, dataset]
            if cell.finished is None:
                reasons.setdefault(cell.missing, []).append(dataset)
        for reason, lacking in reasons.items():
            grouped.setdefault((reason, tuple(lacking)), []).append(row.label)
    for (reason, where), labels in grouped.items():
        yield MissingRows(reason, tuple(labels), where, where == every)


def _events(table: TableData, cell: TableCell) -> Iterator[Event]:
    """The events of a cell."""
    if cell.finished is None:
        return
    summary = cell.finished.summary
    row, label, dataset, n = cell.row.id, cell.row.label, cell.dataset, summary.n
    if summary.n_failed:
        errors = tuple(summary.errors.items())
        yield Event(row, label, dataset, "failed", summary.n_failed, n, errors=errors)
    if summary.n_truncated:
        yield Event(row, label, dataset, "truncated", summary.n_truncated, n)
    for flag, count in summary.flags.items():
        yield Event(row, label, dataset, "flag", count, n, flag)
    for metric in table.definition.metrics:
        value = cell.interval(metric)
        if isinstance(value, MeasureInterval) and value.n < n:
            yield Event(row, label, dataset, "undefined", value.n, n, metric)
    option = waiting_option(cell.row.set)
    if option is not None:
        count = int(cell.finished.description.config[option])
        kind: Literal["matched", "as_many"] = "matched" if option == PASSAGES else "as_many"
        yield Event(row, label, dataset, kind, count, n, str(cell.row.set[option]).removeprefix("auto:"))


def _absent(table: TableData) -> tuple[Literal["failed", "truncated"], ...]:
    summaries = [cell.finished.summary for cell in table.cells.values() if cell.finished is not None]
    if not summaries:
        return ()
    counts: tuple[tuple[Literal["failed", "truncated"], int], ...] = (
        ("failed", sum(summary.n_failed for summary in summaries)),
        ("truncated", sum(summary.n_truncated for summary in summaries)),
    )
    return tuple(kind for kind, count in counts if not count)


def _without_interval(table: TableData) -> tuple[tuple[str, tuple[str, ...]], ...]:
    bare: dict[str, list[str]] = {}
    for cell in table.cells.values():
        for value in (cell.interval(metric) for metric in table.definition.metrics):
            if value is not None and value.low is None:
                bare.setdefault(value.reason, []).append(cell.dataset)
    return tuple((reason, _each(datasets)) for reason, datasets in bare.items())


Value = TypeVar("Value", bound=Hashable)


def _each(values: Iterable[Value]) -> tuple[Value, ...]:
    """The distinct values in order."""
    return tuple(dict.fromkeys(values))
