"""Score over cost: the rows of a table as points, and the front that nothing beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from matplotlib.lines import Line2D

from bench.figures.drawing import (
    DARK,
    LIGHT,
    Drawn,
    add_note,
    colours_of,
    counted,
    figure_of,
    log_axis,
    marker_of,
    spread,
    styled,
)
from bench.metrics import label_of
from bench.metrics.statistics import Interval
from bench.results.models import Summary
from bench.tables.caption import about_reader
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import TableDefinition
from bench.tables.published import PublishedValues

BARS = "Bars: 95 %, documents resampled."
LINE, NARROWEST = 0.2, 5.4
"""Inches of a line of the legend, and of two of its columns."""


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (cost, score) points that no other point dominates, by ascending cost.

    A point dominates if it is better at no higher cost, or cheaper at no lower score; of equal points the
    first one is on the front.
    """
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if not front or points[i][1] > points[front[-1]][1] + 1e-12:
            front.append(i)
    return front


@dataclass(frozen=True)
class _Point:
    """A finished row in a panel."""

    row: int
    """Position in the table, for marker and colour."""
    cell: TableCell
    tflops: float
    cost: Interval
    """As drawn: TFLOPs, or relative to the reference row, or dollars."""
    score: Interval
    questions: int
    paper: tuple[float, float] | None
    """Published relative cost and score."""


@styled
def pareto(
    table: TableData,
    published: PublishedValues | None = None,
    *,
    explained: bool = True,
    dollars: Mapping[tuple[str, str], Interval] | None = None,
    unit: str = "TFLOPs per question",
    bars: str = BARS,
) -> Drawn:
    """All rows of a table, one panel per data set: score over cost, with intervals and the Pareto front.

    Costs are relative to the table's reference row (``ratio_to``) if that row has a cell; then the published
    values are shown too, in grey and by the same markers. explained: whether the picture says how to read
    it; without, only who read. dollars: (row id, data set) -> the cost instead of TFLOPs, with what it can be
    at least and at most; unit: of costs that are not relative; bars: what they span, and whose the costs are.
    """
    definition, metric = table.definition, table.definition.metrics[0]
    label = definition.reference.label if definition.reference else ""
    colours = colours_of([row.method for row in definition.rows])
    figure, axes = figure_of(len(definition.datasets))
    values: list[tuple[object, ...]] = []
    named: dict[str, tuple[int, str]] = {}
    in_grey = left_out = False
    for ax, dataset in zip(axes, definition.datasets, strict=True):
        points, relative, some = _points(table, dataset, published or {}, dollars)
        left_out |= some
        front = pareto_front([(point.cost.mean, point.score.mean) for point in points])
        steps = [(points[i].cost.mean, points[i].score.mean) for i in front]
        if steps:
            xs, ys = zip(*steps, strict=True)
            ax.step(xs, ys, where="post", color=DARK, linewidth=1.2, linestyle=":", zorder=2.5)
        for position, point in enumerate(points):
            x, y = point.cost.mean, point.score.mean
            ax.errorbar(x, y, spread(point.score), spread(point.cost), fmt="none", ecolor=LIGHT,
                        elinewidth=0.8, zorder=2)  # fmt: skip
            if point.paper is not None:
                in_grey = True
                ax.plot(*point.paper, **marker_of(point.row, LIGHT), zorder=2)
            mark = named.setdefault(point.cell.row.label, (point.row, colours[point.cell.row.method]))
            ax.plot(x, y, zorder=3, label=point.cell.row.label, **marker_of(*mark, filled=position in front))
            values.append(
                (
                    *(dataset, point.cell.row.id, point.tflops, y),
                    *(point.score.low, point.score.high, int(position in front)),
                    *(x if relative else None, *(point.paper or (None, None))),
                )
            )
        data = points[0].cell.data if points else dataset
        ax.set_title(counted(data, (point.questions for point in points)))
        ax.margins(x=0.1, y=0.1)
        if all(point.cost.mean > 0 for point in points):
            log_axis(ax)
        xlabel = f"cost per question, × {label}" if relative else unit
        bottom = max(0, ax.get_ylim()[0])
        ax.set(xlabel=xlabel, ylabel=label_of(metric), ylim=(bottom, None))
    in_order = sorted(named.items(), key=itemgetter(1))
    marks = {name: Line2D([], [], **marker_of(*mark)) for name, mark in in_order}
    columns = 3 if len(axes) > 1 else 2
    width, height = figure.get_size_inches()
    figure.set_size_inches(max(width, NARROWEST), height + LINE * (len(marks) // columns))
    figure.legend(
        marks.values(), marks, loc="outside upper center", ncols=columns, frameon=False,
        handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    note = about_reader(table)
    if explained:
        note.append(f"Filled, dotted line: the Pareto front. {bars}")
        note += [f"Grey: published values by the same markers ({definition.source})."] if in_grey else []
        note += ["Rows that were asked other questions than most are not shown."] if left_out else []
    add_note(figure, " ".join(note if explained else note[:1]))
    header = (
        *("dataset", "row", "tflops", metric, f"{metric}_low", f"{metric}_high", "on_pareto_front"),
        *("relative_cost", "paper_relative_cost", f"paper_{metric}"),
    )
    return Drawn(figure, header, tuple(values))


def _points(
    table: TableData,
    dataset: str,
    published: PublishedValues,
    dollars: Mapping[tuple[str, str], Interval] | None,
) -> tuple[list[_Point], bool, bool]:
    """The rows with a score on a data set; if costs are relative to the reference row; if rows are left out.

    Rows with the same cell, such as a Top-X that turned out to be Top-5, are one point by the first's name.
    Of rows that were asked different questions, the most that were asked the same ones are shown.
    """
    definition, metric = table.definition, table.definition.metrics[0]
    cells: dict[str, tuple[int, TableCell, Summary, str]] = {}
    for i, cell in enumerate(table.of(dataset)):
        if cell.finished is not None and cell.finished.summary.n_scored:
            asked = cell.finished.description.examples
            cells.setdefault(cell.finished.id, (i, cell, cell.finished.summary, asked))
    questions = [asked for *_, asked in cells.values()]
    finished = [one[:3] for one in cells.values() if one[3] == max(questions, key=questions.count)]
    unit = next((s.query_tflops.mean for _, cell, s in finished if cell.row.id == definition.ratio_to), None)
    unit = unit if dollars is None else None
    paper = _printed(published, definition, dataset) if unit else {}
    points = [
        _Point(
            row=i,
            cell=cell,
            tflops=summary.query_tflops.mean,
            cost=dollars[cell.row.id, dataset] if dollars else summary.query_tflops.scaled(1 / (unit or 1.0)),
            score=summary.percent(metric),
            questions=summary.n_scored,
            paper=paper.get(cell.row.id),
        )
        for i, cell, summary in finished
    ]
    return points, bool(unit), len(points) < len(cells)


def _printed(
    published: PublishedValues, definition: TableDefinition, dataset: str
) -> dict[str, tuple[float, float]]:
    """Row -> published relative cost and score, for rows that have both."""
    points = {}
    reference_cost = published.get((definition.ratio_to or "", dataset, "tflops"))
    for row in definition.rows:
        cost = published.get((row.id, dataset, "tflops"))
        score = published.get((row.id, dataset, definition.metrics[0]))
        if reference_cost is not None and cost is not None and score is not None:
            points[row.id] = (cost.value / reference_cost.value, score.value)
    return points
