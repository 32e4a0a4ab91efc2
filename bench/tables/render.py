"""A table of cells as text, with the published values: a pure function of the cells."""

from __future__ import annotations

from collections.abc import Sequence

from bench.metrics import METRIC_LABELS, label_of
from bench.metrics.statistics import Interval
from bench.tables.caption import (
    TOP,
    about_order,
    about_ranks,
    about_shares,
    about_top,
    brief,
    caption,
    compared,
    footnotes,
    known_metrics,
)
from bench.tables.cells import TableCell, TableData
from bench.tables.cost_parts import AllCosts
from bench.tables.formats import DASH, Section, TextTable, csv_text, percent, signed, three_digits
from bench.tables.order import order_agreements
from bench.tables.published import PublishedValues, as_printed
from bench.tables.ties import Ties


def render(
    table: TableData, published: PublishedValues, costs: AllCosts | None = None, ties: Ties | None = None
) -> TextTable:
    """The table in all formats, with the published values.

    costs: of its cells, for their shares; ties: its top groups and ranks, for marks and notes.
    """
    ties = ties or {}
    top = about_top(table, ties)
    return TextTable(
        id=table.definition.id,
        title=table.title,
        columns=tuple(columns(table, published)),
        sections=tuple(
            Section(
                _data_label(table, dataset),
                tuple(tuple(_line(table, published, cell, ties)) for cell in table.of(dataset)),
            )
            for dataset in table.definition.datasets
        ),
        caption=(*caption(table, published), *top),
        notes=(
            *about_order(order_agreements(table, published)),
            *about_ranks(table, ties),
            *about_shares(table, costs or {}),
            *footnotes(table),
        ),
        spans=_spans(table, published),
        brief=(*brief(table, published), *top),
        csv=_csv(table, published),
    )


def _score(table: TableData, cell: TableCell, metric: str, mark: str) -> str:
    value = _value(table, cell, metric)
    return DASH if value is None else percent(value, mark)


def _value(table: TableData, cell: TableCell, metric: str) -> Interval | None:
    """A score or measure in percent, a cost in TFLOPs, or the ratio of costs; None where there is none."""
    if metric == "ratio":
        ratio = _ratio(table, cell)
        return None if ratio is None else Interval(mean=ratio)
    if metric == "tflops":
        return None if cell.summary is None else cell.summary.query_tflops
    value = cell.interval(metric)
    return None if value is None else value.scaled(100.0)


def _ratio(table: TableData, cell: TableCell) -> float | None:
    """TFLOPs relative to the reference row on the same questions; None if it was asked others."""
    reference = table.cells.get((table.definition.ratio_to or "", cell.dataset))
    own, base = cell.finished, reference.finished if reference is not None else None
    if own is None or base is None or own.description.examples != base.description.examples:
        return None
    return own.summary.tflops / base.summary.tflops if base.summary.tflops else None


def columns(table: TableData, published: PublishedValues) -> list[str]:
    """The headings: the method, its scores and cost, then the published values."""
    labels = [label_of(metric) for metric in table.definition.metrics]
    reference = table.definition.reference
    names = {**METRIC_LABELS, "ratio": f"× {reference.label}" if reference else "ratio"}
    printed = [names.get(metric, metric) for metric in known_metrics(table, published)]
    return [
        *("Method", *labels, "TFLOPs", *([names["ratio"]] if reference else []), "n"),
        *(f"{label} publ." for label in printed),
    ]


def _line(table: TableData, published: PublishedValues, cell: TableCell, ties: Ties) -> list[str]:
    """One row on one data set, as text, in the order of :func:`columns`."""
    summary, ratio = cell.summary, _ratio(table, cell)
    standing = ties.get((cell.row.id, cell.dataset))
    marks = {table.definition.metrics[0]: TOP} if standing is not None and standing.top else {}
    return [
        cell.row.label,
        *(_score(table, cell, metric, marks.get(metric, "")) for metric in table.definition.metrics),
        DASH if summary is None else three_digits(summary.tflops),
        *([DASH if ratio is None else f"{ratio:.2f}"] if table.definition.reference else []),
        _questions(cell),
        *(_published(table, cell, metric, published) for metric in known_metrics(table, published)),
    ]


def _questions(cell: TableCell) -> str:
    """How many questions the cell's numbers are of, and of how many, while some have not been asked."""
    if cell.finished is None:
        return DASH
    n = str(cell.finished.summary.n)
    return n if cell.finished.is_whole else f"{n} of {cell.finished.description.n_examples}"


def _published(table: TableData, cell: TableCell, metric: str, published: PublishedValues) -> str:
    """The published value and, in brackets, our difference from it where the two can be compared."""
    place, ours = (cell.row.id, cell.dataset, metric), _value(table, cell, metric)
    text = as_printed(published, place)
    if place not in published or not cell.comparable or ours is None:
        return text
    return f"{text} ({_difference(ours.mean, published[place].value, metric)})"


def _difference(ours: float, printed: float, metric: str) -> str:
    """Ours minus the published value; for costs, which span orders of magnitude, in percent of it."""
    if metric == "tflops" and printed:
        share = 100 * (ours / printed - 1)
        return f"{signed(share, 0 if abs(share) >= 10 else 1)} %"
    return signed(ours - printed, 2 if metric == "ratio" else 1)


def _spans(table: TableData, published: PublishedValues) -> tuple[tuple[str, int], ...]:
    """Headings over our columns and the published ones."""
    printed = len(known_metrics(table, published))
    measured = len(columns(table, published)) - 1 - printed
    against = " (ours against it)" if compared(table, published) else ""
    return (("measured", measured), (f"published{against}", printed)) if printed else ()


def _data_label(table: TableData, dataset: str) -> str:
    labels = {cell.description.data for cell in table.of(dataset) if cell.description is not None}
    return ", ".join(sorted(labels)) or dataset


def _csv(table: TableData, published: PublishedValues) -> str:
    """Long format: one line per row, data set and metric; scores 0..100, cost in TFLOPs."""
    lines: list[Sequence[object]] = [
        [
            *("table", "row", "label", "dataset", "data", "model", "metric", "value", "low", "high"),
            *("published", "difference", "n", "n_failed", "n_truncated", "cell_id", "missing"),
        ]
    ]
    metrics = (*table.definition.metrics, "tflops", *(["ratio"] if table.definition.reference else []))
    for dataset in table.definition.datasets:
        for cell in table.of(dataset):
            about, summary = cell.description, cell.summary
            data = ("", "") if about is None else (about.data, about.model)
            counts = ("",) * 3 if summary is None else (summary.n, summary.n_failed, summary.n_truncated)
            for metric in metrics:
                value, printed = _value(table, cell, metric), published.get((cell.row.id, dataset, metric))
                ends = (None,) * 3 if value is None else (value.mean, value.low, value.high)
                difference = None
                if value is not None and printed is not None and cell.comparable:
                    difference = value.mean - printed.value
                lines.append(
                    [
                        *(table.definition.id, cell.row.id, cell.row.label, dataset, *data, metric),
                        *map(_number, ends),
                        *("" if printed is None else printed.value, _number(difference), *counts),
                        *("" if about is None else about.cell_id, cell.missing),
                    ]
                )
    return csv_text(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
