"""The figures of Graph of Records: what is drawn, and from which cells."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from bench.cell import CellRequest, plan_cell
from bench.cli import command
from bench.figure_cells import NothingFinishedError
from bench.figures import Curve
from bench.learning import TRAINING_PART
from bench.record_graph_figures import (
    LEARNING,
    NETWORKS,
    bars,
    draw_records,
    graph_cost,
    histories_over_epochs,
)


def summary(score: float) -> dict[str, Any]:
    interval = {"mean": score, "low": score - 0.05, "high": score + 0.05, "reason": ""}
    return {"metrics": {"rouge_1": interval}, "query_flops": interval}


def values(drawn: Any, folder: Path) -> list[dict[str, str]]:
    paths = drawn.save(folder, "x")
    return list(csv.DictReader(paths[-1].read_text().splitlines()))


def test_bars_have_a_value_and_an_interval_per_variant(tmp_path: Path) -> None:
    drawn = bars([("set", "set (sample)", {"gat": summary(0.2), "gcn": summary(0.1)})], "rouge_1", "Note.")
    assert [label.get_text() for label in drawn.figure.axes[0].get_xticklabels()] == ["gat", "gcn"]
    found = values(drawn, tmp_path)
    assert [(v["variant"], round(float(v["rouge_1"]))) for v in found] == [("gat", 20), ("gcn", 10)]
    assert float(found[0]["rouge_1_low"]) == pytest.approx(15)


def test_what_the_graphs_of_few_and_many_queries_cost_is_said() -> None:
    cells = tuple({**summary(0.2), "index_flops": flops} for flops in (1e11, 5e11, 2.5e12))
    told = graph_cost(Curve("set", "set (sample)", (5, 10, 40), cells))
    assert told == "set: graph and training cost 0.100 TFLOPs per document set with 5 queries, 2.50 with 40."


def test_loss_and_entropy_are_drawn_over_epochs(tmp_path: Path) -> None:
    history = [{"loss": 3.0 - n, "entropy": 2.0 - n / 2} for n in range(3)]
    panels = [("set", "set (sample)", {"self-supervised": history, "supervised": history[:2]})]
    drawn = histories_over_epochs(panels, "Note.")
    titles = [ax.get_title() for ax in drawn.figure.axes[:2]]
    assert titles == ["set (sample): loss", "set (sample): entropy"]
    assert [list(line.get_ydata()) for line in drawn.figure.axes[0].lines] == [[3.0, 2.0, 1.0], [3.0, 2.0]]
    found = values(drawn, tmp_path)
    assert len(found) == 5
    assert found[-1] == {
        "dataset": "set",
        "training": "supervised",
        "epoch": "2",
        "loss": "2.0",
        "entropy": "1.5",
    }


@pytest.mark.parametrize("name", ["gor2", "gor3", "gor4"])
def test_nothing_is_computed_where_nothing_may_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(NothingFinishedError, match="--render-only"):
        draw_records(name, CellRequest("", ""), tmp_path)
    with pytest.raises(NothingFinishedError):
        command.main(["figure", name, "--render-only", "--results", str(tmp_path)], standalone_mode=False)


def test_both_trainings_see_the_same_documents_and_every_network_is_one_that_the_method_has() -> None:
    plans = [
        plan_cell(CellRequest("gor", "chronicles", options=options)).training for options in LEARNING.values()
    ]
    assert all(plan is not None for plan in plans)
    sets = [[documents.id for documents in plan.sets] for plan in plans if plan]
    assert sets[0] == sets[1] and len(sets[0]) == 8
    assert {options["train_on"] for options in LEARNING.values()} == {TRAINING_PART}
    for kind in NETWORKS:
        plan_cell(CellRequest("gor", "chronicles", options={"gnn": kind}))
