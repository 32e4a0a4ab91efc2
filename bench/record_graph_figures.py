"""The figures of Graph of Records: simulated queries, self-supervision against supervision, kinds of network.

Every point is a cell of the method ``gor``, which is run first where there is a session to run it. What is
drawn over epochs is the history that its training keeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.asking import make_ready
from bench.cards import Card, load_card
from bench.cell import Cell, CellRequest, plan_cell
from bench.cell_folder import finished_summary
from bench.errors import BenchError
from bench.figure_cells import reader_note, require_finished
from bench.figures import DARK, MARKERS, Curve, Drawn, add_note, figure_of, point_of, styled, trade_off
from bench.index_store import IndexStore
from bench.learning import TRAINING_PART, NoTrainingDataError
from bench.rendering import METRIC_LABELS, three_digits
from bench.schema import JsonValue
from bench.session import Session
from bench.tables import load_table

log = logging.getLogger(__name__)

METHOD = "gor"
TABLE = "gor1"
"""The table whose data sets and first metric the figures show."""
QUERIES = (5, 10, 20, 30, 40)
"""Simulated queries per document set; the paper's is 30.  # our choice of the others"""
NETWORKS: Mapping[str, str] = {
    "gat": "GAT",
    "gcn": "GCN",
    "sgc": "SGC",
    "gin": "GIN",
    "sage": "GraphSAGE",
}
"""Kind, as the method's option ``gnn`` names it -> as drawn."""
LEARNING: Mapping[str, Mapping[str, JsonValue]] = {
    "self-supervised": {"train_on": TRAINING_PART},
    "supervised": {"train_on": TRAINING_PART, "supervised": "on"},
}
"""Label -> options: the same documents, once without and once with their questions and references."""


@dataclass(frozen=True)
class _Found:
    """A finished cell."""

    cell: Cell
    summary: Mapping[str, JsonValue]


def draw_records(name: str, base: CellRequest, results: Path, session: Session | None = None) -> Drawn:
    """The figure ``gor2``, ``gor3`` or ``gor4`` from finished cells below ``results``.

    base: a request without method and data set; it gives model, data, limit and seed. session: runs the cells
    that are missing; None: nothing is run. Raises NothingFinishedError when there is nothing to draw.
    """
    return {"gor2": _queries, "gor3": _learning, "gor4": _networks}[name](base, results, session)


def _queries(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    curves = []
    for card in _cards(base):
        found = [_cell(base, card, {"queries": count}, results, session) for count in QUERIES]
        done = [one for one in found if one is not None]
        if len(done) == len(found):
            summaries = tuple(one.summary for one in done)
            curves.append(Curve(card.name, done[0].cell.data.label, QUERIES, summaries))
    counts = ", ".join(map(str, QUERIES))
    require_finished(bool(curves), f"{METHOD} with each of {counts} simulated queries", base)
    note = f"TFLOPs are those of a question. {' '.join(map(graph_cost, curves))} {reader_note(base)}"
    return trade_off(curves, _metric(), "simulated queries", note)


def graph_cost(curve: Curve) -> str:
    """What the graphs of the fewest and of the most queries cost: the questions' cost hardly shows it."""
    few, many = (three_digits(float(curve.summaries[at]["index_flops"]) / 1e12) for at in (0, -1))
    return (
        f"{curve.dataset}: graph and training cost {few} TFLOPs per document set with {curve.steps[0]} "
        f"queries, {many} with {curve.steps[-1]}."
    )


def _networks(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    panels = []
    for card in _cards(base):
        found = {kind: _cell(base, card, {"gnn": kind}, results, session) for kind in NETWORKS}
        done = {kind: one for kind, one in found.items() if one is not None}
        if done:
            label = next(iter(done.values())).cell.data.label
            panels.append((card.name, label, {NETWORKS[kind]: one.summary for kind, one in done.items()}))
    require_finished(bool(panels), f"{METHOD} with any of the networks {', '.join(NETWORKS)}", base)
    return bars(panels, _metric(), reader_note(base))


def _learning(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    panels = []
    for card in _cards(base):
        histories: dict[str, Sequence[Mapping[str, float]]] = {}
        label = ""
        for name, options in LEARNING.items():
            found = _cell(base, card, options, results, session)
            if found is not None:
                histories[name], label = _history(found.cell, results), found.cell.data.label
        if histories:
            panels.append((card.name, label, histories))
    require_finished(bool(panels), f"{METHOD}, self-supervised or supervised", base)
    return histories_over_epochs(panels, reader_note(base))


def _history(cell: Cell, results: Path) -> Sequence[Mapping[str, float]]:
    """The epochs of the training behind a finished cell."""
    from bench.models.model_set import LoadedModels

    ready = asyncio.run(make_ready(cell, IndexStore(results / "indexes"), LoadedModels(cell.roles), ()))
    history: Sequence[Mapping[str, float]] = ready.learned.data["history"] if ready.learned else ()
    if not history:
        raise BenchError(
            f"{cell.identity.folder}: nothing was learned, so there is no loss to draw: its documents gave "
            "no simulated query."
        )
    return history


@styled
def bars(
    panels: Sequence[tuple[str, str, Mapping[str, Mapping[str, JsonValue]]]], metric: str, note: str
) -> Drawn:
    """A score per variant with its interval; panels: (data set, label, variant -> summary), one each."""
    figure, axes = figure_of(len(panels))
    values: list[tuple[object, ...]] = []
    for ax, (dataset, label, variants) in zip(axes, panels, strict=True):
        for at, (variant, summary) in enumerate(variants.items()):
            point = point_of(summary, metric)
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
    """Loss and entropy over epochs; panels: (data set, label, training -> epochs), two of them each."""
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
            (dataset, name, epoch, found["loss"], found["entropy"])
            for name, epochs in histories.items()
            for epoch, found in enumerate(epochs, start=1)
        ]
    add_note(
        figure,
        "Entropy: of the softmax over a query's nodes, in nats; lower is surer. Both learn from the same "
        "documents, but from other queries and rankings. " + note,
    )
    return Drawn(figure, ("dataset", "training", "epoch", "loss", "entropy"), tuple(values))


def _cards(base: CellRequest) -> list[Card]:
    return [load_card(name) for name in load_table(TABLE).on(base.data).datasets]


def _metric() -> str:
    return load_table(TABLE).metrics[0]


def _cell(
    base: CellRequest, card: Card, options: Mapping[str, JsonValue], results: Path, session: Session | None
) -> _Found | None:
    """The cell of these options, run first where there is a session; None where it is not finished."""
    try:
        cell = plan_cell(replace(base, method=METHOD, dataset=card.name, options=dict(options)))
    except NoTrainingDataError as error:
        log.warning("%s: left out: %s", card.name, error)
        return None
    if session is not None:
        session.run(cell)
    summary = finished_summary(cell, cell.folder(results))
    return None if summary is None else _Found(cell, summary)
