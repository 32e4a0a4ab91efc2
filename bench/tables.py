"""A table is a definition: which cells it shows. Running it runs the cells that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.cards import Card, load_card
from bench.cell import Cell, CellRequest, plan_cell
from bench.cell_folder import finished_summary
from bench.data.loading import NotHadError
from bench.errors import BenchError, ConfigError, DataError, ModelUnavailableError, UnknownNameError
from bench.learning import NoTrainingDataError
from bench.matching import FIRST_K, matched_cell, reference_method
from bench.models.presets import resolve
from bench.models.sources import locate, verify
from bench.options import parse_assignments
from bench.paths import TABLES
from bench.plain_yaml import read_yaml
from bench.records import CELL_FILE
from bench.registry import registered_methods
from bench.retrieval_quality import RETRIEVAL_MEASURES
from bench.schema import JsonValue

LOADED_TABLE_LIMIT = 1 << 20
"""Largest table definition that is read, in bytes."""


class Row(BaseModel):
    """One row: a method with options."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    label: str
    method: str
    set: dict[str, Any] = Field(default_factory=dict)
    """Options; a value ``{card: path}`` is looked up in the data set's card, ``{model: role}`` among the
    table's models, and ``k: auto:METHOD`` is the k at which the row costs what METHOD costs
    (:mod:`bench.matching`)."""
    model: str | None = None
    """Role of the row's reader among the table's models; None: the reader that the table is made with."""

    def options(self, card: Card, models: Mapping[str, str] | None = None) -> dict[str, JsonValue]:
        """The row's options for one data set.

        models: role -> model, for the reader that the table is made with. Raises DataError for a path the
        card does not have, and ModelUnavailableError for a role that no model has.
        """
        return {key: _look_up(value, card, self.id, models or {}) for key, value in self.set.items()}


class TableDefinition(BaseModel):
    """Which cells a table shows, and beside which published values."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    kind: Literal["cells", "lengths", "amortised", "timed", "judged"] = "cells"
    """cells: scores and cost per row; lengths: of the data (no rows); amortised: index and question apart;
    timed: seconds per question (:mod:`bench.query_time`); judged: against one row, by a model
    (:mod:`bench.judged_table`)."""
    title: str
    source: str
    datasets: tuple[str, ...]
    sample: tuple[str, ...] = ()
    """What is shown in the place of ``datasets`` on the sample data, where these have no samples."""
    metrics: tuple[str, ...]
    """Metrics of the data sets' cards, or measures of :mod:`bench.retrieval_quality`."""
    ratio_to: str | None = None
    """Row whose TFLOPs are 1 in the ratio column."""
    judged_against: str | None = None
    """Row that every other one is judged against."""
    notes: tuple[str, ...] = ()
    """Sentences of the caption: what is particular to this table."""
    models: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Reader -> role -> model: which larger and smaller models go with a reader (PECAN, Table 2)."""
    rows: tuple[Row, ...]

    def on(self, data: str, datasets: Sequence[str] = ()) -> TableDefinition:
        """The table on these data: ``sample``'s sets on the sample data, or those that are named.

        Raises UnknownNameError for a data set that the table does not show.
        """
        shown = self.sample if data == "sample" and self.sample else self.datasets
        for name in datasets:
            if name not in shown:
                raise UnknownNameError(f"data set of {self.id}", name, shown)
        return self.model_copy(update={"datasets": tuple(datasets) or shown})


@dataclass(frozen=True)
class TableCell:
    """One row on one data set: its summary, or why there is none."""

    row: Row
    dataset: str
    summary: Mapping[str, JsonValue] | None
    description: Mapping[str, JsonValue] | None
    """The cell's ``cell.json``."""
    missing: str = ""
    """Why there is no summary."""


@dataclass(frozen=True)
class TableData:
    """A definition with the cells that were found; all that rendering needs."""

    definition: TableDefinition
    cells: Mapping[tuple[str, str], TableCell]
    """(row id, data set) -> cell."""


def list_tables() -> list[TableDefinition]:
    """Every table definition: PECAN's (``tableN``) first, then the others, sorted by id."""
    paths = sorted(TABLES.glob("*.yaml"), key=lambda path: (not path.stem.startswith("table"), path.stem))
    return [_read(path) for path in paths]


def load_table(table_id: str) -> TableDefinition:
    """The definition of that id; raises UnknownNameError or DataError."""
    known = {path.stem: path for path in TABLES.glob("*.yaml")}
    if table_id not in known:
        raise UnknownNameError("table", table_id, known, hint="See: bench list tables")
    return _read(known[table_id])


Plan: TypeAlias = Cell | CellRequest | str
"""A planned cell; a request whose k waits for another cell's cost; or why the row cannot run."""


def plan_table(definition: TableDefinition, base: CellRequest) -> dict[tuple[str, str], Plan]:
    """(row id, data set) -> the planned cell, or why the row cannot run.

    ``base`` gives model, data, limit and seed to every cell. Everything is checked before anything runs.
    A row whose own models are not to be had here is left out with that reason; without the reader
    there is no table, so that is an error.
    """
    resolve(base.model, dtype=base.dtype).identity()
    known = registered_methods()
    planned: dict[tuple[str, str], Plan] = {}
    for dataset in definition.datasets:
        card = load_card(dataset)
        for row in definition.rows:
            if row.method not in known:
                planned[row.id, dataset] = f"method {row.method!r} is not part of this version yet"
                continue
            try:
                roles = definition.models.get(base.model, {})
                model = base.model if row.model is None else _model_of(row.model, roles)
                options = row.options(card, roles)
                request = replace(base, method=row.method, dataset=dataset, model=model, options=options)
                planned[row.id, dataset] = _plan(request)
            except (ModelUnavailableError, NoTrainingDataError, NotHadError) as error:
                planned[row.id, dataset] = str(error)
    return planned


def _plan(request: CellRequest) -> Plan:
    if reference_method(request.options.get("k")) is None:
        return plan_cell(request)
    plan_cell(replace(request, options={**request.options, "k": FIRST_K}))  # what else is wrong shows now
    return request


def collect(
    definition: TableDefinition,
    planned: Mapping[tuple[str, str], Plan],
    results: Path,
    run: Callable[[Cell], object] | None = None,
) -> TableData:
    """The table's cells from ``results``; with ``run``, cells that are not finished are run first.

    Rows whose k matches another method's cost come last, after that method's own row.
    """
    rows = {row.id: row for row in definition.rows}
    cells: dict[tuple[str, str], TableCell] = {}
    for key, plan in sorted(planned.items(), key=lambda item: isinstance(item[1], CellRequest)):
        try:
            cell = _matched(plan, results, run) if isinstance(plan, CellRequest) else plan
            if run is not None and isinstance(cell, Cell):
                run(cell)
        except ModelUnavailableError as error:
            assert not isinstance(plan, str)
            reader = plan.reader if isinstance(plan, Cell) else resolve(plan.model)
            verify(reader.name, locate(reader.name, reader.source))  # without the reader there is no table
            cell = str(error)
        cells[key] = _found(rows[key[0]], key[1], cell, results)
    return TableData(definition, {key: cells[key] for key in planned})


def _found(row: Row, dataset: str, cell: Cell | str, results: Path) -> TableCell:
    """The cell with its summary, or without it and why."""
    if isinstance(cell, str):
        return TableCell(row, dataset, None, None, cell)
    folder = cell.folder(results)
    summary = finished_summary(cell, folder)
    if summary is None:
        return TableCell(row, dataset, None, None, "not run yet")
    return TableCell(row, dataset, summary, json.loads((folder / CELL_FILE).read_bytes()))


def _matched(request: CellRequest, results: Path, run: Callable[[Cell], object] | None) -> Cell | str:
    return matched_cell(request, results, run) or "not run yet"


def retrieval_view(table: TableData) -> TableData:
    """The same cells with the measures of their contexts in the place of the scores."""
    update = {
        "id": f"{table.definition.id}_retrieval",
        "title": f"{table.definition.title}: what the contexts hold",
        "metrics": tuple(RETRIEVAL_MEASURES),
    }
    return TableData(table.definition.model_copy(update=update), table.cells)


ModelT = TypeVar("ModelT", bound=BaseModel)


def validated(path: Path, kind: type[ModelT]) -> ModelT:
    """What a YAML file of this folder says, as a ``kind``; raises DataError naming file and key."""
    values = read_yaml(path, "definition", LOADED_TABLE_LIMIT).values
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise DataError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def _read(path: Path) -> TableDefinition:
    definition = validated(path, TableDefinition)
    if definition.id != path.stem:
        raise DataError(f"{path}: id is {definition.id!r}; expected the file's name, {path.stem!r}.")
    return definition


def _model_of(role: str, models: Mapping[str, str]) -> str:
    if role not in models:
        raise ModelUnavailableError(f"no {role} model is named beside this reader in the table's definition")
    return models[role]


def _look_up(value: Any, card: Card, row: str, models: Mapping[str, str]) -> JsonValue:
    if isinstance(value, Mapping) and set(value) == {"model"}:
        return _model_of(str(value["model"]), models)
    if not (isinstance(value, Mapping) and set(value) == {"card"}):
        return value
    found: Any = card.model_dump(mode="json")
    for part in str(value["card"]).split("."):
        if not isinstance(found, Mapping) or found.get(part) is None:
            raise DataError(f"row {row!r}: the card of {card.name!r} has no value at {value['card']!r}.")
        found = found[part]
    return found


def with_rows(definition: TableDefinition, rows: Sequence[str]) -> TableDefinition:
    """The table with further rows at its end, each ``METHOD`` or ``METHOD:KEY=VALUE,KEY=VALUE``.

    Raises UnknownNameError for a method that is not installed, ConfigError for a row that the table has.
    """
    known = registered_methods()
    added: list[Row] = []
    for text in rows:
        method, _, assignments = text.partition(":")
        if method not in known:
            raise UnknownNameError("method", method, known, hint="See: bench list methods")
        options = parse_assignments(assignments.split(",")) if assignments else {}
        if text in {row.id for row in (*definition.rows, *added)}:
            raise ConfigError(f"--row {text}: {definition.id} has that row already.")
        label = " ".join([method, *(f"{key}={value}" for key, value in options.items())])
        added.append(Row(id=text, label=label, method=method, set=options))
    return definition.model_copy(update={"rows": (*definition.rows, *added)})


__all__ = [
    "BenchError",
    "Row",
    "TableCell",
    "TableData",
    "TableDefinition",
    "collect",
    "list_tables",
    "load_table",
    "plan_table",
    "retrieval_view",
    "validated",
    "with_rows",
]
