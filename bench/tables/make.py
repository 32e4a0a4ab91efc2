"""Tables in three steps: plan the cells of a request, run them, make the table of its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from bench.errors import ConfigError
from bench.models.prices import PriceCard
from bench.models.spec import resolve
from bench.run.cell import Cell, CellRequest
from bench.run.equal_cost import CostMatch
from bench.run.judge_protocol import PROTOCOLS, ProtocolName
from bench.run.session import Session
from bench.tables.amortised import amortised_table
from bench.tables.cells import Places, Plans, TableData, plan_table, retrieval_view, table_cells
from bench.tables.cost_parts import costs_of
from bench.tables.costs import costs_table
from bench.tables.definition import WITHOUT_CELLS, TableDefinition
from bench.tables.export import exported_table
from bench.tables.formats import TextTable
from bench.tables.judged import judged_table
from bench.tables.latency import timed_table
from bench.tables.lengths import lengths_table
from bench.tables.paired import paired_table
from bench.tables.price import QUESTIONS, price_table
from bench.tables.printed import printed_table
from bench.tables.published import published
from bench.tables.render import render
from bench.tables.settings import settings_table
from bench.tables.ties import ties_of

View: TypeAlias = Literal["scores", "retrieval", "costs", "price", "paired", "published"]


@dataclass(frozen=True)
class TableRequest:
    """A table to make: its definition, its setting and the session that runs its cells."""

    definition: TableDefinition
    setting: CellRequest
    session: Session
    """Runs missing cells, or finds what is finished; has the results folder."""
    view: View = "scores"
    """As ``--columns`` of bench table."""
    judge: str | None = None
    """The judge in tables of judgements; None: the reader."""
    protocol: ProtocolName = "both_orders"
    """How the judge is asked."""
    exported: Path | None = None
    """A folder of :mod:`bench.tables.export` to read the cells from; None: the results folder."""
    prices: PriceCard | None = None
    """Of the view ``price``."""
    questions: tuple[int, ...] = QUESTIONS
    """Of the view ``price``: numbers of questions that share a document's index."""
    places: Places = field(default_factory=dict)
    """Filled while the table is made (:func:`bench.tables.cells.table_cells`)."""

    @property
    def name(self) -> str:
        """Name of the table's files, without suffix."""
        protocol = "" if self.protocol == "both_orders" else f"_{self.protocol}"
        return self.definition.id + ("" if self.view == "scores" else f"_{self.view}") + protocol


def plan_cells(request: TableRequest) -> Plans:
    """The planned cells, checked with everything else before anything runs; none for a table without cells.

    Raises ConfigError for a view that the table does not have, and BenchError if it cannot be made.
    """
    definition, setting = request.definition, request.setting
    for given, flag, kinds, use in (
        (request.view == "retrieval", "--columns retrieval", ("cells",), "tables of scores"),
        (request.view == "paired", "--columns paired", ("cells",), "tables of scores"),
        (request.view == "costs", "--columns costs", ("cells", "amortised"), "tables with a row per method"),
        (request.view == "price", "--columns price", ("cells", "amortised"), "tables with a row per method"),
        (request.protocol != "both_orders", "--protocol", ("judged",), "tables of judgements, such as gor2"),
        (request.judge is not None, "--judge", ("judged",), "tables of judgements, such as gor2"),
        (request.exported is not None, "--from", ("cells",), "tables of scores, such as table1"),
    ):
        if given and definition.kind not in kinds:
            raise ConfigError(f"{definition.id}: {flag} is for {use}.")
    if request.exported and request.view in ("costs", "price"):
        raise ConfigError(f"--from {request.exported} has no ledgers: leave out --columns {request.view}.")
    if definition.kind == "judged" and request.view != "published":
        resolve(request.judge or setting.model, dtype=setting.dtype).identity()
    without = request.view == "published" or definition.kind in WITHOUT_CELLS or request.exported
    planned = {} if without else plan_table(definition, setting)
    for plan in planned.values():
        cell = plan.trial if isinstance(plan, CostMatch) else plan
        if request.prices is not None and isinstance(cell, Cell):
            for spec in cell.roles.values():
                request.prices.of(spec.name)
    return planned


def run_cells(request: TableRequest, planned: Plans) -> TableData:
    """The table's cells; missing ones run first unless the session runs nothing."""
    definition = request.definition
    if request.exported is not None:
        return exported_table(definition, request.exported)
    if not planned:
        return TableData(definition, {})
    if whole := definition.kind in ("timed", "judged"):  # all questions at once, and no unfinished cell
        request.session.begin_pass(None)
    table = table_cells(definition, planned, request.session, request.places)
    return table.without_unfinished() if whole else table


def make_table(request: TableRequest, planned: Plans, table: TableData) -> TextTable:
    """The table of its cells, in all formats."""
    definition, setting, session = request.definition, request.setting, request.session
    printed = published(definition.published_as) if definition.printed else {}
    match request.view:
        case "published":
            return printed_table(definition)
        case "price":
            assert request.prices is not None, "the view has a card"
            return price_table(table, request.prices, request.questions)
        case "retrieval":
            return render(retrieval_view(table), printed)
        case "paired":
            return paired_table(table)
        case "costs":
            return costs_table(table, costs_of(table))
    match definition.kind:
        case "cells":
            return render(table, printed, {} if request.exported else costs_of(table), ties_of(table))
        case "amortised":
            return amortised_table(table, printed, costs_of(table))
        case "timed":
            return timed_table(table, planned, printed, session)
        case "judged":
            judge = resolve(request.judge or setting.model, dtype=setting.dtype)
            return judged_table(table, printed, session, judge, PROTOCOLS[request.protocol])
        case "lengths":
            return lengths_table(definition, setting.model, setting.data, setting.limit)
        case "settings":
            return settings_table(definition, setting.model)
