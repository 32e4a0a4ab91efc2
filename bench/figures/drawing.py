"""Figures as pure functions of finished cells: drawn as PNG, SVG and PDF, with the plotted values as CSV.

Readable in black and white: methods differ by marker and fill, never by colour alone. The same cells give
the same bytes.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from bench.figures.calibration import Calibration
from bench.files.atomic import write_bytes, write_text
from bench.method.graph_view import DrawnNode, GraphView
from bench.metrics import label_of
from bench.metrics.statistics import Interval
from bench.results.models import Summary
from bench.tables.formats import csv_text

Marker = str | tuple[int, Literal[0, 1, 2], int]
MARKERS: tuple[Marker, ...] = (*"osD^v<>PXpd", (4, 1, 0), *"*8h", (6, 1, 0), (8, 1, 0))
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

Shown = TypeVar("Shown")
Panels: TypeAlias = Sequence[tuple[str, str, Shown]]
"""Data set, its label and what is shown of it, for each panel."""

styled = mpl.rc_context(_STYLE)
"""Decorator of a drawing function that uses our style."""


@dataclass(frozen=True)
class Drawn:
    """A figure with the values that it shows."""

    figure: Figure
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def picture(self, form: Form) -> bytes:
        """The figure as a file of that format, without a date, so that it is reproducible byte for byte."""
        content = io.BytesIO()
        with mpl.rc_context(_STYLE):
            metadata = {_DATED[form]: None}
            self.figure.savefig(content, format=form, metadata=metadata, bbox_inches="tight")
        return content.getvalue()

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write ``name``.png, .svg, .pdf and .csv; returns their paths."""
        paths = [folder / f"{name}.{form}" for form in (*_DATED, "csv")]
        for form, path in zip(_DATED, paths, strict=False):
            write_bytes(path, self.picture(form))
        write_text(paths[-1], csv_text([self.header, *self.rows]))
        return paths


@styled
def trade_off(panels: Panels[Mapping[int, Summary]], metric: str, option: str, note: str) -> Drawn:
    """Score and cost over an option's values (PECAN, Fig. 4, over t_p); panels: value -> summary."""
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, title, summaries) in zip(axes, panels, strict=True):
        steps = list(summaries)
        scores = [s.percent(metric) for s in summaries.values()]
        costs = [s.query_tflops.mean for s in summaries.values()]
        label = label_of(metric)
        lines = ax.plot(steps, [p.mean for p in scores], "o-", color=SCORE, label=label)
        if all(p.low is not None for p in scores):
            lows, highs = [p.low or 0.0 for p in scores], [p.high or 0.0 for p in scores]
            ax.fill_between(steps, lows, highs, color=SCORE, alpha=0.15, linewidth=0)
        other = ax.twinx()
        lines += other.plot(steps, costs, "s--", color=COST, mfc="white", label="TFLOPs")
        other.spines["right"].set_visible(True)
        ax.set_title(counted(title, [summaries[steps[0]].n_scored]))
        ax.set(xlabel=option, xticks=steps)
        ax.set_ylabel(label, color=SCORE)
        other.set_ylabel("TFLOPs per question", color=COST)
        for scaled in (ax, other):
            scaled.set_ylim(bottom=0)
        if ax is axes[0]:
            figure.legend(handles=lines, loc="outside upper center", ncols=2, frameon=False)
        values += [
            (dataset, step, score.mean, score.low, score.high, cost)
            for step, score, cost in zip(steps, scores, costs, strict=True)
        ]
    add_note(figure, "Shaded: 95 %, documents resampled. " + note)
    header = ("dataset", option, metric, f"{metric}_low", f"{metric}_high", "tflops")
    return Drawn(figure, header, tuple(values))


def counted(label: str, counts: Iterable[int]) -> str:
    """A panel's title with its number of questions, as ``n = 48`` or ``n = 11 to 12``."""
    distinct = sorted(set(counts)) or [0]
    n = " to ".join(map(str, dict.fromkeys((distinct[0], distinct[-1]))))
    return textwrap.fill(f"{label}, n = {n}", 40)


@styled
def distribution(panels: Panels[Mapping[int, Sequence[int]]], note: str, axis: str) -> Drawn:
    """How many passages or nodes were read, in percent of a data set's questions (PECAN, Fig. 3).

    panels: hops -> the number read per question; 0: the set does not tell hops.
    """
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, by_hops) in zip(axes, panels, strict=True):
        per_question = [n for of_hops in by_hops.values() for n in of_hops]
        if per_question:
            hops, read = zip(*sorted(by_hops.items()), strict=True)
            edges = np.arange(max(per_question) + 2)
            names = [f"{n or '?'} hops (n = {len(by_hops[n])})" for n in hops] if any(hops) else None
            weights = [np.full(len(own), 100 / len(per_question)) for own in read]
            outline: dict[str, Any] = {"edgecolor": DARK, "linewidth": 0.5, "rwidth": 0.8}
            ax.hist(
                read, (edges - 0.5).tolist(), weights=weights, stacked=True, label=names,
                **(outline if len(edges) < 80 else {}),
                color=[(BAR, 1 - min(0.3, 0.9 / len(hops)) * shade) for shade in range(len(hops))],
            )  # fmt: skip
            mean = float(np.mean(per_question))
            ax.axvline(mean, color=DARK, linestyle="--", linewidth=1, label=f"mean {mean:.1f}")
            ax.legend(fontsize="small")
            for number, of_hops in zip(hops, read, strict=True):
                questions = np.bincount(of_hops, minlength=len(edges) - 1).tolist()
                values += [(dataset, number or "", k, n) for k, n in enumerate(questions)]
        ax.set(title=counted(label, [len(per_question)]), xlabel=axis, ylabel="questions (%)")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_note(figure, note)
    return Drawn(figure, ("dataset", "hops", "nodes", "questions"), tuple(values))


@styled
def bars(panels: Panels[Mapping[str, Summary]], metric: str, note: str) -> Drawn:
    """A score per variant with its interval; panels: variant -> summary."""
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, variants) in zip(axes, panels, strict=True):
        for at, (variant, summary) in enumerate(variants.items()):
            point = summary.percent(metric)
            ax.bar(at, point.mean, yerr=spread(point), color=BAR, edgecolor=DARK, linewidth=0.5)
            values.append((dataset, variant, point.mean, point.low, point.high))
        ax.set_title(counted(label, (summary.n_scored for summary in variants.values())))
        ax.set_xticks(range(len(variants)), list(variants), fontsize="small")
        ax.set(ylabel=label_of(metric), ylim=(0, None))
    add_note(figure, "Lines: 95 %, documents resampled. " + note)
    return Drawn(figure, ("dataset", "variant", metric, f"{metric}_low", f"{metric}_high"), tuple(values))


@styled
def calibrations(panels: Panels[Mapping[str, Calibration]], labels: Sequence[str], note: str) -> Drawn:
    """Share of steps whose reading holds the answer, over their p_yes in groups of equally many steps.

    panels: variant -> steps; labels: of all variants, for markers and colours.
    """
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, variants) in zip(axes, panels, strict=True):
        ax.plot([0, 1], [0, 1], color=BAR, linewidth=0.8, linestyle=":")
        for name, calibration in variants.items():
            bins, area = calibration.bins(), calibration.auroc
            shown = name if area is None else f"{name}: AUROC {area.mean:.2f}"
            p_yes, shares, _ = zip(*bins, strict=True)
            ax.plot(p_yes, shares, **_line_of(labels.index(name)), label=shown)
            limits = (None, None, None) if area is None else (area.mean, area.low, area.high)
            values += [(dataset, name, *limits, *of_bin) for of_bin in bins]
        ax.set_title(counted(label, (one.questions for one in variants.values())))
        ax.set(xlabel="p_yes of a step", ylabel="share with the answer read")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        ax.legend(frameon=False, loc="lower right")
    add_note(figure, "Dotted: calibrated. Steps in groups of equally many. " + note)
    header = ("dataset", "variant", "auroc", "auroc_low", "auroc_high", "p_yes", "share_with_answer", "steps")
    return Drawn(figure, header, tuple(values))


@styled
def histories_over_epochs(panels: Panels[Mapping[str, Sequence[Mapping[str, float]]]], note: str) -> Drawn:
    """Loss and entropy over epochs, a panel for each; panels: training -> epochs."""
    shown = ("loss", "entropy")
    figure, axes = figure_of(len(shown) * len(panels))
    values: list[tuple[object, ...]] = []
    for at, (dataset, label, histories) in enumerate(panels):
        for ax, measure in zip(axes[len(shown) * at :], shown, strict=False):
            for number, (name, epochs) in enumerate(histories.items()):
                steps, every = range(1, len(epochs) + 1), max(1, len(epochs) // 8)
                points = [epoch[measure] for epoch in epochs]
                ax.plot(steps, points, **_line_of(number), markevery=every, label=name)
            ax.set_title(f"{label}: {measure}")
            ax.set(xlabel="epoch", ylabel=f"{measure}, nats" if measure == "entropy" else measure)
        values += [
            (dataset, name, number, epoch["loss"], epoch["entropy"])
            for name, epochs in histories.items()
            for number, epoch in enumerate(epochs, start=1)
        ]
    names = axes[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside upper center", ncols=2, frameon=False)
    add_note(figure, "Entropy: of the softmax over a query's nodes, in nats; lower is more certain. " + note)
    return Drawn(figure, ("dataset", "training", "epoch", "loss", "entropy"), tuple(values))


MOST_NODES = 14
"""Of each level, in the picture of a graph."""
_TEXT_CHARACTERS = 100
_NODE_LINE = 42
"""Characters of one line of a node's text."""


@styled
def two_levels(panels: Panels[GraphView], least: float, note: str) -> Drawn:
    """The two lowest levels of a graph, lower nodes on the left, with their texts (PECAN, Fig. A1).

    The weight of an edge is its width and how red it is; those below ``least`` are left out.
    """
    shown = [
        [[at for at, node in enumerate(view.nodes) if node.level == level][:MOST_NODES] for level in (1, 2)]
        for _, _, view in panels
    ]
    heights = [0.5 * max(len(lower), len(upper)) + 0.5 for lower, upper in shown]
    figure = Figure(figsize=(7.2, sum(heights) + 0.4), layout="constrained")
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


def _node_text(node: DrawnNode) -> str:
    """A node's name and the beginning of its text on up to three lines, as drawn: no text is markup."""
    text = textwrap.shorten(node.text, _TEXT_CHARACTERS, placeholder=" …")
    return "\n".join(textwrap.wrap(f"{node.id}  {text}", _NODE_LINE))


def figure_of(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels, at most two in a row; needs no display."""
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def spread(interval: Interval) -> list[list[float]] | None:
    """The interval as matplotlib's error bars want it; None without one."""
    if interval.low is None or interval.high is None:
        return None
    return [[max(0, interval.mean - interval.low)], [max(0, interval.high - interval.mean)]]


def colours_of(methods: Sequence[str]) -> dict[str, str]:
    """Method -> colour, in the order of their first rows."""
    return {method: COLOURS[i % len(COLOURS)] for i, method in enumerate(dict.fromkeys(methods))}


def marker_of(row: int, colour: str, *, filled: bool = False) -> dict[str, Any]:
    """The marker of a row as properties of a line without a stroke."""
    marker = MARKERS[row % len(MARKERS)]
    pointed = isinstance(marker, tuple) or marker in "d*"
    return {
        "marker": marker, "markersize": 8.0 if pointed else 6.0, "color": colour, "markeredgewidth": 1.3,
        "markerfacecolor": colour if filled else "white", "linestyle": "none", "clip_on": False,
    }  # fmt: skip


def _line_of(at: int) -> dict[str, Any]:
    """Marker, colour and stroke of one of several lines."""
    strokes = {"linestyle": ("-", "--", ":")[at % 3], "linewidth": 1}
    return {**marker_of(at, COLOURS[at % len(COLOURS)]), **strokes}


LEAST_RATIO = 1.5
"""Of a cost axis, its end over its beginning: costs that are nearly the same shall look it."""


def log_axis(ax: Axes) -> None:
    """A logarithmic cost axis with plain numbers at 1, 2 and 5 or, within one decade, at a few places."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    if (wider := (LEAST_RATIO * low / high) ** 0.5) > 1:
        low, high = ax.set_xlim(low / wider, high * wider)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high > 10 * low else MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def add_note(figure: Figure, text: str) -> None:
    """A sentence or two in small print below the panels."""
    width = int(17.5 * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize=7.5, color="#444444")
