"""Entry point for tables: a request in, the table in all formats out; one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from bench.errors import ConfigError
from bench.models.prices import PriceCard
from bench.models.spec import resolve
from bench.run.cell import CellRequest
from bench.run.judge_protocol import PROTOCOLS, ProtocolName
from bench.run.session import Session
from bench.tables.amortised import amortised_table
from bench.tables.cells import Places, Plan, TableData, plan_table, retrieval_view, table_cells
from bench.tables.cost_parts import costs_of
from bench.tables.costs import costs_table
from bench.tables.definition import TableDefinition
from bench.tables.export import export_table, exported_table
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
    """retrieval: how much of the evidence the contexts contain; costs: their parts; price: in dollars;
    paired: against one row, question by question; published: what the paper prints alone."""
    judge: str | None = None
    """The judge in tables of judgements; None: the reader."""
    protocol: ProtocolName = "both_orders"
    """How the judge is asked."""
    exported: Path | None = None
    """A folder of :mod:`bench.tables.export` to read the cells from; None: the results folder."""
    export: Path | None = None
    """Folder for an export of the finished cells without any text of the data; None: no export."""
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


def make_table(request: TableRequest) -> TextTable:
    """The table; missing cells run first unless the session runs nothing.

    Raises ConfigError for a view that the table does not have, and BenchError if it cannot be made.
    """
    definition = request.definition
    if request.export is not None and request.view in ("price", "published"):
        raise ConfigError(f"--export {request.export} is of a table's scores: leave out --columns.")
    if request.view == "published":
        return printed_table(definition)
    for given, flag, kinds, use in (
        (request.view == "retrieval", "--columns retrieval", ("cells",), "tables of scores"),
        (request.view == "paired", "--columns paired", ("cells",), "tables of scores"),
        (request.view == "costs", "--columns costs", ("cells", "amortised"), "tables with a row per method"),
        (request.view == "price", "--columns price", ("cells", "amortised"), "tables with a row per method"),
        (request.protocol != "both_orders", "--protocol", ("judged",), "tables of judgements, such as gor2"),
        (request.judge is not None, "--judge", ("judged",), "tables of judgements, such as gor2"),
        (request.export is not None, "--export", ("cells",), "tables of scores, such as table1"),
        (request.exported is not None, "--from", ("cells",), "tables of scores, such as table1"),
    ):
        if given and definition.kind not in kinds:
            raise ConfigError(f"{definition.id}: {flag} is for {use}.")
    if request.exported and request.view != "scores":
        raise ConfigError(f"--from {request.exported} has no records: leave out --columns {request.view}.")
    if request.exported and (request.setting.model_named or request.setting.limit):
        raise ConfigError(
            f"--from {request.exported} shows what was recorded: leave out --model and --limit."
        )
    if request.view == "price":
        return _priced(request)
    return KINDS[definition.kind](request)


def collected(request: TableRequest) -> TableData:
    """The cells of a table of scores."""
    if request.exported is not None:
        return exported_table(request.definition, request.exported)
    return _collected(request)[0]


def _scores(request: TableRequest) -> TextTable:
    printed = published(request.definition.published_as) if request.definition.printed else {}
    table = collected(request)
    if request.exported is not None:
        return render(table, printed, ties=ties_of(table))
    if request.export is not None and (request.session.asking.first is None or not table.so_far):
        export_table(table, request.export)
    if request.view == "retrieval":
        return render(retrieval_view(table), printed)
    if request.view == "paired":
        return paired_table(table)
    costs = costs_of(table)
    if request.view == "costs":
        return costs_table(table, costs)
    return render(table, printed, costs, ties_of(table))


def _priced(request: TableRequest) -> TextTable:
    card = request.prices
    assert card is not None, "the view has a card"
    card.of(resolve(request.setting.model, dtype=request.setting.dtype).name)  # an error before any answer
    return price_table(_collected(request)[0], card, request.questions)


def _amortised(request: TableRequest) -> TextTable:
    table, _ = _collected(request)
    costs = costs_of(table)
    if request.view == "costs":
        return costs_table(table, costs)
    return amortised_table(table, published(request.definition.published_as), costs)


def _timed(request: TableRequest) -> TextTable:
    table, planned = _collected(request, whole=True)
    return timed_table(table, planned, published(request.definition.published_as), request.session)


def _judged(request: TableRequest) -> TextTable:
    judge, dtype = request.judge or request.setting.model, request.setting.dtype
    resolve(judge, dtype=dtype).identity()  # a judge that is not there is an error before hours of answers
    table, _ = _collected(request, whole=True)
    printed = published(request.definition.published_as)
    return judged_table(table, request.session, judge, dtype, printed, PROTOCOLS[request.protocol])


def _lengths(request: TableRequest) -> TextTable:
    setting = request.setting
    return lengths_table(request.definition, setting.model, setting.data, setting.limit)


KINDS: Mapping[str, Callable[[TableRequest], TextTable]] = {
    "cells": _scores,
    "amortised": _amortised,
    "timed": _timed,
    "judged": _judged,
    "lengths": _lengths,
    "settings": lambda request: settings_table(request.definition, request.setting.model),
}
"""Kind of a definition -> function that makes the table."""


def _collected(
    request: TableRequest, *, whole: bool = False
) -> tuple[TableData, Mapping[tuple[str, str], Plan]]:
    """The table's cells and their plans; whole: all questions asked at once, and no unfinished cell."""
    if whole:
        request.session.begin_pass(None)
    planned = plan_table(request.definition, request.setting)
    table = table_cells(request.definition, planned, request.session, request.places)
    return (table.without_unfinished() if whole else table), planned
