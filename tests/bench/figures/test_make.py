"""Figures as definitions: what is drawn, from which cells, and which definitions are refused."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import command
from bench.errors import BenchError, ConfigError, DataError, UnknownNameError
from bench.figures.definition import list_figures, load_figure
from bench.figures.drawing import bars, histories_over_epochs, two_levels
from bench.figures.make import NothingFinishedError, make_figure
from bench.method.graph_view import DrawnEdge, DrawnNode, GraphView
from bench.models.model_set import LoadedModels
from bench.results.models import Summary
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.question_runner import prepare
from bench.run.session import Session
from bench.run.training_plan import TRAINING_PART
from methods.gor.training import Epoch
from tests import cells
from tests.bench.report.finished import finish


def summary(score: float, index_flops: float = 0.0) -> Summary:
    interval = {"mean": score, "low": score - 0.05, "high": score + 0.05}
    return cells.summary(metrics={"rouge_1": interval}, query_flops=interval, index_flops=index_flops)


def values(drawn: Any, folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(drawn.save(folder, "x")[-1].read_text().splitlines()))


def test_bars_have_a_value_and_an_interval_per_variant(tmp_path: Path) -> None:
    drawn = bars([("set", "set (sample)", {"gat": summary(0.2), "gcn": summary(0.1)})], "rouge_1", "Note.")
    assert [label.get_text() for label in drawn.figure.axes[0].get_xticklabels()] == ["gat", "gcn"]
    rows = values(drawn, tmp_path)
    assert [(v["variant"], round(float(v["rouge_1"]))) for v in rows] == [("gat", 20), ("gcn", 10)]
    assert float(rows[0]["rouge_1_low"]) == pytest.approx(15)


def test_loss_and_entropy_are_drawn_over_epochs(tmp_path: Path) -> None:
    history = [vars(Epoch(3.0 - n, 1, 1, 2.0 - n / 2)) for n in range(3)]
    panels = [("set", "set (sample)", {"self-supervised": history, "supervised": history[:2]})]
    drawn = histories_over_epochs(panels, "Note.")
    titles = [ax.get_title() for ax in drawn.figure.axes[:2]]
    assert titles == ["set (sample): loss", "set (sample): entropy"]
    assert [list(line.get_ydata()) for line in drawn.figure.axes[0].lines] == [[3.0, 2.0, 1.0], [3.0, 2.0]]
    rows = values(drawn, tmp_path)
    assert len(rows) == 5
    assert list(rows[-1].values()) == ["set", "supervised", "2", "2.0", "1.5"]


@pytest.mark.parametrize(
    "name", ["pareto", "fig3", "fig4", "figA1", "garlic4", "gor2", "gor3", "gor4", "gor5", "gor6"]
)
def test_nothing_is_computed_where_nothing_may_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(NothingFinishedError, match="--render-only"):
        make_figure(load_figure(name), CellRequest(), Session(tmp_path, compute=False))


def test_both_trainings_see_the_same_documents_and_every_network_is_one_that_the_method_has() -> None:
    def cells(name: str) -> list[Cell]:
        figure = load_figure(name)
        options = (variant.set for variant in figure.variants)
        return [plan_cell(CellRequest(figure.method, "chronicles", options=chosen)) for chosen in options]

    sets = [[documents.id for documents in cell.training.sets] for cell in cells("gor3") if cell.training]
    assert len(sets) == 2 and sets[0] == sets[1] and len(sets[0]) == 8
    assert {variant.set["train_on"] for variant in load_figure("gor3").variants} == {TRAINING_PART}
    assert len({cell.identity.cell_id for cell in cells("gor4")}) == 5


def test_what_is_gone_is_not_made_again_where_nothing_is_computed(tmp_path: Path) -> None:
    cell, indexes = plan_cell(CellRequest("bm25", "qasper", limit=1)), Session(tmp_path).indexes
    sets, models = [cell.data.examples[0].documents], LoadedModels(cell.roles)
    with pytest.raises(BenchError, match="an index is no longer stored; leave out --render-only"):
        asyncio.run(prepare(cell, indexes, models, sets, compute=False))


def test_weak_edges_are_left_out_and_strong_ones_are_thicker(tmp_path: Path) -> None:
    nodes = [DrawnNode(f"1.{n}", 1, f"The $price$ of {n} " + "long " * 60) for n in range(20)]
    nodes += [DrawnNode("2.1", 2, "A point."), DrawnNode("3.1", 3, "Above.")]
    edges = (DrawnEdge(20, 0, 0.5), DrawnEdge(20, 1, 0.049), DrawnEdge(20, 2, 0.05), DrawnEdge(21, 20, 1.0))
    drawn = two_levels([("hotpotqa", "x", GraphView(tuple(nodes), edges))], 0.05, "Note.")
    (ax,) = drawn.figure.axes
    assert [line.get_linewidth() for line in ax.lines] == sorted({line.get_linewidth() for line in ax.lines})
    assert len(ax.lines) == 2 and len(ax.texts) == 14 + 1
    assert all(len(text.get_text()) < 130 for text in ax.texts)
    assert "At most 14 nodes" in drawn.figure._supxlabel.get_text()
    rows = values(drawn, tmp_path)
    drawn_or_not = [(v["lower"], v["upper"], v["drawn"]) for v in rows]
    assert drawn_or_not == [("1.0", "2.1", "1"), ("1.1", "2.1", "0"), ("1.2", "2.1", "1")]


def test_the_graph_of_an_example_is_drawn_from_the_index_cache_and_built_if_it_may_be(tmp_path: Path) -> None:
    figure = load_figure("figA1").model_copy(update={"example": "hotpotqa-sample-003"})
    with pytest.raises(NothingFinishedError):
        make_figure(figure, CellRequest(), Session(tmp_path, compute=False))
    built = make_figure(figure, CellRequest(), Session(tmp_path))
    assert built.rows and all(int(weight >= 0.05) == drawn for *_, weight, drawn in built.rows)
    assert make_figure(figure, CellRequest(), Session(tmp_path, compute=False)).rows == built.rows
    with pytest.raises(UnknownNameError, match="hotpotqa-sample-003"):
        unknown = figure.model_copy(update={"example": "hotpotqa-sample-03"})
        make_figure(unknown, CellRequest(), Session(tmp_path, compute=False))


CURVE = """id: mine
kind: curve
title: Mine
source: this test
about: How many passages are worth their cost.
method: bm25
set: {order: document}
option: k
values: [1, 3]
metric: f1
datasets: [qasper]
"""


def test_anybody_adds_a_figure_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.figures.definition.FOLDER", tmp_path)
    path, results = tmp_path / "mine.yaml", tmp_path / "results"
    path.write_text(CURVE)
    figure = load_figure("mine")
    other = figure.model_copy(update={"metric": "exact_match"})
    with pytest.raises(ConfigError, match="has the metric exact_match"):  # it said: no finished cell
        make_figure(other, CellRequest(limit=2), Session(results))
    for wrong, says in (("metric: F1", "10: metric: Unknown metric 'F1'. Did"), ("", "1: kind curve needs")):
        path.write_text(CURVE.replace("metric: f1", wrong))
        with pytest.raises(DataError, match=f"mine.yaml:{says}"):
            load_figure(str(path))
    path.write_text(CURVE)
    assert [listed_figure.id for listed_figure in list_figures()] == ["mine"]
    for k, score in ((1, 0.0), (3, 1.0)):
        request = CellRequest("bm25", "qasper", options={"order": "document", "k": k}, limit=2)
        finish(results, request, [score, 1.0])
    drawn = make_figure(figure, CellRequest(limit=2), Session(results, compute=False))
    assert drawn.header == ("dataset", "k", "f1", "f1_low", "f1_high", "tflops")
    assert [row[:3] for row in drawn.rows] == [("qasper", 1, 50.0), ("qasper", 3, 100.0)]
    asked = ["figure", str(path), "--limit", "2", "--render-only", "--results", str(results)]
    command.main(asked, standalone_mode=False)
    assert (results / "figures" / "mine.csv").read_text().splitlines()[1].startswith("qasper,1,50.0")
