"""A table of judgements: one row's answers against every other row's, by a model (Graph of Records)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.cell import Cell
from bench.errors import DataError
from bench.judging import CRITERIA, IN_FLIGHT, Judgement, judge_records, judgement_id, stored_summary
from bench.models.api import LanguageModel
from bench.models.presets import resolve
from bench.plain_tables import PlainTable
from bench.records import RECORDS_FILE, Record, read_records
from bench.rendering import DASH, caption, footnotes, three_digits
from bench.session import Session
from bench.tables import Plan, TableData

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

    names: what the two are called beside the verdicts. retry_failed: ask again where the judge could not be
    asked. Raises BenchError as :func:`judge_records` does, and for a judge that is not to be had.
    """
    spec = resolve(judge, dtype=dtype)
    identity = spec.identity()
    found = judgement_id(first, second, identity)

    def loaded() -> LanguageModel:
        from bench.models.model_set import LoadedModels

        return LoadedModels({"judge": spec}).lm("judge")

    about = {
        "judgement_id": found,
        "first": names[0],
        "second": names[1],
        "judge": dict(identity),
        "geometry": asdict(spec.geometry),
        "criteria": list(CRITERIA),
    }
    folder = results / FOLDER / found
    return judge_records(first, second, folder, loaded, about, in_flight=in_flight, retry_failed=retry_failed)


def judged_table(
    table: TableData,
    planned: Mapping[tuple[str, str], Plan],
    session: Session | None,
    results: Path,
    judge: str,
    dtype: str | None = None,
) -> PlainTable:
    """A line for each data set and row: outcomes of the reference row against it, by criterion.

    session: missing verdicts are asked for, as many at a time as it asks questions, and failed ones where it
    asks those again; None: such rows stay empty, and a footnote names them. Raises DataError for a definition
    without a reference row, and what :func:`judge_cells` raises.
    """
    definition = table.definition
    against = next((row for row in definition.rows if row.id == definition.judged_against), None)
    if against is None:
        raise DataError(f"{definition.id}: judged_against is {definition.judged_against!r}, which is no row.")
    measures = ("orders disagree", "unparsable", "n", "TFLOPs")
    columns = ("Data and method", *(name.capitalize() for name in CRITERIA), *measures)
    rows: list[tuple[str, ...]] = []
    waiting: list[str] = []
    for dataset in definition.datasets:
        own = _records(table, planned, against.id, dataset, results)
        for row in definition.rows:
            if row.id == against.id:
                continue
            other = _records(table, planned, row.id, dataset, results)
            label = f"{_data(table, row.id, dataset)}: {row.label}"
            if own is None or other is None:
                rows.append((label, *[DASH] * (len(columns) - 1)))
                continue
            summary = _summary(own, other, (against.label, row.label), judge, dtype, results, session)
            rows.append((label, *(_line(summary) if summary else [DASH] * (len(columns) - 1))))
            waiting += [] if summary else [label]
    return PlainTable(
        definition.id,
        definition.title,
        columns,
        tuple(rows),
        (*_about(against.label, judge, dtype), *caption(table)),
        (
            *(note for note in footnotes(table) if note.startswith("Without values")),
            *([f"Not judged yet, or not to the end: {'; '.join(waiting)}."] if waiting else []),
        ),
    )


def _summary(
    own: Sequence[Record],
    other: Sequence[Record],
    names: tuple[str, str],
    judge: str,
    dtype: str | None,
    results: Path,
    session: Session | None,
) -> Mapping[str, object] | None:
    if session is None:
        identity = resolve(judge, dtype=dtype).identity()
        return stored_summary(results / FOLDER / judgement_id(own, other, identity), own, other)
    found = judge_cells(
        own,
        other,
        names=names,
        judge=judge,
        dtype=dtype,
        results=results,
        in_flight=session.in_flight,
        retry_failed=session.retry_failed,
    )
    return found.summary


def _line(summary: Mapping[str, object]) -> list[str]:
    criteria: Mapping[str, Mapping[str, int]] = summary["criteria"]  # type: ignore[assignment]
    found = [criteria[name] for name in CRITERIA]
    return [
        *(f"{c['win']} / {c['tie']} / {c['loss']}" for c in found),
        str(sum(c["inconsistent"] for c in found)),
        str(sum(c["unparsable"] for c in found)),
        str(summary["n"]),
        three_digits(float(summary["flops"]) / 1e12),  # type: ignore[arg-type]
    ]


def _about(against: str, judge: str, dtype: str | None) -> list[str]:
    spec = resolve(judge, dtype=dtype)
    small = ", a small stand-in trained by this project that was never taught to judge" if spec.small else ""
    return [
        f"Win / tie / loss of {against} against each row, in questions; judge: {spec.label}{small}. Both "
        "orders of every pair are asked, and a win needs both; orders disagree and unparsable are over all "
        "four criteria, the former being part of the ties. TFLOPs: of the judge, for the whole line.",
    ]


def _data(table: TableData, row: str, dataset: str) -> str:
    return str((table.cells[row, dataset].description or {}).get("data_label", dataset))


def _records(
    table: TableData, planned: Mapping[tuple[str, str], Plan], row: str, dataset: str, results: Path
) -> list[Record] | None:
    """The records of a finished cell; None where it is not finished."""
    cell = planned[row, dataset]
    if table.cells[row, dataset].summary is None or not isinstance(cell, Cell):
        return None
    return list(read_records(cell.folder(results) / RECORDS_FILE))
