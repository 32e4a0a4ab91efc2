"""Figures as pure functions of finished cells: drawn as PNG, SVG and PDF, with the plotted values as CSV.

Readable in black and white: methods differ by marker and fill, never by colour alone. The same cells give
the same bytes.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np

from bench.figures.calibration import CalibrationPanel
from bench.files.atomic import write_bytes, write_text
from bench.method.graph_view import DrawnNode, GraphView
from bench.metrics import METRIC_LABELS
from bench.results.models import Interval, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS: tuple[str | tuple[int, Literal[0, 1, 2], int], ...] = (*"osD^v<>PXpd", (4, 1, 0), *"*8Hh")
"""One marker per row of a table, in order; they stay distinguishable at small size and in grey."""
COLOURS = ("#0072b2", "#d55e00", "#117733", "#cc79a7", "#222222", "#e69f00", "#882255", "#56b4e9", "#332288")
"""One colour per method, in order. They also differ in lightness, and red and green are not the only
difference of any two (after Okabe and Ito, and Tol)."""
DARK, LIGHT = "#222222", "#999999"
BAR = "#a6cbe3"
SCORE, COST = COLOURS[0], "#b34e00"
_PANEL = (3.2, 2.6)
"""Width and height of a panel in inches: one panel is as wide as a column of a page with two."""
_LABEL_SIZE = 8
_EDGED_BARS = 80
"""Maximum number of bars of a histogram that are drawn with edges."""
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "longdoc-bench",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "figure.dpi": 200,
    "text.parse_math": False,  # a name may have dollar signs
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
        ax.plot(curve.steps, [p.mean for p in scores], "o-", color=SCORE, label=METRIC_LABELS[metric])
        if all(p.low is not None for p in scores):
            lows, highs = [p.low or 0.0 for p in scores], [p.high or 0.0 for p in scores]
            ax.fill_between(curve.steps, lows, highs, color=SCORE, alpha=0.15, linewidth=0)
        ax.set_ylim(0, above(scores))
        other = ax.twinx()
        other.plot(curve.steps, [p.mean for p in costs], "s--", color=COST, markerfacecolor="white",
                   label="TFLOPs")  # fmt: skip
        other.set_ylim(0, above([Interval(mean=p.mean) for p in costs]))
        other.spines["right"].set_visible(True)
        ax.set_title(f"{curve.label}, n = {curve.summaries[0].n_scored}")
        ax.set_xlabel(option)
        ax.set_xticks(curve.steps)
        ax.set_ylabel(METRIC_LABELS[metric], color=SCORE)
        other.set_ylabel("TFLOPs per question", color=COST)
        if curve is curves[0]:
            figure.legend(*_joined(ax, other), loc="outside upper center", ncols=2, frameon=False)
        values += [
            (curve.dataset, step, score.mean, score.low, score.high, cost.mean)
            for step, score, cost in zip(curve.steps, scores, costs, strict=True)
        ]
    add_note(figure, "Shaded: 95 %, documents resampled. " + note)
    header = ("dataset", option, metric, f"{metric}_low", f"{metric}_high", "tflops")
    return Drawn(figure, header, tuple(values))


def _counted(label: str, counts: Iterable[int]) -> str:
    """A panel's title with its number of questions, as ``n = 48`` or ``n = 11 to 12``."""
    distinct = sorted(set(counts)) or [0]
    return f"{label}, n = {' to '.join(map(str, dict.fromkeys((distinct[0], distinct[-1]))))}"


@styled
def distribution(
    counts: Mapping[str, Mapping[int, Sequence[int]]],
    labels: Mapping[str, str],
    note: str,
    axis: str = "nodes retrieved",
) -> Drawn:
    """How many passages or nodes were read, in percent of a data set's questions (PECAN, Fig. 3).

    counts: by data set and number of hops, the number read per question; 0: the set does not tell hops.
    """
    figure, axes = figure_of(len(counts))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, by_hops) in zip(axes, counts.items(), strict=True):
        per_question = [n for of_hops in by_hops.values() for n in of_hops]
        most = max(per_question, default=0)
        edge = 0.5 if most <= _EDGED_BARS else 0  # edges of narrow bars would run together
        below = [0.0] * (most + 1)
        for shade, (hops, of_hops) in enumerate(sorted(by_hops.items())):
            by_count = [sum(n == k for n in of_hops) for k in range(most + 1)]
            percent = [100 * n / len(per_question) for n in by_count]
            ax.bar(range(most + 1), percent, bottom=below, width=0.8 if edge else 1, color=BAR,
                   alpha=1 - 0.3 * shade, edgecolor=DARK, linewidth=edge,
                   label=f"{hops} hops (n = {len(of_hops)})" if hops else None)  # fmt: skip
            below = [under + height for under, height in zip(below, percent, strict=True)]
            values += [(dataset, hops or "", k, n) for k, n in enumerate(by_count)]
        if per_question:
            mean = sum(per_question) / len(per_question)
            ax.axvline(mean, color=DARK, linestyle="--", linewidth=1)
            ax.set_ylim(top=1.2 * max(below))  # room for the label above the bars
            side, ha = (-3, "right") if mean > most / 2 else (3, "left")
            ax.annotate(f"mean {mean:.1f}", (mean, 0.99), xycoords=("data", "axes fraction"),
                        xytext=(side, 0), textcoords="offset points", va="top", ha=ha)  # fmt: skip
        if any(by_hops):
            ax.legend(fontsize="small")
        ax.set_title(f"{labels[dataset]}, n = {len(per_question)}")
        ax.set_xlabel(axis)
        ax.set_ylabel("questions (%)")
    add_note(figure, note)
    return Drawn(figure, ("dataset", "hops", "nodes", "questions"), tuple(values))


@styled
def bars(panels: Sequence[tuple[str, str, Mapping[str, Summary]]], metric: str, note: str) -> Drawn:
    """A score per variant with its interval; panels: (data set, label, variant -> summary) for each."""
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, variants) in zip(axes, panels, strict=True):
        for at, (variant, summary) in enumerate(variants.items()):
            point = summary.percent(metric)
            ax.bar(at, point.mean, color=BAR, edgecolor=DARK, linewidth=0.5)
            if point.low is not None and point.high is not None:
                ax.plot([at, at], [point.low, point.high], color=DARK, linewidth=0.8)
            values.append((dataset, variant, point.mean, point.low, point.high))
        ax.set_title(_counted(label, (summary.n_scored for summary in variants.values())))
        ax.set_xticks(range(len(variants)), list(variants), fontsize="small")
        ax.set_ylabel(METRIC_LABELS[metric])
        ax.set_ylim(bottom=0)
    add_note(figure, "Lines: 95 %, documents resampled. " + note)
    return Drawn(figure, ("dataset", "variant", metric, f"{metric}_low", f"{metric}_high"), tuple(values))


@styled
def calibrations(panels: Sequence[CalibrationPanel], labels: Sequence[str], note: str) -> Drawn:
    """Share of steps whose reading holds the answer, over their p_yes in groups of equally many steps.

    labels: of all variants, in order, for markers and colours.
    """
    figure, axes = figure_of(len(panels))
    colours = colours_of(labels)
    values: list[tuple[object, ...]] = []
    for ax, panel in zip(axes, panels, strict=True):
        ax.plot([0, 1], [0, 1], color=BAR, linewidth=0.8, linestyle=":")
        for name, calibration in panel.variants.items():
            at, bins, area = labels.index(name), calibration.bins(), calibration.auroc
            style = {**marker_of(at, colours[name]), "linewidth": 1, "linestyle": ("-", "--", ":")[at % 3]}
            shown = name if area is None else f"{name}: AUROC {area.mean:.2f}"
            ax.plot([p for p, _, _ in bins], [share for _, share, _ in bins], **style, label=shown)
            limits = (None, None, None) if area is None else (area.mean, area.low, area.high)
            values += [(panel.dataset, name, *limits, *of_bin) for of_bin in bins]
        ax.set_title(_counted(panel.label, (one.questions for one in panel.variants.values())))
        ax.set_xlabel("p_yes of a step")
        ax.set_ylabel("share with the answer read")
        ax.set_xlim(-0.03, 1.03)
        ax.set_ylim(-0.03, 1.03)
        ax.legend(frameon=False, loc="lower right")
    add_note(figure, "Dotted: calibrated. Steps in groups of equally many. " + note)
    header = ("dataset", "variant", "auroc", "auroc_low", "auroc_high", "p_yes", "share_with_answer", "steps")
    return Drawn(figure, header, tuple(values))


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
                    color=COLOURS[number % len(COLOURS)],
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
_NODE_LINE = 42
"""Characters of one line of a node's text."""


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
    heights = [0.5 * max(len(lower), len(upper)) + 0.5 for lower, upper in shown]
    figure = Figure(figsize=(7.2, sum(heights) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    reds, values, cut = colormaps["Reds"], [], False
    for ax, (dataset, label, view), (lower, upper) in zip(axes, panels, shown, strict=True):
        place: dict[int, tuple[float, float]] = {}
        for x, gap, nodes, side in ((0.42, -0.006, lower, "right"), (0.58, 0.006, upper, "left")):
            for row, at in enumerate(nodes):
                place[at] = (x, 1 - (row + 0.5) / len(nodes))
                text = _node_text(view.nodes[at])
                ax.text(x + gap, place[at][1], text, fontsize=_LABEL_SIZE, ha=side, va="center")
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
    """A node's name and the beginning of its text on up to three lines, as drawn: no text is markup."""
    import textwrap

    text = textwrap.shorten(node.text, _TEXT_CHARACTERS, placeholder=" …")
    return "\n".join(textwrap.wrap(f"{node.id}  {text}", _NODE_LINE))


def figure_of(count: int, panel: tuple[float, float] = _PANEL) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels, at most two in a row; needs no display.

    panel: width and height of each, in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def above(points: Sequence[Interval]) -> float:
    """The upper end of an axis from 0 that leaves room for the uppermost marker."""
    return 1.1 * max((p.mean if p.high is None else p.high for p in points), default=0.0) or 1.0


def colours_of(methods: Sequence[str]) -> dict[str, str]:
    """Method -> colour, in the order of their first rows."""
    return {method: COLOURS[i % len(COLOURS)] for i, method in enumerate(dict.fromkeys(methods))}


def marker_of(row: int, colour: str, *, filled: bool = False) -> dict[str, Any]:
    """The marker of a row as properties of a line without a stroke."""
    return {
        "marker": MARKERS[row % len(MARKERS)], "markersize": _size(row), "markeredgewidth": 1.3,
        "color": colour, "markerfacecolor": colour if filled else "white", "linestyle": "none",
        "clip_on": False,
    }  # fmt: skip


def _size(row: int) -> float:
    """The size of a row's marker; pointed shapes are larger since they have less area."""
    return 8.0 if MARKERS[row % len(MARKERS)] in ("d", "*", (4, 1, 0)) else 6.0


@dataclass(frozen=True)
class PointLabel:
    """A name that stands beside a point, in the axes' data coordinates."""

    x: float
    y: float
    text: str
    colour: str = DARK
    bold: bool = False


def label_points(figure: Figure, named: Sequence[tuple[Axes, Sequence[PointLabel]]]) -> None:
    """Write names beside their points; call it last, since it freezes the layout."""
    from adjustText import adjust_text

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    ground = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.4}
    for ax, labels in named:
        texts = [
            ax.text(
                label.x, label.y, label.text, ha="center", va="center", fontsize=_LABEL_SIZE,
                linespacing=1.0, color=label.colour, zorder=2.9, bbox=ground,
                fontweight="bold" if label.bold else "normal",
            )
            for label in labels
        ]  # fmt: skip
        leader = {"arrowstyle": "-", "color": "#666666", "linewidth": 0.5, "zorder": 2.8}
        points = np.concatenate([line.get_xydata() for line in ax.lines if line.get_marker() != "None"])
        adjust_text(
            texts, x=points[:, 0], y=points[:, 1], target_x=[label.x for label in labels],
            target_y=[label.y for label in labels], ax=ax, expand=(1.15, 1.4), force_text=(0.5, 1.0),
            force_static=(0.3, 0.6), iter_lim=1000, arrowprops=leader,  # a limit of time would not repeat
        )  # fmt: skip


LEAST_RATIO = 1.5
"""Of a cost axis, its end over its beginning: costs that are nearly the same shall look it."""


def log_axis(ax: Axes) -> None:
    """A logarithmic cost axis with plain numbers at 1, 2 and 5 or, within one decade, at a few places."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    if (wider := (LEAST_RATIO * low / high) ** 0.5) > 1:
        low, high = ax.set_xlim(low / wider, high * wider)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high > 10 * low else MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


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

    width = int(17.5 * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize=7.5, color="#444444")
