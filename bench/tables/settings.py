"""The settings of a method's training per data set, next to its paper's (Graph of Records, Table 6)."""

from __future__ import annotations

from bench.method.registry import load_method
from bench.models.spec import resolve
from bench.schema import JsonValue
from bench.tables.caption import about_settings
from bench.tables.definition import Row, TableDefinition
from bench.tables.formats import DASH, TextTable, plain_table
from bench.tables.published import as_printed, published


def settings_table(definition: TableDefinition, model: str) -> TextTable:
    """One line per option: our default on each data set and the published value.

    A row's id is the option's name; model: the reader. Nothing is run.
    """
    printed = published(definition.id)
    rows = []
    for row in definition.rows:
        values = []
        for dataset in definition.datasets:
            default = _default(row, dataset, model)
            values += [
                DASH if default is None else f"{default:g}",
                as_printed(printed, (row.id, dataset, "setting")),
            ]
        rows.append((row.label, *values))
    columns = ("Setting", *(text for name in definition.datasets for text in (name, f"{name} publ.")))
    about = about_settings(definition.title, definition.source, definition.notes)
    return plain_table(definition.id, definition.title, columns, tuple(rows), tuple(about))


def _default(row: Row, dataset: str, model: str) -> JsonValue:
    """The option's default value when the row's method is trained on that data set."""
    method = load_method(row.method)
    training = method(method.Config(**row.set), resolve(model).geometry).training(dataset)
    return None if training is None else training.options.get(row.id)
