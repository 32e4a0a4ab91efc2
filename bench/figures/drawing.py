"""Figures as pure functions of finished cells: drawn as PNG, SVG and PDF, with the plotted values as CSV.

Readable in black and white: methods differ by marker and fill, never by colour alone. The same cells give
the same bytes.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from bench.figures.lengths import LengthPanel
from bench.files.atomic import write_bytes, write_text
from bench.method.graph_view import DrawnNode, GraphView
from bench.metrics import METRIC_LABELS
from bench.results.models import Interval, Summary
from bench.tables.caption import about_reader
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import TableDefinition
from bench.tables.notes import notes_of
from bench.tables.published import PublishedValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS: tuple[str | tuple[int, Literal[0, 1, 2], int], ...] = (*"osD^v<>PXpd", (4, 1, 0), *"*8Hh")
"""One marker per row of a table, in order; they stay distinguishable at small size and in grey."""
DARK, LIGHT = "#222222", "#999999"
_EDGED_BARS = 80
"""Maximum number of bars of a histogram that are drawn with edges."""
_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.fontsize": 7.5,
    "svg.hashsalt": "longdoc-bench",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "figure.dpi": 160,
}

Form = Literal["png", "svg", "pdf"]
_DATED: Mapping[Form, str] = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""Format -> the metadata entry that changes even if the figure does not."""

Parameters = ParamSpec("Parameters")


def styled(draw: Callable[Parameters, Drawn]) -> Callable[Parameters, Drawn]:
    """Decorate a drawing function to use our style."""

    @functools.wraps(draw)
    def within(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Drawn:
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return within


@dataclass(frozen=True)
class Drawn:
    """A figure with the values that it shows."""

    figure: Figure
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def picture(self, form: Form) -> bytes:
        """The figure as a file of that format, without a date, so that it is reproducible byte for byte."""
        import matplotlib as mpl

        content = io.BytesIO()
        with mpl.rc_context(_STYLE):
            metadata = {_DATED[form]: None}
            self.figure.savefig(content, format=form, metadata=metadata, bbox_inches="tight")
        return content.getvalue()

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write ``name``.png, .svg, .pdf and .csv; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for form in _DATED:
            paths.append(folder / f"{name}.{form}")
            write_bytes(paths[-1], self.picture(form))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        paths.append(folder / f"{name}.csv")
        write_text(paths[-1], text.getvalue())
        return paths


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (cost, score) points that no other point dominates, by ascending cost.

    A point dominates if it is better at no higher cost, or cheaper at no lower score; of equal points the
    first one is on the front.
    """
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if not front or points[i][1] > points[front[-1]][1]:
            front.append(i)
    return front


@styled
def pareto(table: TableData, published: PublishedValues | None = None) -> Drawn:
    """All rows of a table, one panel per data set: score over cost, with intervals and the Pareto front.

    Costs are relative to the table's reference row (``ratio_to``) if that row has a cell; then the published
    values are shown too, in grey.
    """
    definition, metric = table.definition, table.definition.metrics[0]
    printed, reference = published or {}, definition.ratio_to or ""
    label = next((row.label for row in definition.rows if row.id == reference), "")
    figure, axes = figure_of(len(definition.datasets))
    values: list[tuple[object, ...]] = []
    in_grey = False
    for ax, dataset in zip(axes, definition.datasets, strict=True):
        points = [
            (i, cell, summary.query_tflops, summary.percent(metric))
            for i, row in enumerate(definition.rows)
            if (summary := (cell := table.cells[row.id, dataset]).summary) is not None and summary.n_scored
        ]
        unit = next((cost.mean for _, cell, cost, _ in points if cell.row.id == reference), None)
        points = [(i, cell, _over(cost, unit or 1.0), score) for i, cell, cost, score in points]
        paper_points = _printed(printed, definition, dataset) if unit else {}
        in_grey = in_grey or bool(paper_points)
        for i, row in enumerate(definition.rows):
            if row.id in paper_points:
                ax.plot(
                    *paper_points[row.id], marker=MARKERS[i % len(MARKERS)], markersize=_size(i), color=LIGHT,
                    markerfacecolor="none", linestyle="none", zorder=2,
                )  # fmt: skip
        front = pareto_front([(cost.mean, score.mean) for _, _, cost, score in points])
        steps = [(points[i][2].mean, points[i][3].mean) for i in front]
        if steps:
            ax.step(
                *zip(*steps, strict=True), where="post", color=DARK, linewidth=1, linestyle=":", zorder=2.5
            )
        for position, (i, cell, cost, score) in enumerate(points):
            _errors(ax, cost, score)
            ax.plot(
                cost.mean, score.mean, marker=MARKERS[i % len(MARKERS)], markersize=_size(i), color=DARK,
                markerfacecolor=DARK if position in front else "white", label=cell.row.label, zorder=3,
            )  # fmt: skip
            values.append(
                (
                    *(dataset, cell.row.id, cost.mean * (unit or 1.0), score.mean, score.low, score.high),
                    *(int(position in front), cost.mean if unit else None),
                    *paper_points.get(cell.row.id, (None, None)),
                )
            )
        ax.set_title(_title(points[0][1] if points else None, dataset))
        _log_axis(ax)
        ax.set_xlabel(f"cost per question, × {label}" if unit else "TFLOPs per question")
        ax.set_ylabel(METRIC_LABELS[metric])
        shown = [*(s for _, _, _, s in points), *(Interval(mean=y) for _, y in paper_points.values())]
        ax.set_ylim(0, _above(shown))
    _legend(figure, [row.label for row in definition.rows])
    add_note(
        figure,
        "Filled markers and the dotted line: the Pareto front. Bars: 95 %, documents resampled. "
        + (f"Grey: published values ({definition.source}). " if in_grey else "")
        + _who(table),
    )
    header = (
        *("dataset", "row", "tflops", metric, f"{metric}_low", f"{metric}_high", "on_pareto_front"),
        *("relative_cost", "paper_relative_cost", f"paper_{metric}"),
    )
    return Drawn(figure, header, tuple(values))


def _over(cost: Interval, unit: float) -> Interval:
    low, high = (None if end is None else end / unit for end in (cost.low, cost.high))
    return Interval(mean=cost.mean / unit, low=low, high=high)


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


@dataclass(frozen=True)
class Curve:
    """One method's cells along one option, such as t_p."""

    dataset: str
    label: str
    """The data as printed in tables."""
    steps: tuple[int, ...]
    summaries: tuple[Summary, ...]


@styled
def trade_off(curves: Sequence[Curve], metric: str, option: str, note: str) -> Drawn:
    """Score and cost over an option's values, one panel per data set (PECAN, Fig. 4, over t_p)."""
    figure, axes = figure_of(len(curves))
    values: list[tuple[object, ...]] = []
    for ax, curve in zip(axes, curves, strict=True):
        scores = [s.percent(metric) for s in curve.summaries]
        costs = [s.query_tflops for s in curve.summaries]
        ax.plot(curve.steps, [p.mean for p in scores], "o-", color=DARK, label=METRIC_LABELS[metric])
        if all(p.low is not None for p in scores):
            lows, highs = [p.low or 0.0 for p in scores], [p.high or 0.0 for p in scores]
            ax.fill_between(curve.steps, lows, highs, color="#dddddd", linewidth=0)
        ax.set_ylim(0, _above(scores))
        other = ax.twinx()
        other.plot(curve.steps, [p.mean for p in costs], "s--", color="#666666", markerfacecolor="none",
                   label="TFLOPs")  # fmt: skip
        other.set_ylim(0, _above([Interval(mean=p.mean) for p in costs]))
        other.spines["right"].set_visible(True)
        ax.set_title(curve.label)
        ax.set_xlabel(option)
        ax.set_xticks(curve.steps)
        ax.set_ylabel(METRIC_LABELS[metric])
        other.set_ylabel("TFLOPs per question")
        if curve is curves[0]:
            figure.legend(*_joined(ax, other), loc="outside upper center", ncols=2, frameon=False)
        values += [
            (curve.dataset, step, score.mean, score.low, score.high, cost.mean)
            for step, score, cost in zip(curve.steps, scores, costs, strict=True)
        ]
    add_note(figure, "Shaded: 95 %, documents resampled. " + note)
    header = ("dataset", option, metric, f"{metric}_low", f"{metric}_high", "tflops")
    return Drawn(figure, header, tuple(values))


@styled
def over_lengths(panels: Sequence[LengthPanel], labels: Sequence[str], metric: str, note: str) -> Drawn:
    """Score, and cost on logarithmic axes, of rows over the length of the documents: two panels a data set.

    labels: of all rows, in order, for markers and legend.
    """
    figure, axes = figure_of(2 * len(panels))
    values: list[tuple[object, ...]] = []
    for at, panel in enumerate(panels):
        score_ax, cost_ax = axes[2 * at : 2 * at + 2]
        for label, points in panel.lines.items():
            i = labels.index(label)
            style: dict[str, Any] = {
                "marker": MARKERS[i % len(MARKERS)], "markersize": _size(i), "markerfacecolor": "white",
                "color": DARK, "linewidth": 0.8, "linestyle": ("-", "--", ":")[i % 3],
            }  # fmt: skip
            lengths = [point.length for point in points]
            score_ax.plot(lengths, [point.score for point in points], **style)
            cost_ax.plot(lengths, [point.tflops for point in points], **style)
            values += [(panel.dataset, label, p.length, p.questions, p.score, p.tflops) for p in points]
        for ax in (score_ax, cost_ax):
            ax.set_title(panel.dataset)
            ax.set_xlabel(f"length of the documents, {panel.unit}")
            _log_axis(ax)
        score_ax.set_ylabel(METRIC_LABELS[metric])
        score_ax.set_ylim(0, 105)
        cost_ax.set_yscale("log")
        cost_ax.set_ylabel("TFLOPs per question")
    _legend(figure, labels)
    add_note(figure, "Means of the questions at each length; without the cost of indexes. " + note)
    header = ("dataset", "row", "length", "questions", metric, "tflops")
    return Drawn(figure, header, tuple(values))


@styled
def distribution(
    counts: Mapping[str, Sequence[int]], labels: Mapping[str, str], note: str, axis: str = "nodes retrieved"
) -> Drawn:
    """The number of passages or nodes read per question, as a histogram per data set (PECAN, Fig. 3)."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = figure_of(len(counts))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, per_question) in zip(axes, counts.items(), strict=True):
        most = max(per_question, default=0)
        by_count = [sum(n == k for n in per_question) for k in range(most + 1)]
        edge = 0.5 if most <= _EDGED_BARS else 0  # edges of narrow bars would run together
        ax.bar(range(most + 1), by_count, width=0.8 if edge else 1, color="#bbbbbb", edgecolor=DARK,
               linewidth=edge)  # fmt: skip
        if per_question:
            mean = sum(per_question) / len(per_question)
            ax.axvline(mean, color=DARK, linestyle="--", linewidth=1)
            ax.set_ylim(top=1.2 * max(by_count))  # room for the label above the bars
            ax.annotate(f"mean {mean:.1f}", (mean, 0.99), xycoords=("data", "axes fraction"),
                        xytext=(3, 0), textcoords="offset points", va="top")  # fmt: skip
        ax.set_title(labels[dataset])
        ax.set_xlabel(axis)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylabel("questions")
        values += [(dataset, k, n) for k, n in enumerate(by_count)]
    add_note(figure, note)
    return Drawn(figure, ("dataset", "nodes", "questions"), tuple(values))


@styled
def bars(panels: Sequence[tuple[str, str, Mapping[str, Summary]]], metric: str, note: str) -> Drawn:
    """A score per variant with its interval; panels: (data set, label, variant -> summary) for each."""
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, variants) in zip(axes, panels, strict=True):
        for at, (variant, summary) in enumerate(variants.items()):
            point = summary.percent(metric)
            ax.bar(at, point.mean, color="#bbbbbb", edgecolor=DARK, linewidth=0.5)
            if point.low is not None and point.high is not None:
                ax.plot([at, at], [point.low, point.high], color=DARK, linewidth=0.8)
            values.append((dataset, variant, point.mean, point.low, point.high))
        ax.set_title(label)
        ax.set_xticks(range(len(variants)), list(variants))
        ax.set_ylabel(METRIC_LABELS[metric])
        ax.set_ylim(bottom=0)
    add_note(figure, "Lines: 95 %, documents resampled. " + note)
    return Drawn(figure, ("dataset", "variant", metric, f"{metric}_low", f"{metric}_high"), tuple(values))


@styled
def histories_over_epochs(
    panels: Sequence[tuple[str, str, Mapping[str, Sequence[Mapping[str, float]]]]], note: str
) -> Drawn:
    """Loss and entropy over epochs, a panel for each; panels: (data set, label, training -> epochs)."""
    shown = ("loss", "entropy")
    figure, axes = figure_of(len(shown) * len(panels))
    values: list[tuple[object, ...]] = []
    for at, (dataset, label, histories) in enumerate(panels):
        for offset, measure in enumerate(shown):
            ax = axes[len(shown) * at + offset]
            for number, (name, epochs) in enumerate(histories.items()):
                steps = range(1, len(epochs) + 1)
                ax.plot(
                    steps,
                    [epoch[measure] for epoch in epochs],
                    color=DARK,
                    linestyle=("-", "--")[number % 2],
                    marker=MARKERS[number],
                    markerfacecolor="white",
                    markersize=4,
                    markevery=max(1, len(epochs) // 8),
                    label=name,
                )
            ax.set_title(f"{label}: {measure}")
            ax.set_xlabel("epoch")
            ax.set_ylabel(f"{measure}, nats" if measure == "entropy" else measure)
            if at == 0 and offset == 0:
                figure.legend(
                    *ax.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
                )
        values += [
            (dataset, name, number, epoch["loss"], epoch["entropy"])
            for name, epochs in histories.items()
            for number, epoch in enumerate(epochs, start=1)
        ]
    add_note(figure, "Entropy: of the softmax over a query's nodes, in nats; lower is more certain. " + note)
    return Drawn(figure, ("dataset", "training", "epoch", "loss", "entropy"), tuple(values))


MOST_NODES = 14
"""Of each level, in the picture of a graph."""
_TEXT_CHARACTERS = 100


@styled
def two_levels(panels: Sequence[tuple[str, str, GraphView]], least: float, note: str) -> Drawn:
    """The two lowest levels of a graph, lower nodes on the left, with their texts (PECAN, Fig. A1).

    panels: (data set, label, graph), one each. The weight of an edge is its width and how red it is; those
    below ``least`` are left out.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [_of_two_levels(view) for _, _, view in panels]
    heights = [0.42 * max(len(lower), len(upper)) + 0.5 for lower, upper in shown]
    figure = Figure(figsize=(7.2, sum(heights) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    reds, values, cut = colormaps["Reds"], [], False
    for ax, (dataset, label, view), (lower, upper) in zip(axes, panels, shown, strict=True):
        place: dict[int, tuple[float, float]] = {}
        for x, gap, nodes, side in ((0.40, -0.006, lower, "right"), (0.60, 0.006, upper, "left")):
            for row, at in enumerate(nodes):
                place[at] = (x, 1 - (row + 0.5) / len(nodes))
                text = _node_text(view.nodes[at])
                ax.text(x + gap, place[at][1], text, fontsize=5.5, ha=side, va="center")
        edges = [edge for edge in view.edges if edge.lower in place and edge.upper in place]
        most = max((edge.weight for edge in edges), default=1.0)
        for edge in sorted(edges, key=lambda edge: edge.weight):
            if edge.weight >= least:
                share, ends = edge.weight / most, zip(place[edge.lower], place[edge.upper], strict=True)
                ax.plot(*ends, color=reds(0.3 + 0.7 * share), linewidth=0.4 + 2.6 * share)
        for edge in edges:
            ids = view.nodes[edge.lower].id, view.nodes[edge.upper].id
            values.append((dataset, *ids, edge.weight, int(edge.weight >= least)))
        levels = [sum(node.level == level for node in view.nodes) for level in (1, 2)]
        cut = cut or levels != [len(lower), len(upper)]
        ax.set_title(label)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.axis("off")
    add_note(
        figure,
        "Left: chunks of the documents; right: the information points that a model wrote from them, "
        "level 2. Lines: attention of a point to a chunk, redder and thicker where it is higher, none "
        f"below {least:g}. " + (f"At most {MOST_NODES} nodes of a level are shown. " if cut else "") + note,
    )
    return Drawn(figure, ("dataset", "lower", "upper", "weight", "drawn"), tuple(values))


def _of_two_levels(view: GraphView) -> tuple[list[int], list[int]]:
    """Positions of the first nodes of level 1 and of level 2."""
    lower, upper = (
        [at for at, node in enumerate(view.nodes) if node.level == level][:MOST_NODES] for level in (1, 2)
    )
    return lower, upper


def _node_text(node: DrawnNode) -> str:
    """A node's name and the beginning of its text on two lines, as it is drawn: no text is markup."""
    import textwrap

    text = textwrap.shorten(node.text, _TEXT_CHARACTERS, placeholder=" …")
    return "\n".join(textwrap.wrap(f"{node.id}  {text}".replace("$", r"\$"), 58))


def figure_of(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels, at most two in a row; needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def _above(points: Sequence[Interval]) -> float:
    """The upper end of an axis from 0 that leaves room for the uppermost marker."""
    return 1.08 * max((p.mean if p.high is None else p.high for p in points), default=0.0) or 1.0


def _errors(ax: Axes, cost: Interval, score: Interval) -> None:
    """Thin bars for the intervals of both."""
    if score.low is not None and score.high is not None:
        ax.plot([cost.mean, cost.mean], [score.low, score.high], color=LIGHT, linewidth=0.8, zorder=2)
    if cost.low is not None and cost.high is not None:
        ax.plot([cost.low, cost.high], [score.mean, score.mean], color=LIGHT, linewidth=0.8, zorder=2)


def _size(row: int) -> float:
    """The size of a row's marker; pointed shapes are larger since they have less area."""
    return 8.0 if MARKERS[row % len(MARKERS)] in ("d", "*", (4, 1, 0)) else 6.0


def _log_axis(ax: Axes) -> None:
    """A logarithmic cost axis with plain numbers at 1, 2 and 5 or, within one decade, at a few places."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high > 10 * low else MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, labels: Sequence[str]) -> None:
    """A legend with a hollow marker for every row."""
    panels = sum(ax.get_visible() for ax in figure.axes)
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            marker=MARKERS[i % len(MARKERS)],
            markersize=_size(i),
            linestyle="",
            color=DARK,
            markerfacecolor="white",
        )  # fmt: skip
        for i in range(len(labels))
    ]
    figure.legend(handles, labels, loc="outside upper center", ncols=5 if panels > 1 else 3, frameon=False)


def _joined(*axes: Axes) -> tuple[list[Any], list[str]]:
    handles, labels = [], []
    for ax in axes:
        legend = ax.get_legend_handles_labels()
        handles += legend[0]
        labels += legend[1]
    return handles, labels


def add_note(figure: Figure, text: str) -> None:
    """A sentence or two in small print below the panels."""
    import textwrap

    width = 120 if figure.get_figwidth() > 5 else 70
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize=6.5, color="#444444")


def _title(cell: TableCell | None, dataset: str) -> str:
    return dataset if cell is None or cell.description is None else cell.description.data


def _who(table: TableData) -> str:
    """The sentences about the reader from the table's caption."""
    return " ".join(about_reader(notes_of(table)))
