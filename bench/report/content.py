"""The content of the report page, from finished cells. Missing results are reported, never computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.data.own import NOT_PATHS
from bench.errors import BenchError, DataError, ModelUnavailableError
from bench.figures.definition import Figure, list_figures
from bench.figures.make import NothingFinishedError, make_figure
from bench.report.cells import DataGroup, grouped
from bench.report.figure_part import FigurePart, drawn_part
from bench.report.overview import planes
from bench.report.questions import Browser, Limits, browse
from bench.report.settings import Shown, settings_run
from bench.results.finished import FinishedCell, find_finished
from bench.results.models import Interval
from bench.run.cell import CellRequest
from bench.run.fitness import caution
from bench.run.session import Session
from bench.tables.amortised import amortised_table
from bench.tables.cells import Plan, TableData, plan_table, table_cells
from bench.tables.definition import TableDefinition, list_tables
from bench.tables.formats import TextTable
from bench.tables.published import has_published, published
from bench.tables.render import render


@dataclass(frozen=True)
class TablePart:
    """A table of the papers."""

    text: TextTable
    """Its caption is without the sentences that are those of every table on the page."""
    source: str
    """Paper and table whose layout it follows."""
    finished: int
    """Cells with a value, of ``planned``."""
    planned: int


@dataclass(frozen=True)
class Run:
    """One finished cell, in the list of all."""

    data: str
    name: str
    cell: FinishedCell

    @property
    def metric(self) -> str:
        """The data set's main metric."""
        return self.cell.description.metrics[0]

    @property
    def score(self) -> Interval | None:
        """The mean of the main metric, 0..1; None where no question has a reference answer."""
        return self.cell.summary.interval(self.metric)


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    facts: tuple[tuple[str, str], ...]
    overview: tuple[FigurePart, ...]
    """Score over cost of what was run, a picture for each data set, with what it says."""
    runs: tuple[Run, ...]
    """Every finished cell, by data and then by score, the highest first."""
    warnings: tuple[str, ...]
    """What makes scores on the page meaningless."""
    caption: tuple[str, ...]
    """Sentences that hold for every table."""
    tables: tuple[TablePart, ...]
    figures: tuple[FigurePart, ...]
    browser: Browser
    notes: tuple[str, ...]
    """What is missing from the page, and why."""


def collect_report(
    setting: CellRequest | None,
    results: Path,
    own_files: Sequence[Path] = (),
    limits: Limits | None = None,
    datasets: Sequence[str] = (),
) -> Report:
    """The report on the cells below ``results``.

    setting: of tables and figures; None: those that were run (:func:`bench.report.settings.settings_run`).
    The list of runs and the question browser show every finished cell, whatever its model and data.
    own_files: see :func:`bench.report.questions.browse`. datasets: only cells on these; empty: on all.
    Raises BenchError if no cell is finished.
    """
    scan, session = find_finished(results), Session(results, compute=False)
    cells = [cell for cell in scan.finished if not datasets or cell.description.dataset in datasets]
    if not cells:
        on = f" on {', '.join(datasets)}" if datasets else ""
        raise BenchError(
            f"{results} has no finished cell{on} ({scan.unfinished} unfinished), so there is nothing to "
            "report. Run some first, for example: bench table table1, or pass their folder: --results DIR."
        )
    notes: list[str] = []
    if scan.unfinished:
        notes.append(f"Unfinished cells of the results folder, not shown: {scan.unfinished}.")
    shown = settings_run(cells) if setting is None else [Shown(setting, tuple(datasets))]
    of_papers = shown if setting else [one for one in shown if one.setting.data in NOT_PATHS]
    tables = _tables(shown, session, notes)
    groups = grouped(cells, _rows(tables))
    browser = browse(groups, own_files, limits or Limits())
    parts = [_part(table) for table in tables]
    captions = [part.text.caption for part in parts]
    everywhere = [text for text in captions[0] if all(text in own for own in captions)] if parts[1:] else []
    return Report(
        facts=_facts(shown, len(cells), groups),
        overview=tuple(planes(groups)),
        runs=tuple(_runs(groups)),
        warnings=tuple(_warnings(groups)),
        caption=tuple(everywhere),
        tables=tuple(_without(part, everywhere) for part in parts),
        figures=tuple(_figures(of_papers, session)),
        browser=browser,
        notes=(*notes, *browser.notes),
    )


def _tables(shown: Sequence[Shown], session: Session, notes: list[str]) -> list[TableData]:
    """The tables with at least one finished cell; the others are listed in ``notes``.

    A table that repeats the published values of another is left out where that one has all its cells.
    """
    tables: list[TableData] = []
    empty: list[str] = []
    for definition in list_tables():
        if definition.kind not in ("cells", "amortised"):
            continue
        try:
            table = _collected(definition, shown, session)
        except (DataError, ModelUnavailableError) as error:
            notes.append(f"{definition.id} is left out: {error}")
            continue
        if not _finished(table):
            empty.append(definition.id)
        elif not any(
            other.definition.id == definition.values_of and _finished(table) <= _finished(other)
            for other in tables
        ):
            tables.append(table)
    if empty:
        of = "; ".join(_setting_text(one) for one in shown) or "no data"
        notes.append(
            f"Tables left out because none of their cells has been run ({of}): {', '.join(empty)}. "
            f"To run one: bench table {empty[0]}{_flags(shown)}"
        )
    return tables


def _finished(table: TableData) -> set[str]:
    """The ids of its finished cells."""
    return {cell.finished.id for cell in table.cells.values() if cell.finished is not None}


def _collected(definition: TableDefinition, shown: Sequence[Shown], session: Session) -> TableData:
    """The table on the data of all settings; of two data sets with one name only the first is shown."""
    planned: dict[tuple[str, str], Plan] = {}
    datasets: list[str] = []
    for one in shown:
        on = definition.on(one.setting.data).datasets
        if one.datasets:
            own = one.setting.data not in NOT_PATHS
            on = tuple(name for name in one.datasets if own or name in on)
        fresh = tuple(name for name in on if name not in datasets)
        datasets += fresh
        planned |= plan_table(definition.model_copy(update={"datasets": fresh}), one.setting)
    return table_cells(definition.model_copy(update={"datasets": tuple(datasets)}), planned, session)


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
        text = amortised_table(shown, published(definition.published_as))
    else:
        values = published(definition.published_as) if has_published(definition.published_as) else {}
        text = render(shown, values)
    # The first sentence of a caption repeats title and source.
    text = replace(text, caption=text.caption[1:], notes=(*missing, *text.notes))
    summaries = [cell.summary for cell in cells.values() if cell.summary is not None]
    return TablePart(text, definition.source, len(summaries), len(cells))


def _without(part: TablePart, sentences: Sequence[str]) -> TablePart:
    own = tuple(sentence for sentence in part.text.caption if sentence not in sentences)
    return replace(part, text=replace(part.text, caption=own))


def _figures(shown: Sequence[Shown], session: Session) -> list[FigurePart]:
    """The papers' figures of finished cells; of two that show the same values only the first."""
    parts: list[FigurePart] = []
    for figure in list_figures():
        if figure.kind in ("history", "graph"):  # the index cache may lack a training's history or a graph
            continue
        part = _figure(figure, shown, session)
        if part.missing or all(part.rows != other.rows for other in parts):
            parts.append(part)
    return parts


def _figure(figure: Figure, shown: Sequence[Shown], session: Session) -> FigurePart:
    """The figure in the first setting that it has finished cells of."""
    name, title, about = figure.id, figure.title, figure.about
    missing = "no data"
    for one in shown:
        try:
            return drawn_part(name, title, about, make_figure(figure, one.setting, session))
        except NothingFinishedError as error:
            missing = f"{error.lack}. To run its cells: bench figure {name}"
        except (DataError, ModelUnavailableError) as error:
            missing = str(error)
    return FigurePart(name, title, about, missing=missing)


def _runs(groups: Sequence[DataGroup]) -> Iterator[Run]:
    for group in groups:
        runs = [Run(group.label, named.name, named.cell) for named in group.cells]
        yield from sorted(runs, key=lambda run: -1.0 if run.score is None else run.score.mean, reverse=True)


def _warnings(groups: Sequence[DataGroup]) -> Iterator[str]:
    """One line for all data that a small model read without being able to."""
    labels, models = [], []
    for group in groups:
        unfit = [name for named in group.cells for name in named.cell.description.unfit_models]
        models += unfit
        labels += [group.label] if unfit else []
    if models:
        yield f"{', '.join(labels)}: {caution(tuple(dict.fromkeys(models)))}"


def _facts(shown: Sequence[Shown], cells: int, groups: Sequence[DataGroup]) -> tuple[tuple[str, str], ...]:
    """Label and value pairs for the top of the page."""
    described = [named.cell.description for group in groups for named in group.cells]
    small = " (a small stand-in trained by this project)"
    readers = sorted({d.model_label + (small if d.model_small else "") for d in described})
    return (
        ("Cells", f"{cells} finished, on {', '.join(group.label for group in groups)}"),
        ("Readers", ", ".join(readers)),
        ("Tables and figures", "; ".join(map(_setting_text, shown)) or "none"),
    )


def _flags(shown: Sequence[Shown]) -> str:
    """What a command adds to show the first setting."""
    if not shown:
        return ""
    setting, default = shown[0].setting, CellRequest()
    named = {name: getattr(setting, name) for name in ("model", "data", "limit", "seed")}
    return "".join(f" --{name} {value}" for name, value in named.items() if value != getattr(default, name))


def _setting_text(shown: Shown) -> str:
    setting = shown.setting
    limit = "all questions" if setting.limit is None else f"the first {setting.limit} questions of each set"
    data = f"{setting.data} data" if setting.data in NOT_PATHS else Path(setting.data).name
    names = f" ({', '.join(shown.datasets)})" if shown.datasets and setting.data in NOT_PATHS else ""
    return f"reader {setting.model}, {data}{names}, {limit}"
