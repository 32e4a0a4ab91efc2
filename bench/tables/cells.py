"""The cells of a table: planned from its definition, run if missing, and collected."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bench.data.loading import DataUnavailableError
from bench.data.own import card_for
from bench.errors import ModelUnavailableError
from bench.method.registry import registered_methods
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.models.fetching import locate
from bench.models.presets import PRESETS
from bench.models.sources import verify
from bench.models.spec import resolve
from bench.results.finished import FinishedCell
from bench.results.models import CellDescription, Interval, Summary
from bench.run.cell import Cell, CellRequest, Setting, plan_cell
from bench.run.cell_folder import finished_cell
from bench.run.equal_cost import matched_cell, provisional, waiting_option
from bench.run.likely_cost import likely_cells
from bench.run.session import Session
from bench.run.training_plan import NoTrainingDataError
from bench.tables.definition import Row, TableDefinition, model_of_role


@dataclass(frozen=True)
class TableCell:
    """One row on one data set: its finished cell, or why there is none."""

    row: Row
    dataset: str
    finished: FinishedCell | None
    missing: str = ""
    """Why there is no finished cell."""

    @property
    def summary(self) -> Summary | None:
        """The cell's summary."""
        return None if self.finished is None else self.finished.summary

    @property
    def description(self) -> CellDescription | None:
        """The cell's description."""
        return None if self.finished is None else self.finished.description

    @property
    def comparable(self) -> bool:
        """Whether a difference from a published value says anything: no model and no data are stand-ins."""
        about = self.description
        if about is None or self.row.stand_in or about.model_small or about.data_source == "sample":
            return False
        for role, model in about.models.items():
            preset = PRESETS.get(str(model.get("name", "")))
            if preset is not None and (preset.caution or (preset.small and role != "reader")):
                return False
        return True

    @property
    def data(self) -> str:
        """The data as printed, or the data set's name if there is no finished cell."""
        return self.dataset if self.finished is None else self.finished.description.data

    def interval(self, metric: str) -> Interval | None:
        """The interval of a metric or of a measure of the contexts, 0..1; None if the cell has none."""
        return None if self.finished is None else self.finished.summary.interval(metric)


@dataclass(frozen=True)
class TableData:
    """A definition with its cells; everything that rendering needs."""

    definition: TableDefinition
    cells: Mapping[tuple[str, str], TableCell]
    """(row id, data set) -> cell."""


Plan: TypeAlias = Cell | CellRequest | str
"""A planned cell; a request whose k depends on another cell's cost; or why the row cannot run."""


Keyed: TypeAlias = tuple[tuple[str, str], Plan]
"""A plan with its row id and data set."""


def plan_table(definition: TableDefinition, setting: Setting) -> dict[tuple[str, str], Plan]:
    """(row id, data set) -> the planned cell, or why the row cannot run.

    Everything is checked before anything runs.
    A row whose own models are unavailable is left out with that reason; a missing reader is an error.
    """
    reader = resolve(setting.model, dtype=setting.dtype)
    reader.identity()
    chunk_tokens = reader.geometry.chunk_tokens
    as_published = definition.is_of_paper(setting.model, setting.data, setting.limit)
    methods = registered_methods()
    planned: dict[tuple[str, str], Plan] = {}
    for dataset in definition.datasets:
        card = card_for(dataset, setting.data)
        lacking = [m for m in definition.metrics if m not in (*card.metrics, *RETRIEVAL_MEASURES)]
        for row in definition.rows:
            if lacking:
                scored = f"{card.name} is scored by {', '.join(card.metrics)}"
                planned[row.id, dataset] = f"{scored}, not by {', '.join(lacking)}"
                continue
            if row.only_reader not in (None, setting.model):
                planned[row.id, dataset] = f"its options are for {row.only_reader} alone"
                continue
            if row.method not in methods:
                planned[row.id, dataset] = f"method {row.method!r} is not installed"
                continue
            try:
                roles = definition.models.get(setting.model, {})
                model = None if row.model is None else model_of_role(row.model, roles)
                options = row.options(card, roles, as_published=as_published, chunk_tokens=chunk_tokens)
                limit = setting.limit or definition.questions.get(dataset)
                request = replace(setting, limit=limit).request(row.method, dataset, options, model=model)
                planned[row.id, dataset] = _plan(request)
            except (ModelUnavailableError, NoTrainingDataError, DataUnavailableError) as error:
                planned[row.id, dataset] = str(error)
    return planned


def _plan(request: CellRequest) -> Plan:
    cell = plan_cell(provisional(request))  # reports any other error now
    return cell if waiting_option(request.options) is None else request


def collect(
    definition: TableDefinition,
    planned: Mapping[tuple[str, str], Plan],
    results: Path,
    run: Callable[[Cell], object] | None = None,
    order: Callable[[list[Keyed], Callable[[Keyed], Iterable[Path]]], Iterator[Keyed]] | None = None,
) -> TableData:
    """The table's cells from ``results``; with ``run``, unfinished cells run first.

    order: orders the cells, like :meth:`bench.run.session.Session.unlocked_first`; None: as planned.
    Rows whose k depends on another method's cost come last, after that method's own row.
    """
    rows = {row.id: row for row in definition.rows}
    cells: dict[tuple[str, str], TableCell] = {}

    def folders(item: Keyed) -> Iterable[Path]:
        return [item[1].folder(results)] if isinstance(item[1], Cell) else []

    first = [item for item in planned.items() if not isinstance(item[1], CellRequest)]
    matched = [item for item in planned.items() if isinstance(item[1], CellRequest)]
    for key, plan in itertools.chain(order(first, folders) if order else first, matched):
        try:
            cell = _matched(plan, results, run) if isinstance(plan, CellRequest) else plan
            if run is not None and isinstance(cell, Cell):
                run(cell)
        except ModelUnavailableError as error:
            assert not isinstance(plan, str)
            reader = plan.reader if isinstance(plan, Cell) else resolve(plan.model)
            verify(reader.name, locate(reader.name, reader.source))  # without the reader there is no table
            cell = str(error)
        row = rows[key[0]]
        if isinstance(plan, CellRequest):
            row = row.model_copy(update={"set": dict(plan.options)})  # with auto:METHOD, for the footnotes
        cells[key] = _table_cell(row, key[1], cell, results)
    return TableData(definition, {key: cells[key] for key in planned})


def run_and_collect(
    definition: TableDefinition, planned: Mapping[tuple[str, str], Plan], session: Session
) -> TableData:
    """The table's cells, those that are missing run first, by several processes where that pays."""
    plain = {key: plan for key, plan in planned.items() if not isinstance(plan, CellRequest)}
    with session.with_helpers([[(plan, None)] for plan in plain.values() if isinstance(plan, Cell)]):
        collect(definition, plain, session.results, session.run, session.unlocked_first)
    waiting = [plan for plan in planned.values() if isinstance(plan, CellRequest)]
    groups = [group for group in (_likely(request, session) for request in waiting) if group]
    with session.with_helpers(groups, "for the rows whose k depends on what another row costs"):
        for group in session.unlocked_first(
            groups, lambda group: [c.folder(session.results) for c, _ in group]
        ):
            session.run_together(group)
    return collect(definition, planned, session.results, session.run)


def _likely(request: CellRequest, session: Session) -> list[tuple[Cell, Path | None]]:
    """The cells that a matched row probably needs; none where its models are unavailable."""
    try:
        return [(cell, None) for cell in likely_cells(request, session)]
    except ModelUnavailableError:
        return []


def _table_cell(row: Row, dataset: str, cell: Cell | str, results: Path) -> TableCell:
    """The finished cell, or the reason why there is none."""
    if isinstance(cell, str):
        return TableCell(row, dataset, None, cell)
    finished = finished_cell(cell, cell.folder(results))
    return TableCell(row, dataset, finished, "" if finished is not None else "not run yet")


def _matched(request: CellRequest, results: Path, run: Callable[[Cell], object] | None) -> Cell | str:
    return matched_cell(request, results, run) or "not run yet"


def retrieval_view(table: TableData) -> TableData:
    """The same cells with the measures of their contexts instead of the scores."""
    update = {
        "id": f"{table.definition.id}_retrieval",
        "title": f"{table.definition.title}: what the contexts hold",
        "metrics": tuple(RETRIEVAL_MEASURES),
    }
    return TableData(table.definition.model_copy(update=update), table.cells)
