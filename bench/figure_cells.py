"""Which cells each figure shows; missing ones are run first where there is a session to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cell import CellRequest
from bench.cell_folder import finished_summary
from bench.errors import BenchError
from bench.figures import Curve, Drawn, distribution, pareto, trade_off
from bench.models.presets import resolve
from bench.records import RECORDS_FILE, read_records
from bench.schema import JsonValue
from bench.session import Session
from bench.sweep import plan_sweep, shared_runs
from bench.tables import TableData, collect, load_table, plan_table

PATIENCE = range(1, 9)
"""The t_p of PECAN's Figure 4."""
TABLE = "table1"
"""The table whose rows and data sets the figures show."""


class NothingFinishedError(BenchError):
    """None of the cells that a figure shows has been run."""

    def __init__(self, what: str, base: CellRequest) -> None:
        """what: the cells, as in ``any row of Table 1``; base: whose model and data were looked for."""
        self.lack = f"no finished cell of {what} with {base.model} on the {base.data} data"
        super().__init__(
            f"there is nothing to draw: {self.lack}. Leave out --render-only to run what is missing."
        )


@dataclass(frozen=True)
class _Found:
    """A finished cell."""

    folder: Path
    label: str
    """The data as tables name them."""
    summary: Mapping[str, JsonValue]


def draw(name: str, base: CellRequest, results: Path, session: Session | None = None) -> Drawn:
    """The figure ``pareto``, ``fig3`` or ``fig4`` from finished cells below ``results``.

    base: PECAN's request without a data set; it gives model, data, limit and seed. session: runs the
    cells that are missing; None: nothing is run. Raises NothingFinishedError when there is nothing to draw.
    """
    return {"pareto": _pareto, "fig3": _fig3, "fig4": _fig4}[name](base, results, session)


def _pareto(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    definition = load_table(TABLE)
    table = collect(definition, plan_table(definition, base), results, session.run if session else None)
    there = {dataset for (_, dataset), cell in table.cells.items() if cell.summary is not None}
    require_finished(bool(there), "any row of Table 1", base)
    shown = tuple(dataset for dataset in definition.datasets if dataset in there)
    return pareto(TableData(definition.model_copy(update={"datasets": shown}), table.cells))


def _fig3(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    counts, labels = {}, {}
    for dataset in load_table(TABLE).datasets:
        found = _patience(base, dataset, [1], results, session)
        if found:
            records = [r for r in read_records(found[0].folder / RECORDS_FILE) if r.error is None]
            counts[dataset], labels[dataset] = [len(record.context) for record in records], found[0].label
    require_finished(bool(counts), f"{base.method} with t_p=1", base)
    return distribution(counts, labels, f"Answered questions only. {reader_note(base)}")


def _fig4(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    curves = []
    for dataset in load_table(TABLE).datasets:
        found = _patience(base, dataset, PATIENCE, results, session)
        if found:
            summaries = tuple(cell.summary for cell in found)
            curves.append(Curve(dataset, found[0].label, tuple(PATIENCE), summaries))
    require_finished(bool(curves), f"{base.method} with every t_p from 1 to {PATIENCE[-1]}", base)
    return trade_off(curves, "f1", "t_p", reader_note(base))


def _patience(
    base: CellRequest, dataset: str, patience: Sequence[int], results: Path, session: Session | None
) -> list[_Found]:
    """PECAN's cell at every t_p, one search per question for all of them; empty: not all there."""
    cells = plan_sweep(replace(base, dataset=dataset), {"t_p": list(patience)})
    if session is not None:
        for group in shared_runs(cells):
            session.run_together([(found.cell, None) for found in group], sweep=f"t_p on {dataset}")
    found = []
    for point in cells:
        folder = point.cell.folder(results)
        summary = finished_summary(point.cell, folder)
        if summary is None:
            return []
        found.append(_Found(folder, point.cell.data.label, summary))
    return found


def require_finished(there: bool, what: str, base: CellRequest) -> None:
    """Raise NothingFinishedError, naming ``what`` was looked for, unless something is there."""
    if not there:
        raise NothingFinishedError(what, base)


def reader_note(base: CellRequest) -> str:
    """Who read and what, as a figure's note says it."""
    spec = resolve(base.model, dtype=base.dtype)
    small = ", a small stand-in trained by this project" if spec.small else ""
    return f"Reader: {spec.label}{small}. Data: {base.data}."
