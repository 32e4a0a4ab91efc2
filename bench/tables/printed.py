"""The values that a paper prints in a table, alone: nothing is run, and no data or model is needed."""

from __future__ import annotations

from bench.errors import ConfigError
from bench.metrics import label_of
from bench.tables.caption import about_printed
from bench.tables.definition import TableDefinition, load_table
from bench.tables.formats import DASH, Section, TextTable, csv_text
from bench.tables.published import Cell, places, published

NO_SCORES = {"tokens", "samples", "setting", "seconds"}
"""Metrics that are neither scores nor costs; of these others one decimal is printed also where it is 0."""


def printed_table(definition: TableDefinition) -> TextTable:
    """A section per data set with a column per metric, or, for a single metric, a column per data set.

    Raises ConfigError for a table that no paper has, and for data sets of which it prints nothing.
    """
    if not definition.printed:
        raise ConfigError(f"{definition.id} is not a paper's table: no values of it are published.")
    every, shown = published(definition.published_as), definition.datasets
    values = {cell: value for cell, value in every.items() if cell[1] in shown}
    if not values:
        has = ", ".join(dict.fromkeys(dataset for _, dataset, _ in every))
        raise ConfigError(f"{definition.id}: the paper prints nothing for {', '.join(shown)}, but for {has}.")
    of_paper = load_table(definition.published_as)
    labels = {row: value.method for (row, _, _), value in values.items()}
    rows = [row for row in dict.fromkeys(row for row, _, _ in places(of_paper)) if row in labels]
    metrics = list(dict.fromkeys(metric for _, _, metric in values))

    def text(cell: Cell) -> str:
        if cell not in values:
            return DASH
        value = values[cell].value
        one_decimal = cell[2] not in NO_SCORES and round(value, 1) == value
        return f"{value:,.1f}" if one_decimal else f"{value:,.12g}"

    if len(metrics) == 1:
        columns: tuple[str, ...] = definition.datasets
        cells = [(row, [(row, name, metrics[0]) for name in columns]) for row in rows]
        sections = [Section("", tuple((labels[row], *map(text, its)) for row, its in cells))]
    else:
        columns = tuple(label_of(metric).replace("_", " ") for metric in metrics)
        sections = []
        for name in definition.datasets:
            cells = [(row, [(row, name, metric) for metric in metrics]) for row in rows]
            lines = tuple((labels[row], *map(text, its)) for row, its in cells if values.keys() & its)
            sections.append(Section(name, lines))
    about = about_printed(
        of_paper.title,
        sorted({value.source for value in values.values()}),
        scores=not NO_SCORES.issuperset(metrics),
    )
    long = [(row, labels[row], *place, value.value, value.source) for (row, *place), value in values.items()]
    return TextTable(
        f"{definition.id}_published",
        f"{of_paper.title}: as published",
        ("Row", *columns),
        tuple(sections),
        tuple(about),
        csv=csv_text((("row", "method", "dataset", "metric", "value", "source"), *long)),
    )
