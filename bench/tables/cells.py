"""The cells of a table: planned from its definition, run if missing, and collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bench.data.cards import Card
from bench.data.loading import DataUnavailableError
from bench.data.own import card_for
from bench.errors import BenchError, ModelUnavailableError
from bench.method.registry import registered_methods
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.metrics.statistics import Interval
from bench.models.presets import presets
from bench.models.sources import verify
from bench.models.spec import resolve
from bench.results.finished import FinishedCell, so_far
from bench.results.models import CellDescription, Summary
from bench.run.cell import Cell, CellRequest, plan_cell, shared_runs
from bench.run.equal_cost import CostMatch, cost_match, match_costs
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
            preset = presets().get(str(model.get("name", "")))
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

    @property
    def so_far(self) -> str:
        """How far the questions have come; empty if all have been asked."""
        return so_far(cell.finished for cell in self.cells.values() if cell.finished is not None)

    def without_unfinished(self) -> TableData:
        """The same without the cells that have not been asked all their questions."""
        cells = {
            place: cell
            if cell.finished is None or cell.finished.is_whole
            else TableCell(cell.row, cell.dataset, None, "not finished yet")
            for place, cell in self.cells.items()
        }
        return TableData(self.definition, cells)

    def of(self, dataset: str) -> list[TableCell]:
        """The cells of a data set, in the order of the rows."""
        return [self.cells[row.id, dataset] for row in self.definition.rows]

    def lines(self, values: Callable[[TableCell], Sequence[str]]) -> tuple[tuple[str, ...], ...]:
        """A line of text per data set and row: the data and the method, then the cell's values."""
        cells = [cell for dataset in self.definition.datasets for cell in self.of(dataset)]
        return tuple((f"{cell.data}: {cell.row.label}", *values(cell)) for cell in cells)

    @property
    def title(self) -> str:
        """The definition's, and how far the questions have come unless all have been asked."""
        return self.definition.title + (f" ({self.so_far})" if self.so_far else "")


Places: TypeAlias = dict[tuple[str, str], str]
"""(Row id, data set) -> cell id."""

Plan: TypeAlias = Cell | CostMatch | str
"""A planned cell; one whose k depends on another cell's cost; or why the row cannot run."""

Plans: TypeAlias = Mapping[tuple[str, str], Plan]
"""(Row id, data set) -> plan."""


def plan_table(definition: TableDefinition, setting: CellRequest) -> dict[tuple[str, str], Plan]:
    """(row id, data set) -> the planned cell, or why the row cannot run.

    Everything is checked before anything runs.
    A row whose own models are unavailable is left out with that reason; a missing reader is an error.
    """
    reader = resolve(setting.model, dtype=setting.dtype)
    reader.identity()
    chunk_tokens = reader.geometry.chunk_tokens
    as_published = definition.is_of_paper(setting.model, setting.data, setting.limit)
    methods, roles = registered_methods(), definition.models.get(setting.model, {})

    def plan(row: Row, dataset: str, card: Card) -> Plan:
        if lacking := [m for m in definition.metrics if m not in (*card.metrics, *RETRIEVAL_MEASURES)]:
            return f"{card.name} is scored by {', '.join(card.metrics)}, not by {', '.join(lacking)}"
        if row.only_reader not in (None, setting.model):
            return f"its options are for {row.only_reader} alone"
        if row.method not in methods:
            return f"method {row.method!r} is not installed"
        try:
            model = None if row.model is None else model_of_role(row.model, roles)
            options = row.options(card, roles, as_published=as_published, chunk_tokens=chunk_tokens)
            limit = setting.limit or definition.questions.get(dataset)
            request = replace(setting, limit=limit).of(row.method, dataset, options, model=model)
            return cost_match(request) or plan_cell(request)
        except (ModelUnavailableError, NoTrainingDataError, DataUnavailableError) as error:
            return str(error)

    cards = {dataset: card_for(dataset, setting.data) for dataset in definition.datasets}
    return {(row.id, of): plan(row, of, card) for of, card in cards.items() for row in definition.rows}


def table_cells(
    definition: TableDefinition, planned: Plans, session: Session, places: Places | None = None
) -> TableData:
    """The table's cells; those that are missing run first, unless the session runs nothing.

    places: filled with the cells' places as they are known, for a display of a table that is being made.
    Rows whose k depends on another row's cost come second. A row whose models turn out to be unavailable is
    left out with that reason; without the reader there is no table.
    """
    why: dict[int, str] = {}

    def left_out(first: Cell, plans: Sequence[Plan], error: BenchError) -> None:
        if not isinstance(error, ModelUnavailableError):
            raise error
        verify(first.reader.name, first.reader.source.locate(first.reader.name))
        why.update((id(plan), str(error)) for plan in plans)

    places = {} if places is None else places
    places |= {place: plan.identity.cell_id for place, plan in planned.items() if isinstance(plan, Cell)}
    cells = [plan for plan in planned.values() if isinstance(plan, Cell)]
    finished = session.run_all(
        shared_runs(cells), failed=lambda group, error: left_out(group[0], group, error)
    )
    matches = [plan for plan in planned.values() if isinstance(plan, CostMatch)]
    matched = match_costs(matches, session, lambda match, error: left_out(match.trial, [match], error))
    of_match = {id(match): cell for match, cell in zip(matches, matched, strict=True)}
    settled = ((place, of_match.get(id(plan))) for place, plan in planned.items())
    places |= {place: cell.identity.cell_id for place, cell in settled if cell is not None}
    finished |= session.run_all(shared_runs(filter(None, matched)))
    rows = {row.id: row for row in definition.rows}
    table: dict[tuple[str, str], TableCell] = {}
    for (row_id, dataset), plan in planned.items():
        row, cell = rows[row_id], plan
        if isinstance(plan, CostMatch):
            row = row.model_copy(update={"set": dict(plan.request.options)})  # for the footnotes
            cell = of_match[id(plan)] or "not run yet"
        found = finished.get(cell.identity.cell_id) if isinstance(cell, Cell) else None
        missing = "" if found else why.get(id(plan), cell if isinstance(cell, str) else "not run yet")
        table[row_id, dataset] = TableCell(row, dataset, found, missing)
    return TableData(definition, table)


def retrieval_view(table: TableData) -> TableData:
    """The same cells with the measures of their contexts instead of the scores."""
    update = {
        "id": f"{table.definition.id}_retrieval",
        "title": f"{table.definition.title}: what the contexts hold",
        "metrics": tuple(RETRIEVAL_MEASURES),
    }
    return TableData(table.definition.model_copy(update=update), table.cells)
