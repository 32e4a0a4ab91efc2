"""The first screen of the report: score over cost of what was run, a picture for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures.pareto import pareto, pareto_front
from bench.metrics import label_of
from bench.report.cells import DataGroup
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row, TableDefinition
from bench.tables.formats import percent, three_digits

MAX_POINTS = 16
"""Maximum number of cells in a picture, each with its name; the Pareto front is always among them."""


@dataclass(frozen=True)
class Plane:
    """A picture of score over cost, with the values drawn."""

    title: str
    about: str
    svg: bytes
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def planes(groups: Sequence[DataGroup]) -> list[Plane]:
    """Score over cost on each data set that two or more cells of one metric asked the same questions of."""
    return [plane for group in groups if (plane := _plane(group)) is not None]


def _plane(group: DataGroup) -> Plane | None:
    kinds = [(named.metric, named.cell.description.examples) for named in group.cells]
    questions = {kind: one.cell.summary.n for one, kind in zip(group.cells, kinds, strict=True)}
    most = max(questions, key=lambda kind: (kinds.count(kind), questions[kind]))
    same = [
        named
        for named, kind in zip(group.cells, kinds, strict=True)
        if named.cell.summary.n_scored and kind == most
    ]
    if len(same) < 2:
        return None
    metric = same[0].metric
    points = [(one.cell.summary.query_tflops.mean, one.cell.summary.percent(metric)) for one in same]
    front = pareto_front([(tflops, score.mean) for tflops, score in points])
    others = [at for at in range(len(same)) if at not in front]
    shown = [same[at] for at in sorted([*front, *others][: max(MAX_POINTS, len(front))])]
    rows = tuple(Row(id=one.cell.id, label=one.name, method=one.cell.description.method) for one in shown)
    title = f"Score over cost on {group.label}"
    definition = TableDefinition(
        id="cells", title=title, source="", datasets=(group.dataset,), metrics=(metric,), rows=rows
    )
    cells = {
        (row.id, group.dataset): TableCell(row, group.dataset, named.cell)
        for row, named in zip(rows, shown, strict=True)
    }
    tflops, best = points[front[-1]]
    about = (
        f"Highest: {same[front[-1]].name}, {label_of(metric)} {percent(best)}, with "
        f"{three_digits(tflops)} TFLOPs per question."
    )
    if left_out := len(group.cells) - len(shown):
        about += f" {left_out} of the {len(group.cells)} cells stand in the list below only."
    drawn = pareto(TableData(definition, cells), explained=False)
    names = {row.id: row.label for row in rows}
    values = (
        (str(data), names[str(id_)], *("" if value is None else f"{value:.4g}" for value in numbers))
        for data, id_, *numbers in drawn.rows
    )
    return Plane(title, about, drawn.picture("svg"), drawn.header, tuple(values))
