"""A table of judgements: one row's answers against every other row's, by a model (Graph of Records)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.errors import DataError
from bench.models.api import LanguageModel
from bench.models.spec import resolve
from bench.results.records import RECORDS_FILE, Record, read_records
from bench.run.cell import Cell
from bench.run.judging import (
    CRITERIA,
    IN_FLIGHT,
    Judgement,
    JudgementSummary,
    judge_records,
    judgement_id,
    stored_summary,
)
from bench.run.session import Session
from bench.tables.caption import (
    about_judgements,
    about_published_judgements,
    caption,
    not_judged,
    without_values,
)
from bench.tables.cells import Plan, TableData
from bench.tables.formats import DASH, three_digits
from bench.tables.notes import notes_of
from bench.tables.plain import PlainTable
from bench.tables.published import PublishedValues

FOLDER = "judgements"
"""Below the results folder."""


def judge_cells(
    first: Sequence[Record],
    second: Sequence[Record],
    *,
    names: tuple[str, str],
    judge: str,
    dtype: str | None,
    results: Path,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
) -> Judgement:
    """The judgement of two cells' records by the named model, kept below the results folder.

    names: labels of the two in the verdicts. retry_failed: ask again where the judge could not be asked.
    Raises BenchError as :func:`judge_records` does, and for a judge that is unavailable.
    """
    spec = resolve(judge, dtype=dtype)
    identity = spec.identity()
    identifier = judgement_id(first, second, identity)

    def loaded() -> LanguageModel:
        from bench.models.model_set import LoadedModels

        return LoadedModels({"judge": spec}).lm("judge")

    about = {
        "judgement_id": identifier,
        "first": names[0],
        "second": names[1],
        "judge": dict(identity),
        "geometry": asdict(spec.geometry),
        "criteria": list(CRITERIA),
    }
    folder = results / FOLDER / identifier
    return judge_records(first, second, folder, loaded, about, in_flight=in_flight, retry_failed=retry_failed)


def judged_table(
    table: TableData,
    planned: Mapping[tuple[str, str], Plan],
    session: Session | None,
    results: Path,
    judge: str,
    dtype: str | None = None,
    published: PublishedValues | None = None,
) -> PlainTable:
    """A line for each data set and row: outcomes of the reference row against it, by criterion.

    published: the paper's win rates, shown beside them.

    session: missing verdicts are asked for, as many at a time as it asks questions, and failed ones where it
    asks those again; None: such rows stay empty, and a footnote names them. Raises DataError for a definition
    without a reference row, and what :func:`judge_cells` raises.
    """
    published = published or {}
    definition = table.definition
    against = next((row for row in definition.rows if row.id == definition.judged_against), None)
    if against is None:
        raise DataError(f"{definition.id}: judged_against is {definition.judged_against!r}, which is no row.")
    measures = ("orders disagree", "unparsable", "n", "TFLOPs")
    rates = {"win_rate": "wins publ.", "against_win_rate": f"{against.label} wins publ."}
    shown = {metric: name for metric, name in rates.items() if any(key[2] == metric for key in published)}
    columns = ("Data and method", *(name.capitalize() for name in CRITERIA), *measures, *shown.values())
    empty = [DASH] * (len(columns) - 1 - len(shown))
    rows: list[tuple[str, ...]] = []
    waiting: list[str] = []
    for dataset in definition.datasets:
        own = _records(table, planned, against.id, dataset, results)
        for row in definition.rows:
            if row.id == against.id:
                continue
            other = _records(table, planned, row.id, dataset, results)
            label = f"{table.cells[row.id, dataset].data}: {row.label}"
            printed = [_percent(published, (row.id, dataset, metric)) for metric in shown]
            if own is None or other is None:
                rows.append((label, *empty, *printed))
                continue
            summary = _summary(own, other, (against.label, row.label), judge, dtype, results, session)
            rows.append((label, *(_line(summary) if summary else empty), *printed))
            waiting += [] if summary else [label]
    notes, spec = notes_of(table), resolve(judge, dtype=dtype)
    return PlainTable(
        definition.id,
        definition.title,
        columns,
        tuple(rows),
        (
            about_judgements(against.label, spec.label, small=spec.small),
            *([about_published_judgements(against.label)] if shown else []),
            *caption(notes),
        ),
        (*without_values(notes), *not_judged(waiting)),
    )


def _summary(
    own: Sequence[Record],
    other: Sequence[Record],
    names: tuple[str, str],
    judge: str,
    dtype: str | None,
    results: Path,
    session: Session | None,
) -> JudgementSummary | None:
    if session is None:
        identity = resolve(judge, dtype=dtype).identity()
        return stored_summary(results / FOLDER / judgement_id(own, other, identity), own, other)
    judgement = judge_cells(
        own,
        other,
        names=names,
        judge=judge,
        dtype=dtype,
        results=results,
        in_flight=session.in_flight,
        retry_failed=session.retry_failed,
    )
    return judgement.summary


def _line(summary: JudgementSummary) -> list[str]:
    outcomes = [summary.criteria[name] for name in CRITERIA]
    return [
        *(f"{c.win} / {c.tie} / {c.loss}" for c in outcomes),
        str(sum(c.inconsistent for c in outcomes)),
        str(sum(c.unparsable for c in outcomes)),
        str(summary.n),
        three_digits(summary.tflops),
    ]


def _percent(published: PublishedValues, place: tuple[str, str, str]) -> str:
    return f"{published[place].value:.1f} %" if place in published else DASH


def _records(
    table: TableData, planned: Mapping[tuple[str, str], Plan], row: str, dataset: str, results: Path
) -> list[Record] | None:
    """The records of a finished cell; None where it is not finished."""
    cell = planned[row, dataset]
    if table.cells[row, dataset].summary is None or not isinstance(cell, Cell):
        return None
    return list(read_records(cell.folder(results) / RECORDS_FILE))
