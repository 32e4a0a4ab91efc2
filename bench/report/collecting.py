"""Everything that the report page shows, from finished cells; what is not there is said, never computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.amortised import amortised_table
from bench.cell import CellRequest
from bench.errors import BenchError, DataError, ModelUnavailableError
from bench.figure_cells import PATIENCE, NothingFinishedError, draw
from bench.figures import Curve, trade_off
from bench.published import published
from bench.rendering import METRIC_LABELS, caption, columns, footnotes, sections, three_digits
from bench.report.cells import DataGroup, NamedCell, find_finished, grouped, options_text
from bench.report.picture import inline_svg
from bench.report.questions import Browser, Limits, browse
from bench.table_formats import Section
from bench.tables import TableData, collect, list_tables, plan_table
from bench.tracking.run_content import CurvePoint, curve_point

FIGURES = {
    "pareto": (
        "Score over cost",
        "Each marker is a row of Table 1: higher is better, further left is cheaper. The line joins the "
        "methods that no other beats at their cost or less: the Pareto front.",
    ),
    "fig4": (
        "Score and cost over the patience",
        "PECAN stops at the t_p-th Yes of the model. A larger t_p reads more: the dashed line is what that "
        "costs, the solid one what it brings; stop where the solid line flattens.",
    ),
    "fig3": (
        "How far a search goes",
        "How many nodes PECAN read, at t_p = 1, before it stopped, question by question: a wide spread "
        "means that it reads more where more is needed.",
    ),
}
"""Figure -> its heading, and how to read it."""


@dataclass(frozen=True)
class TablePart:
    """A table of the papers, as text."""

    id: str
    title: str
    source: str
    """Paper and table whose layout it has."""
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    caption: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FigurePart:
    """A figure with the values that it shows, or why it is not there."""

    id: str
    title: str
    about: str
    svg: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class CellLine:
    """One finished cell in the list of all."""

    data: str
    name: str
    model: str
    options: str
    n: int
    score: str
    """Of the data set's main metric, with its interval."""
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
    """What is not on the page, and why."""


def collect_report(
    base: CellRequest, results: Path, own_files: Sequence[Path] = (), limits: Limits | None = None
) -> Report:
    """The report on the cells below ``results``.

    base: PECAN's request without a data set; it gives model, data, limit and seed of tables and figures.
    The questions are of every finished cell, whatever its model and data. own_files: see
    :func:`bench.report.questions.browse`. Raises BenchError when no cell is finished.
    """
    found = find_finished(results)
    if not found.finished:
        raise BenchError(
            f"{results} has no finished cell ({found.unfinished} unfinished), so there is nothing to report. "
            "Run some first, for example: bench table table1, or name their folder with --results DIR."
        )
    notes: list[str] = []
    if found.unfinished:
        notes.append(f"Cells of the results folder that are not finished and not shown: {found.unfinished}.")
    tables = _tables(base, results, notes)
    groups = grouped(found.finished, _rows(tables))
    browser = browse(groups, own_files, limits or Limits())
    return Report(
        facts=_facts(base, len(found.finished), groups),
        tables=tuple(_part(table) for table in tables),
        figures=(*(_figure(name, base, results) for name in FIGURES), *_sweeps(groups, base)),
        browser=browser,
        cells=tuple(_line(group, named) for group in groups for named in group.cells),
        notes=(*notes, *browser.notes),
    )


def _tables(base: CellRequest, results: Path, notes: list[str]) -> list[TableData]:
    """The tables of which a cell exists; the others are noted."""
    tables, empty = [], []
    for listed in list_tables():
        definition = listed.on(base.data)
        if definition.kind not in ("cells", "amortised"):
            continue
        try:
            table = collect(definition, plan_table(definition, base), results)
        except (DataError, ModelUnavailableError) as error:
            notes.append(f"{definition.id} is left out: {error}")
            continue
        if any(cell.summary is not None for cell in table.cells.values()):
            tables.append(table)
        else:
            empty.append(definition.id)
    if empty:
        limit = "" if base.limit is None else f", first {base.limit} questions"
        notes.append(
            f"Tables left out, as none of their cells has been run (reader {base.model}, {base.data} data"
            f"{limit}): {', '.join(empty)}. To run one: bench table {empty[0]}"
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
                    rows.setdefault(str(description["cell_id"]), row.label)
    return rows


def _part(table: TableData) -> TablePart:
    """The table's data sets of which a cell exists; the others are named below it."""
    definition, rows = table.definition, table.definition.rows
    run = [any(table.cells[row.id, name].summary is not None for row in rows) for name in definition.datasets]
    there = tuple(name for name, found in zip(definition.datasets, run, strict=True) if found)
    empty = [name for name, found in zip(definition.datasets, run, strict=True) if not found]
    noted = (f"No cell has been run on {', '.join(empty)}.",) if empty else ()
    cells = {key: cell for key, cell in table.cells.items() if key[1] in there}
    shown = TableData(definition.model_copy(update={"datasets": there}), cells)
    if definition.kind == "amortised":
        plain = amortised_table(shown)
        head, said, notes = plain.columns, plain.caption, plain.notes
        parts = [Section("", plain.rows)]
    else:
        values = published(definition.id)
        head, said = tuple(columns(shown, values)), tuple(caption(shown, values))
        parts, notes = sections(shown, values), tuple(footnotes(shown))
    return TablePart(
        id=definition.id,
        title=definition.title,
        source=definition.source,
        columns=head,
        sections=tuple(parts),
        caption=" ".join(said),
        notes=(*noted, *notes),
    )


def _figure(name: str, base: CellRequest, results: Path) -> FigurePart:
    title, about = FIGURES[name]
    try:
        drawn = draw(name, base, results)
    except NothingFinishedError as error:
        missing = f"Not drawn: {error.lack}. To run what it shows: bench figure {name}"
        return FigurePart(name, title, about, missing=missing)
    except (DataError, ModelUnavailableError) as error:
        return FigurePart(name, title, about, missing=f"Not drawn: {error}")
    rows = tuple(tuple(_value(value) for value in row) for row in drawn.rows)
    return FigurePart(name, title, about, inline_svg(drawn.picture("svg"), name, title), drawn.header, rows)


MOST_CURVES = 12
"""Panels of the figure of a data set's sweeps; of more, the first are drawn."""
LEAST_POINTS = 3
"""Cells that differ in their step alone and are fewer are rows of tables, no sweep."""


def _sweeps(groups: Sequence[DataGroup], base: CellRequest) -> list[FigurePart]:
    """A figure for each data set and option that was swept; Figure 4's own curve is not drawn again."""
    parts = []
    for number, group in enumerate(groups):
        curves: dict[str, list[tuple[CurvePoint, NamedCell]]] = {}
        for named in group.cells:
            description = named.cell.description
            point = curve_point(str(description["method"]), description)
            if point is not None:
                curves.setdefault(point.key, []).append((point, named))
        by_option: dict[str, list[Curve]] = {}
        for points in curves.values():
            found = sorted(points, key=lambda item: item[0].step)
            point, steps = found[0][0], tuple(p.step for p, _ in found)
            label = point.name.partition(": ")[2]
            if len(found) < LEAST_POINTS or (label == base.method and steps == tuple(PATIENCE)):
                continue
            reader = str(found[0][1].cell.description["model_label"])
            summaries = tuple(named.cell.summary for _, named in found)
            curve = Curve(group.label, f"{label} ({reader})", steps, summaries)
            by_option.setdefault(point.option, []).append(curve)
        for option, several in sorted(by_option.items()):
            parts.append(_sweep(f"sweep-{number}-{option}", group, option, several))
    return parts


def _sweep(name: str, group: DataGroup, option: str, curves: Sequence[Curve]) -> FigurePart:
    metric = str(group.cells[0].cell.description["metrics"][0])
    shown = sorted(curves, key=lambda curve: curve.label)[:MOST_CURVES]
    note = f"Data: {group.label}."
    if len(shown) < len(curves):
        note += f" {len(shown)} of {len(curves)} curves."
    drawn = trade_off(shown, metric, option, note)
    title = f"Sweeps over {option} on {group.label}"
    about = (
        f"The finished cells of a panel differ in {option} alone: the dashed line is what a question costs, "
        "the solid one what that brings."
    )
    rows = tuple(
        (curve.label, *(_value(value) for value in row[1:]))
        for curve, found in zip(shown, _split(drawn.rows, shown), strict=True)
        for row in found
    )
    svg = inline_svg(drawn.picture("svg"), name, title)
    return FigurePart(name, title, about, svg, ("curve", *drawn.header[1:]), rows)


def _split(
    rows: Sequence[tuple[object, ...]], curves: Sequence[Curve]
) -> Iterator[Sequence[tuple[object, ...]]]:
    """The rows of each curve, which follow one another."""
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
    metric = description["metrics"][0]
    interval = summary["metrics"][metric]
    score = f"{METRIC_LABELS.get(metric, metric)} {100 * interval['mean']:.1f}"
    if interval["low"] is not None:
        score += f" [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
    return CellLine(
        data=group.label,
        name=named.name,
        model=str(description["model_label"]),
        options=options_text(named.cell),
        n=summary["n"],
        score=score,
        tflops=three_digits(summary["query_flops"]["mean"] / 1e12),
        failed=summary["n_failed"],
        truncated=summary["n_truncated"],
    )


def _facts(base: CellRequest, cells: int, groups: Sequence[DataGroup]) -> tuple[tuple[str, str], ...]:
    """Label and value pairs above everything."""
    described = [named.cell.description for group in groups for named in group.cells]
    small = " (a small stand-in trained by this project)"
    readers = sorted({str(d["model_label"]) + (small if d["model_small"] else "") for d in described})
    limit = "all questions" if base.limit is None else f"the first {base.limit} questions of each set"
    return (
        ("Cells", f"{cells} finished, on {', '.join(group.label for group in groups)}"),
        ("Readers", ", ".join(readers)),
        ("Tables and figures", f"reader {base.model}, {base.data} data, {limit}"),
    )
