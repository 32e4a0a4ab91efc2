"""Figures from finished cells, one function per kind; with a session, missing cells are run first."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.errors import BenchError, ConfigError, UnknownNameError
from bench.figures.calibration import calibration_of
from bench.figures.definition import Figure, FigureKind
from bench.figures.drawing import (
    Drawn,
    Panels,
    bars,
    calibrations,
    distribution,
    histories_over_epochs,
    trade_off,
    two_levels,
)
from bench.figures.pareto import BARS, pareto
from bench.metrics.statistics import Interval
from bench.models.spec import resolve
from bench.results.finished import FinishedCell
from bench.results.models import Summary
from bench.run.cell import Cell, CellRequest, plan_cell, shared_runs
from bench.run.question_runner import prepare, stored_index
from bench.run.session import Session
from bench.run.training_plan import NoTrainingDataError
from bench.schema import JsonValue
from bench.sweeps.grid import plan_sweep
from bench.tables.cells import TableData, plan_table, table_cells
from bench.tables.definition import load_table
from bench.tables.export import exported_table
from bench.tables.formats import three_digits
from bench.tables.published import published

log = logging.getLogger(__name__)


class NothingFinishedError(BenchError):
    """None of a figure's cells is finished."""

    def __init__(self, what: str, setting: CellRequest) -> None:
        """what: the cells, as in ``any row of table1``; setting: the model and data in question."""
        super().__init__(
            f"there is nothing to draw: no finished cell of {what} with {setting.model} on the {setting.data}"
            " data. Leave out --render-only to run the missing cells."
        )


def make_figure(
    figure: Figure, setting: CellRequest, session: Session, exported: Path | None = None
) -> Drawn:
    """The figure from finished cells; missing ones run first unless the session runs nothing.

    exported: a folder of :mod:`bench.tables.export` to read the cells from instead.
    Raises NothingFinishedError if there is nothing to draw, ConfigError for an export with a figure that
    does not show the rows of a table.
    """
    if exported is not None:
        if figure.kind != "pareto":
            raise ConfigError(f"{figure.id}: --from is for figures of a table's rows, such as pareto.")
        return _pareto(figure, setting, session, exported)
    if figure.metric and not figure.on(setting.data):
        raise ConfigError(f"{figure.id}: no data set that it shows has the metric {figure.metric}.")
    drawn = _DRAWERS[figure.kind](figure, setting, session)
    if session.so_far:
        drawn.figure.text(0.5, 1.02, f"unfinished: {session.so_far}", ha="center", color="tab:red")
    return drawn


def _pareto(figure: Figure, setting: CellRequest, session: Session, exported: Path | None = None) -> Drawn:
    """A table's rows, score over cost, on the data sets with a finished cell."""
    data = str(exported) if exported and figure.datasets else setting.data  # an export may have any set
    definition = load_table(figure.table).on(data, figure.datasets)
    if exported is not None:
        table = exported_table(definition, exported)
    else:
        table = table_cells(definition, plan_table(definition, setting), session)
    drawn = rows_on_a_plane(table)
    if drawn is None:
        raise NothingFinishedError(f"any row of {figure.table}", setting)
    return drawn


def rows_on_a_plane(
    table: TableData,
    dollars: Mapping[tuple[str, str], Interval] | None = None,
    unit: str = "TFLOPs per question",
    bars: str = BARS,
) -> Drawn | None:
    """The rows of a table, its first score over cost, on the data sets with a cell; None without any.

    dollars, unit, bars: the cost, if it is not in TFLOPs (:func:`bench.figures.pareto.pareto`).
    """
    shown = tuple(of for of in table.definition.datasets if any(cell.summary for cell in table.of(of)))
    if not shown:
        return None
    definition = table.definition.model_copy(update={"datasets": shown})
    printed = published(definition.published_as) if definition.printed else {}
    return pareto(TableData(definition, table.cells), printed, dollars=dollars, unit=unit, bars=bars)


def _curve(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    panels = []
    for dataset in figure.on(setting.data):
        cells = _finished(figure, {figure.option: figure.values}, dataset, setting, session)
        summaries = [finished.summary for _, finished in cells if finished is not None]
        if cells and len(summaries) == len(cells) and all(one.n_scored for one in summaries):
            by_value = dict(zip(figure.values, summaries, strict=True))
            panels.append((dataset, cells[0][0].data.label, by_value))
    values = ", ".join(map(str, figure.values))
    _require(bool(panels), f"{figure.method} with every {figure.option} of {values}", setting)
    axis, note = figure.axis or figure.option, reader_note(setting)
    if figure.index_cost:
        costs = " ".join(_index_cost(dataset, by_value, axis) for dataset, _, by_value in panels)
        note = f"TFLOPs are per question. {costs} {note}"
    return trade_off(panels, figure.metric, axis, note)


def _index_cost(dataset: str, by_value: Mapping[int, Summary], axis: str) -> str:
    """A sentence on the index cost of a curve's first and last cell."""
    (least, first), (most, last) = (list(by_value.items())[at] for at in (0, -1))
    return (
        f"{dataset}: index and training cost {three_digits(first.index_tflops)} TFLOPs per document set with "
        f"{least} {axis}, {three_digits(last.index_tflops)} with {most}."
    )


def _histogram(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    panels = []
    for dataset in figure.on(setting.data):
        for cell, finished in _finished(figure, {}, dataset, setting, session):
            if finished is not None:
                hops = {one.id: one.metadata.get("hops") for one in cell.data.examples}
                counts: dict[int, list[int]] = defaultdict(list)
                for record in finished.records:
                    if record.error is None:
                        hop = hops[record.example_id]
                        counts[hop if isinstance(hop, int) else 0].append(len(record.context))
                panels.append((dataset, cell.data.label, counts))
    options = " ".join(f"{key}={value}" for key, value in figure.set.items())
    _require(bool(panels), f"{figure.method} {options}".strip(), setting)
    axis = figure.axis or "passages retrieved"
    return distribution(panels, f"Answered questions only. {reader_note(setting)}", axis)


def _bars(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    panels = []
    for dataset, label, variants in _panels(figure, setting, session):
        scored = {name: done.summary for name, (_, done) in variants.items() if done.summary.n_scored}
        panels += [(dataset, label, scored)] if scored else []
    _require(bool(panels), f"{_any_variant(figure)}, with references,", setting)
    return bars(panels, figure.metric, reader_note(setting))


def _history(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    panels = [
        (dataset, label, {name: _epochs(cell, session) for name, (cell, _) in variants.items()})
        for dataset, label, variants in _panels(figure, setting, session)
    ]
    return histories_over_epochs(panels, reader_note(setting))


def _graph(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    from bench.models.model_set import LoadedModels

    store, panels = session.indexes, []
    for dataset in figure.on(setting.data):
        cell = plan_cell(setting.of(figure.method, dataset, figure.set))
        examples = {example.id: example for example in cell.data.examples}
        name = figure.example or next(iter(examples))
        if name not in examples:
            raise UnknownNameError(f"example of {cell.data.label}", name, examples)
        documents = examples[name].documents
        stored = stored_index(cell, store, documents)
        index = None if stored is None else stored.index
        if index is None and session.compute:
            ready = asyncio.run(prepare(cell, store, LoadedModels(cell.roles), [documents]))
            index = ready.indexes[documents.id]
        if index is not None:
            view = cell.method.graph_view(index, documents)
            if view is None:
                raise ConfigError(f"{figure.id}: the method {figure.method} keeps no graph.")
            panels.append((dataset, f"{cell.data.label}, {name}", view))
    _require(bool(panels), f"{figure.method}, whose graph would be drawn,", setting)
    return two_levels(panels, figure.least, reader_note(setting))


def _calibration(figure: Figure, setting: CellRequest, session: Session) -> Drawn:
    panels = []
    for dataset, label, variants in _panels(figure, setting, session):
        steps = {name: calibration_of(done, cell.data.examples) for name, (cell, done) in variants.items()}
        asked = {name: calibration for name, calibration in steps.items() if calibration.steps}
        panels += [(dataset, label, asked)] if asked else []
    _require(bool(panels), _any_variant(figure), setting)
    return calibrations(panels, [variant.label for variant in figure.variants], reader_note(setting))


_DRAWERS: Mapping[FigureKind, Callable[[Figure, CellRequest, Session], Drawn]] = {
    "pareto": _pareto,
    "curve": _curve,
    "histogram": _histogram,
    "bars": _bars,
    "history": _history,
    "graph": _graph,
    "calibration": _calibration,
}


def _epochs(cell: Cell, session: Session) -> Sequence[Mapping[str, float]]:
    """The epochs of the training behind a finished cell."""
    from bench.models.model_set import LoadedModels

    models = LoadedModels(cell.roles)
    learned = asyncio.run(prepare(cell, session.indexes, models, (), compute=session.compute)).learned
    history: Sequence[Mapping[str, float]] = learned.data.get("history", ()) if learned else ()
    if not history:
        raise BenchError(
            f"{cell.identity.folder}: there is no loss to draw: its method learned nothing from these "
            "documents, or stores no history. Draw a figure of another kind."
        )
    return history


def _finished(
    figure: Figure,
    grid: Mapping[str, Sequence[JsonValue]],
    dataset: str,
    setting: CellRequest,
    session: Session,
    options: Mapping[str, JsonValue] | None = None,
) -> list[tuple[Cell, FinishedCell | None]]:
    """The figure's cells on a data set, each with its finished cell or None.

    Cells that share one run per question run together. Empty if the data have no training part.
    """
    request = setting.of(figure.method, dataset, {**figure.set, **(options or {})})
    try:
        cells = [point.cell for point in plan_sweep(request, grid)]
    except NoTrainingDataError as error:
        log.warning("%s: left out: %s", dataset, error)
        return []
    name = f"{', '.join(grid)} on {dataset}" if grid else None
    finished = session.run_all(shared_runs(cells), sweep=name)
    return [(cell, finished.get(cell.identity.cell_id)) for cell in cells]


def _panels(
    figure: Figure, setting: CellRequest, session: Session
) -> Panels[dict[str, tuple[Cell, FinishedCell]]]:
    """Variant -> planned and finished cell, for data sets with a finished variant.

    Raises NothingFinishedError if there is none.
    """
    panels = []
    for dataset in figure.on(setting.data):
        finished = {
            variant.label: (cell, done)
            for variant in figure.variants
            for cell, done in _finished(figure, {}, dataset, setting, session, variant.set)
            if done is not None
        }
        if finished:
            label = next(cell.data.label for cell, _ in finished.values())
            panels.append((dataset, label, finished))
    _require(bool(panels), _any_variant(figure), setting)
    return panels


def _any_variant(figure: Figure) -> str:
    return f"{figure.method}, {' or '.join(variant.label for variant in figure.variants)}"


def _require(finished: bool, cells: str, setting: CellRequest) -> None:
    if not finished:
        raise NothingFinishedError(cells, setting)


def reader_note(setting: CellRequest) -> str:
    """Reader and data, for a figure's note."""
    spec = resolve(setting.model, dtype=setting.dtype)
    small = ", a small stand-in trained by this project" if spec.small else ""
    return f"Reader: {spec.label}{small}. Data: {setting.data}."
