"""The content of the report page, from finished cells. Missing results are reported, never computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError, DataError, ModelUnavailableError
from bench.figures.definition import Figure, list_figures
from bench.figures.drawing import Curve, trade_off
from bench.figures.make import NothingFinishedError, make_figure
from bench.metrics import METRIC_LABELS
from bench.report.cells import DataGroup, NamedCell, grouped, options_text
from bench.report.questions import Browser, Limits, browse
from bench.results.curves import CurvePoint, cell_label, curve_point
from bench.results.finished import find_finished
from bench.results.models import CellDescription
from bench.run.cell import Setting
from bench.run.cell_folder import with_method
from bench.tables.amortised import amortised_table
from bench.tables.caption import about_order, caption, footnotes
from bench.tables.cells import TableData, collect, plan_table
from bench.tables.definition import list_tables
from bench.tables.formats import Section, three_digits
from bench.tables.notes import notes_of
from bench.tables.order import order_agreements
from bench.tables.published import has_published, published
from bench.tables.render import columns, sections


@dataclass(frozen=True)
class TablePart:
    """A table of the papers, as text."""

    id: str
    title: str
    source: str
    """Paper and table whose layout it follows."""
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    caption: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FigurePart:
    """A figure with the values that it shows, or why it is missing."""

    id: str
    title: str
    about: str
    svg: bytes = b""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class CellLine:
    """One finished cell in the list of all cells."""

    data: str
    name: str
    model: str
    options: str
    n: int
    score: str
    """The data set's main metric, with its interval."""
    tflops: str
    failed: int
    truncated: int


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    facts: tuple[tuple[str, str], ...]
    tables: tuple[TablePart, ...]
    figures: tuple[FigurePart, ...]
    browser: Browser
    cells: tuple[CellLine, ...]
    notes: tuple[str, ...]
    """What is missing from the page, and why."""


def collect_report(
    setting: Setting, results: Path, own_files: Sequence[Path] = (), limits: Limits | None = None
) -> Report:
    """The report on the cells below ``results``.

    setting: of tables and figures; the question browser shows every finished cell, whatever its model and
    data. own_files: see :func:`bench.report.questions.browse`. Raises BenchError if no cell is finished.
    """
    cells = find_finished(results)
    if not cells.finished:
        raise BenchError(
            f"{results} has no finished cell ({cells.unfinished} unfinished), so there is nothing to report. "
            "Run some first, for example: bench table table1, or pass their folder: --results DIR."
        )
    notes: list[str] = []
    if cells.unfinished:
        notes.append(f"Unfinished cells of the results folder, not shown: {cells.unfinished}.")
    tables = _tables(setting, results, notes)
    groups = grouped(cells.finished, _rows(tables))
    browser = browse(groups, own_files, limits or Limits())
    return Report(
        facts=_facts(setting, len(cells.finished), groups),
        tables=tuple(_part(table) for table in tables),
        figures=(
            *(_figure(figure, setting, results) for figure in _figures()),
            *_sweeps(groups, setting),
        ),
        browser=browser,
        cells=tuple(_line(group, named) for group in groups for named in group.cells),
        notes=(*notes, *browser.notes),
    )


def _tables(setting: Setting, results: Path, notes: list[str]) -> list[TableData]:
    """The tables with at least one finished cell; the others are listed in ``notes``."""
    tables, empty = [], []
    for listed in list_tables():
        definition = listed.on(setting.data)
        if definition.kind not in ("cells", "amortised"):
            continue
        try:
            table = collect(definition, plan_table(definition, setting), results)
        except (DataError, ModelUnavailableError) as error:
            notes.append(f"{definition.id} is left out: {error}")
            continue
        if any(cell.summary is not None for cell in table.cells.values()):
            tables.append(table)
        else:
            empty.append(definition.id)
    if empty:
        limit = "" if setting.limit is None else f", first {setting.limit} questions"
        notes.append(
            f"Tables left out because none of their cells has been run (reader {setting.model}, "
            f"{setting.data} data{limit}): {', '.join(empty)}. To run one: bench table {empty[0]}"
        )
    return tables


def _rows(tables: Sequence[TableData]) -> dict[str, str]:
    """Cell id -> label of the first row that shows it, in the order of tables and rows."""
    rows: dict[str, str] = {}
    for table in tables:
        for row in table.definition.rows:
            for dataset in table.definition.datasets:
                description = table.cells[row.id, dataset].description
                if description is not None:
                    rows.setdefault(description.cell_id, row.label)
    return rows


def _part(table: TableData) -> TablePart:
    """The table restricted to data sets with a finished cell; the others are named below it."""
    definition, rows = table.definition, table.definition.rows
    run = [any(table.cells[row.id, name].summary is not None for row in rows) for name in definition.datasets]
    finished = tuple(name for name, has_cell in zip(definition.datasets, run, strict=True) if has_cell)
    empty = [name for name, has_cell in zip(definition.datasets, run, strict=True) if not has_cell]
    missing = (f"No cell has been run on {', '.join(empty)}.",) if empty else ()
    cells = {key: cell for key, cell in table.cells.items() if key[1] in finished}
    shown = TableData(definition.model_copy(update={"datasets": finished}), cells)
    if definition.kind == "amortised":
        plain = amortised_table(shown, published(definition.published_as))
        head, sentences, notes = plain.columns, plain.caption, plain.notes
        parts = [Section("", plain.rows)]
    else:
        values = published(definition.published_as) if has_published(definition.published_as) else {}
        about = notes_of(shown, values)
        head, sentences = tuple(columns(shown, values)), tuple(caption(about))
        parts = sections(shown, values)
        notes = (*about_order(order_agreements(shown, values)), *footnotes(about))
    return TablePart(
        id=definition.id,
        title=definition.title,
        source=definition.source,
        columns=head,
        sections=tuple(parts),
        caption=" ".join(sentences),
        notes=(*missing, *notes),
    )


def _figures() -> list[Figure]:
    """The figures of finished cells; the index cache may lack a training's history or a graph."""
    return [figure for figure in list_figures() if figure.kind not in ("history", "graph")]


def _figure(figure: Figure, setting: Setting, results: Path) -> FigurePart:
    name, title, about = figure.id, figure.title, figure.about
    try:
        drawn = make_figure(figure, setting, results)
    except NothingFinishedError as error:
        missing = f"Not drawn: {error.lack}. To run its cells: bench figure {name}"
        return FigurePart(name, title, about, missing=missing)
    except (DataError, ModelUnavailableError) as error:
        return FigurePart(name, title, about, missing=f"Not drawn: {error}")
    rows = tuple(tuple(_value(value) for value in row) for row in drawn.rows)
    return FigurePart(name, title, about, drawn.picture("svg"), drawn.header, rows)


MAX_CURVES = 12
"""Maximum number of panels in the figure of a data set's sweeps."""
MIN_POINTS = 3
"""Minimum number of cells of a sweep; fewer that differ only in one option are rows of tables."""


def _sweeps(groups: Sequence[DataGroup], setting: Setting) -> list[FigurePart]:
    """A figure for each data set and swept option, without curves that are already figures."""
    parts = []
    drawn = {
        (figure.option, _curve_label(figure), figure.values)
        for figure in list_figures()
        if figure.kind == "curve"
    }
    for number, group in enumerate(groups):
        curves: dict[str, list[tuple[CurvePoint, NamedCell]]] = {}
        for named in group.cells:
            point = curve_point(with_method(named.cell.description))
            if point is not None:
                curves.setdefault(point.key, []).append((point, named))
        by_option: dict[str, list[Curve]] = {}
        for points in curves.values():
            by_step = sorted(points, key=lambda item: item[0].step)
            point, steps = by_step[0][0], tuple(p.step for p, _ in by_step)
            if len(by_step) < MIN_POINTS or (point.option, point.label, steps) in drawn:
                continue
            reader = by_step[0][1].cell.description.model_label
            summaries = tuple(named.cell.summary for _, named in by_step)
            curve = Curve(group.label, f"{point.label} ({reader})", steps, summaries)
            by_option.setdefault(point.option, []).append(curve)
        for option, option_curves in sorted(by_option.items()):
            parts.append(_sweep(f"sweep-{number}-{option}", group, option, option_curves))
    return parts


def _curve_label(figure: Figure) -> str:
    """The label that :func:`curve_point` gives to the curve of a figure."""
    about = CellDescription(cell_id=figure.id, method=figure.method, dataset="any", config=figure.set)
    return cell_label(with_method(about))


def _sweep(name: str, group: DataGroup, option: str, curves: Sequence[Curve]) -> FigurePart:
    metric = group.cells[0].cell.description.metrics[0]
    shown = sorted(curves, key=lambda curve: curve.label)[:MAX_CURVES]
    note = f"Data: {group.label}."
    if len(shown) < len(curves):
        note += f" {len(shown)} of {len(curves)} curves."
    drawn = trade_off(shown, metric, option, note)
    title = f"Sweeps over {option} on {group.label}"
    about = (
        f"The finished cells of a panel differ only in {option}. Solid line: score; dashed line: cost per "
        "question."
    )
    rows = tuple(
        (curve.label, *(_value(value) for value in row[1:]))
        for curve, curve_rows in zip(shown, _split(drawn.rows, shown), strict=True)
        for row in curve_rows
    )
    svg = drawn.picture("svg")
    return FigurePart(name, title, about, svg, ("curve", *drawn.header[1:]), rows)


def _split(
    rows: Sequence[tuple[object, ...]], curves: Sequence[Curve]
) -> Iterator[Sequence[tuple[object, ...]]]:
    """The rows of each curve; those of one curve are adjacent."""
    at = 0
    for curve in curves:
        yield rows[at : at + len(curve.steps)]
        at += len(curve.steps)


def _value(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(group: DataGroup, named: NamedCell) -> CellLine:
    description, summary = named.cell.description, named.cell.summary
    metric = description.metrics[0]
    interval = summary.interval(metric)
    score = "no reference answers"
    if interval is not None:
        score = f"{METRIC_LABELS.get(metric, metric)} {100 * interval.mean:.1f}"
    if interval is not None and interval.low is not None and interval.high is not None:
        score += f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    return CellLine(
        data=group.label,
        name=named.name,
        model=description.model_label,
        options=options_text(named.cell),
        n=summary.n,
        score=score,
        tflops=three_digits(summary.tflops),
        failed=summary.n_failed,
        truncated=summary.n_truncated,
    )


def _facts(setting: Setting, cells: int, groups: Sequence[DataGroup]) -> tuple[tuple[str, str], ...]:
    """Label and value pairs for the top of the page."""
    described = [named.cell.description for group in groups for named in group.cells]
    small = " (a small stand-in trained by this project)"
    readers = sorted({d.model_label + (small if d.model_small else "") for d in described})
    limit = "all questions" if setting.limit is None else f"the first {setting.limit} questions of each set"
    return (
        ("Cells", f"{cells} finished, on {', '.join(group.label for group in groups)}"),
        ("Readers", ", ".join(readers)),
        ("Tables and figures", f"reader {setting.model}, {setting.data} data, {limit}"),
    )
