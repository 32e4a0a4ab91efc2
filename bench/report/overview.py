"""The first screen of the report: score over cost of what was run, and what the picture says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.figures.pareto import pareto, pareto_front
from bench.metrics import METRIC_LABELS
from bench.report.cells import DataGroup, NamedCell
from bench.report.figure_part import FigurePart, drawn_part
from bench.results.models import Interval
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row, TableDefinition
from bench.tables.formats import three_digits

MAX_POINTS = 16
"""Maximum number of cells in a picture, each with its name; the Pareto front is always among them."""


@dataclass(frozen=True)
class Point:
    """A cell in a picture."""

    name: str
    score: Interval
    """0..100."""
    tflops: float
    """Per question."""


def planes(groups: Sequence[DataGroup]) -> list[FigurePart]:
    """Score over cost on each data set that two or more cells asked the same questions of."""
    planes = (_plane(number, group) for number, group in enumerate(groups))
    return [plane for plane in planes if plane is not None]


def _plane(number: int, group: DataGroup) -> FigurePart | None:
    asked = Counter(named.cell.description.examples for named in group.cells)
    same = [
        named
        for named in group.cells
        if named.cell.summary.n_scored and named.cell.description.examples == asked.most_common(1)[0][0]
    ]
    if len(same) < 2:
        return None
    metric = same[0].cell.description.metrics[0]
    points = [
        Point(named.name, named.cell.summary.percent(metric), named.cell.summary.query_tflops.mean)
        for named in same
    ]
    shown = _shown(same, pareto_front([(point.tflops, point.score.mean) for point in points]))
    definition = TableDefinition(
        id=f"cells-{number}",
        title=f"Score over cost on {group.label}",
        source="",
        datasets=(group.dataset,),
        metrics=(metric,),
        rows=tuple(
            Row(id=named.cell.id, label=named.name, method=named.cell.description.method) for named in shown
        ),
    )
    cells = {
        (row.id, group.dataset): TableCell(row, group.dataset, named.cell)
        for row, named in zip(definition.rows, shown, strict=True)
    }
    left_out = len(same) - len(shown)
    about = findings(points, METRIC_LABELS.get(metric, metric))
    if left_out:
        about += f" {left_out} of the {len(same)} cells are in the list below only."
    drawn = pareto(TableData(definition, cells), explained=False)
    names = {row.id: row.label for row in definition.rows}
    values = tuple((data, names[str(id_)], *others) for data, id_, *others in drawn.rows)
    return drawn_part(definition.id, definition.title, about, replace(drawn, rows=values))


def _shown(cells: Sequence[NamedCell], front: Sequence[int]) -> list[NamedCell]:
    """The cells of a picture in their order: the front, then the first ones."""
    others = [i for i in range(len(cells)) if i not in front]
    return [cells[i] for i in sorted([*front, *others][: max(MAX_POINTS, len(front))])]


def findings(points: Sequence[Point], metric: str) -> str:
    """Sentences on two or more points: the best, the cheapest, and whether the scores tell them apart."""
    front = [points[i] for i in pareto_front([(point.tflops, point.score.mean) for point in points])]
    cheapest, best = front[0], front[-1]
    others = [point for point in points if point is not best]
    tied = sum(other.score.mean == best.score.mean for other in others)
    cost = f"with {three_digits(best.tflops)} TFLOPs per question"
    if tied:
        sentence = (
            f"{best.name} and {tied} other{'' if tied == 1 else 's'} score highest, {metric} "
            f"{percent(best.score)}; it is the cheapest of them, {cost}."
        )
    else:
        sentence = f"{best.name} scores highest, {metric} {percent(best.score)}, {cost}."
    if cheapest is best:
        sentence += " No other is cheaper." if best.tflops <= min(p.tflops for p in others) else ""
    else:
        share = f"{cheapest.tflops / best.tflops:.2g} times as much" if best.tflops else "as much"
        sentence += f" The cheapest, {cheapest.name}, takes {share} and scores {percent(cheapest.score)}."
    return f"{sentence} {_overlap(best, others)}"


def percent(score: Interval, unit: str = " %") -> str:
    """A score of 0..100 with its interval."""
    if score.low is None or score.high is None:
        return f"{score.mean:.1f}{unit}"
    return f"{score.mean:.1f}{unit} [{score.low:.1f}, {score.high:.1f}]"


def _overlap(best: Point, others: Sequence[Point]) -> str:
    """Whether the best score stands out from the others."""
    if best.score.low is None:
        return "The questions share too few documents for intervals: the order may be chance."
    reached = sum(
        best.score.low <= (other.score.mean if other.score.high is None else other.score.high)
        for other in others
    )
    if reached == len(others):
        return "Its interval overlaps that of every other: these questions alone do not rank them."
    if reached:
        return f"Its interval overlaps those of {reached} of the {len(others)} others."
    return "Its interval overlaps no other."
