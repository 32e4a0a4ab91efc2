"""A table of judgements: a model compares one row's answers with every other row's (Graph of Records)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bench.errors import DataError
from bench.models.conversation import LanguageModel
from bench.models.spec import ModelSpec
from bench.results.records import Record
from bench.run.judge_protocol import BOTH_ORDERS, JudgeProtocol
from bench.run.judging import Judgement, JudgementSummary, judge_records, judgement_id, stored_summary
from bench.run.session import Session
from bench.tables.caption import (
    about_judgements,
    about_published_judgements,
    caption,
    listed,
    without_values,
)
from bench.tables.cells import TableCell, TableData
from bench.tables.formats import DASH, TextTable, percent, plain_table, three_digits
from bench.tables.published import PublishedValues

FOLDER = "judgements"
"""Name of the folder of judgements in the results folder."""


def judge_cells(
    first: Sequence[Record],
    second: Sequence[Record],
    session: Session,
    *,
    names: tuple[str, str],
    judge: ModelSpec,
    protocol: JudgeProtocol,
) -> Judgement | None:
    """The judgement of two cells' records by a model, stored in the results folder.

    session: its concurrency and ``retry_failed`` apply to requests to the judge; if it runs nothing, None
    where verdicts are missing. names: labels of the two cells in the verdicts. Raises BenchError like
    :func:`judge_records`, and for an unavailable judge.
    """
    identity = judge.identity()
    identifier = judgement_id(first, second, identity, protocol)
    folder = session.results / FOLDER / identifier
    if not session.compute:
        stored = stored_summary(folder, first, second, protocol)
        return None if stored is None else Judgement(folder, stored, asked=0)

    def loaded() -> LanguageModel:
        from bench.models.model_set import LoadedModels

        return LoadedModels({"judge": judge}).lm("judge")

    about = {
        "judgement_id": identifier,
        "first": names[0],
        "second": names[1],
        "judge": dict(identity),
        "geometry": asdict(judge.geometry),
        "protocol": protocol.name,
        "criteria": list(protocol.criteria),
    }
    return judge_records(first, second, folder, loaded, about, protocol, session.asking)


def judged_table(
    table: TableData,
    published: PublishedValues,
    session: Session,
    judge: ModelSpec,
    protocol: JudgeProtocol,
) -> TextTable:
    """One line per data set and row: outcomes of the reference row against it, by criterion.

    published: the paper's win rates, for further columns. protocol: how the judge is asked; with the paper's
    protocol the table shows both win rates in percent, like the paper.

    session: as for :func:`judge_cells`; rows with missing verdicts stay empty, and a footnote names them.
    Raises DataError for a definition without a reference row, and whatever :func:`judge_cells` raises.
    """
    definition = table.definition
    against = next((row for row in definition.rows if row.id == definition.judged_against), None)
    if against is None:
        raise DataError(f"{definition.id}: judged_against is {definition.judged_against!r}, which is no row.")
    paper = protocol is not BOTH_ORDERS
    rates = {"win_rate": "wins publ.", "against_win_rate": f"{against.label} wins publ."}
    shown = {metric: name for metric, name in rates.items() if any(key[2] == metric for key in published)}
    measures = (
        ("wins", f"{against.label} wins", "failed")
        if paper
        else (*(name.capitalize() for name in protocol.criteria), "orders disagree", "unparsable")
    )
    columns = ("Data and method", *measures, "n", "TFLOPs", *shown.values())
    empty = [DASH] * (len(columns) - 1 - len(shown))
    unjudged: list[str] = []

    def values(cell: TableCell) -> list[str]:
        printed = [_percent(published, (cell.row.id, cell.dataset, metric)) for metric in shown]
        own, other = table.cells[against.id, cell.dataset].finished, cell.finished
        if own is None or other is None:
            return [*empty, *printed]
        names = (against.label, cell.row.label)
        judged = judge_cells(own.records, other.records, session, names=names, judge=judge, protocol=protocol)
        if judged is None:
            unjudged.append(f"{cell.data}: {cell.row.label}")
            return [*empty, *printed]
        return [*(_rates if paper else _line)(judged.summary), *printed]

    others = tuple(row for row in definition.rows if row is not against)
    rows = TableData(definition.model_copy(update={"rows": others}), table.cells).lines(values)
    return plain_table(
        definition.id,
        definition.title,
        columns,
        rows,
        (
            about_judgements(against.label, judge.label, small=judge.small, protocol=protocol.name),
            *([about_published_judgements(against.label)] if shown else []),
            *caption(table),
        ),
        (*without_values(table), *listed("Not judged, or only in part", unjudged)),
    )


def _line(summary: JudgementSummary) -> list[str]:
    outcomes = list(summary.criteria.values())
    return [
        *(f"{c.win} / {c.tie} / {c.loss}" for c in outcomes),
        str(sum(c.inconsistent for c in outcomes)),
        str(sum(c.unparsable for c in outcomes)),
        str(summary.n),
        three_digits(summary.tflops),
    ]


def _rates(summary: JudgementSummary) -> list[str]:
    """Both win rates in percent; the reference row's comes second, with its interval."""
    (overall,) = summary.criteria.values()
    rates = [DASH, DASH]
    if overall.win_rate is not None:
        own = overall.win_rate.scaled(100)
        rates = [f"{100 - own.mean:.1f} %", percent(own)]
    return [*rates, str(overall.unparsable), str(summary.n), three_digits(summary.tflops)]


def _percent(published: PublishedValues, place: tuple[str, str, str]) -> str:
    return f"{published[place].value:.1f} %" if place in published else DASH
