from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.figures.drawing import COLOURS, distribution, log_axis, trade_off
from bench.figures.pareto import pareto, pareto_front
from bench.results.models import Summary
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row
from bench.tables.published import Published
from tests import cells


def summary(score: float, tflops: float, spread: float = 0.05) -> Summary:
    return cells.summary(
        metrics={"f1": {"mean": score, "low": score - spread, "high": score + spread}},
        query_flops={"mean": 1e12 * tflops, "low": 0.9e12 * tflops, "high": 1.1e12 * tflops},
    )


def table(scores: Mapping[str, tuple[float, float] | None]) -> TableData:
    rows = [Row(id=name, label=name.upper(), method=name) for name in scores]
    points = [
        point
        and cells.finished(
            summary(*point), cells.description(cell_id=str(point), examples=name.partition("-")[2])
        )
        for name, point in scores.items()
    ]
    return cells.table(*(TableCell(row, "hotpotqa", of) for row, of in zip(rows, points, strict=True)))


def test_the_pareto_front_holds_what_nothing_beats() -> None:
    points = [(1.0, 20.0), (2.0, 50.0), (2.0, 60.0), (3.0, 55.0), (4.0, 60.0), (9.0, 61.0)]
    assert pareto_front(points) == [0, 2, 5]
    assert pareto_front([(1.0, 5.0), (2.0, 5.0 + 1e-15)]) == [0] and pareto_front([]) == []
    free = pareto(table({"free": (0.2, 0.0), "dear": (0.5, 2.0)})).figure  # was 400,000 pixels wide
    assert free.axes[0].get_xscale() == "linear"


def test_the_pareto_plot_shows_every_finished_row(tmp_path: Path) -> None:
    scores = {"a": (0.2, 1.0), "b": (0.5, 2.0), "c": (0.4, 3.0), "missing": None}
    drawn = pareto(table(scores))
    png, svg, pdf, values = drawn.save(tmp_path, "pareto")
    assert png.read_bytes()[:4] == b"\x89PNG" and b"<svg" in svg.read_bytes()[:600]
    assert pdf.read_bytes()[:5] == b"%PDF-"
    by_row = {line["row"]: line for line in csv.DictReader(values.read_text().splitlines())}
    assert {row: line["on_pareto_front"] for row, line in by_row.items()} == {"a": "1", "b": "1", "c": "0"}
    assert float(by_row["b"]["f1"]) == pytest.approx(50) and float(by_row["b"]["tflops"]) == pytest.approx(2)
    labels = [str(line.get_label()) for line in drawn.figure.axes[0].lines]
    assert [label for label in labels if not label.startswith("_")] == ["A", "B", "C"]


def test_two_rows_with_one_cell_are_one_point_and_rows_of_other_questions_none() -> None:
    """On HotpotQA three Top-X were Top-5, and their names covered the others."""
    shown = table({"top_5": (0.5, 2.0), "top_x": (0.5, 2.0), "c": (0.4, 3.0), "few-questions": (0.9, 1.0)})
    drawn = pareto(shown).figure
    labels = [str(line.get_label()) for line in drawn.axes[0].lines]
    assert [label for label in labels if not label.startswith("_")] == ["TOP_5", "C"]
    assert "most are not shown" in drawn.texts[-1].get_text()


def test_the_papers_points_stand_beside_ours_on_one_relative_axis(tmp_path: Path) -> None:
    ours = table({"a": (0.2, 1.0), "own": (0.5, 2.0), "c": (0.4, 3.0)})
    ours.definition.__dict__["ratio_to"] = "own"
    paper = {
        (row, "hotpotqa", metric): Published(value, "S", row)
        for row, (score, cost) in {"a": (40, 8), "own": (43.5, 16)}.items()
        for metric, value in (("f1", score), ("tflops", cost))
    }
    drawn = pareto(ours, paper)
    by_row = {line[1]: line for line in drawn.rows}
    assert by_row["a"][2] == 1 and by_row["a"][7:] == (0.5, 0.5, 40)
    assert by_row["own"][7:] == (1, 1, 43.5) and by_row["c"][7:] == (1.5, None, None)
    ax = drawn.figure.axes[0]
    assert ax.get_xlabel() == "cost per question, × OWN"
    grey = [line.get_xydata().tolist() for line in ax.lines if line.get_markeredgecolor() == "#999999"]
    grey = [points for points in grey if len(points) == 1]
    assert grey == [[[0.5, 40]], [[1, 43.5]]] and ax.get_ylim()[1] > 43.5
    without = pareto(table({"a": (0.2, 1.0), "own": None}), paper)
    assert without.figure.axes[0].get_xlabel() == "TFLOPs per question"


def test_same_cells_give_the_same_bytes_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"a": (0.2, 1.0), "b": (0.5, 2.0)}
    first = [p.read_bytes() for p in pareto(table(scores)).save(tmp_path / "1", "x")]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # matplotlib's time, where it writes one
    again = [p.read_bytes() for p in pareto(table(scores)).save(tmp_path / "2", "x")]
    assert first == again and len(first) == 4
    assert not any(b"CreationDate" in content or b"<dc:date>" in content for content in first)


def test_methods_can_be_told_apart_without_colour() -> None:
    scores = {name: (0.1 + 0.03 * i, 1.0 + i) for i, name in enumerate("abcdefghijklm")}  # as many as Table 1
    lines = [line for line in pareto(table(scores)).figure.axes[0].lines if line.get_label()[0] != "_"]
    assert len({line.get_marker() for line in lines}) == 13
    assert len({line.get_color() for line in lines}) == len(COLOURS)


def test_costs_that_are_nearly_the_same_stand_near_each_other() -> None:
    from matplotlib.figure import Figure

    ends = {}
    for costs in ((3.169, 3.179), (1.0, 9.0)):
        ax = Figure().add_subplot()
        ax.plot(costs, (50, 60), "o")
        log_axis(ax)
        ends[costs] = ax.get_xlim()
    (low, high), (_, far) = ends.values()
    assert high / low == pytest.approx(1.5) and low < 3.169 < 3.179 < high and far > 9


def test_every_row_is_in_the_legend_by_its_marker_and_no_name_covers_a_point() -> None:
    scores = {f"method {i}": (0.5 + 0.002 * i, 1.0 + 0.01 * i) for i in range(13)}
    figure = pareto(table(scores)).figure
    ((ax,), (legend,)) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"METHOD {i}" for i in range(13)]
    drawn = [line.get_marker() for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_marker() for line in legend.legend_handles] == drawn and not ax.texts  # type: ignore[union-attr]
    figure.draw_without_rendering()
    assert not legend.get_window_extent().overlaps(ax.get_window_extent())


def test_the_trade_off_has_a_point_for_every_step(tmp_path: Path) -> None:
    by_value = {i: summary(0.25 + 0.05 * i, float(i)) for i in (1, 2, 3)}
    panels = [(name, name, by_value) for name in ("hotpotqa", "musique", "qasper")]
    drawn = trade_off(panels, "f1", "t_p", "note")
    drawn.save(tmp_path, "fig4")
    assert len(drawn.rows) == 9
    assert [row[1] for row in drawn.rows[:3]] == [1, 2, 3]
    assert [round(float(str(row[5])), 6) for row in drawn.rows[:3]] == [1, 2, 3]


def test_the_distribution_counts_questions_by_nodes_and_hops_in_percent(tmp_path: Path) -> None:
    counts = {"qasper": {0: [1, 3, 3, 0]}, "musique": {4: [2], 2: [1, 1, 2]}, "hotpotqa": {}}
    drawn = distribution([(name, name, of) for name, of in counts.items()], "note", "nodes retrieved")
    drawn.save(tmp_path, "fig3")
    assert drawn.rows[:4] == tuple(("qasper", "", read, n) for read, n in enumerate((1, 1, 0, 2)))
    assert drawn.rows[4:7] == (("musique", 2, 0, 0), ("musique", 2, 1, 2), ("musique", 2, 2, 1))
    musique = drawn.figure.axes[1]
    tops = [bar.get_y() + bar.get_height() for bar in musique.patches]
    assert tops == [0, 50, 25, 0, 50, 50], "four hops stand on two"
    named = [text.get_text() for text in musique.get_legend().get_texts()]
    assert sorted(named) == ["2 hops (n = 3)", "4 hops (n = 1)", "mean 1.5"]


def test_the_distribution_of_questions_of_many_hops_has_a_shade_for_each() -> None:
    drawn = distribution([("own", "O", {hops: [1] for hops in range(7)})], "note", "nodes retrieved")
    (panel,) = drawn.figure.axes
    assert len({bar.get_facecolor() for bar in panel.patches}) == 7
    assert "? hops (n = 1)" in [text.get_text() for text in panel.get_legend().get_texts()]
    assert all(tick == int(tick) for tick in panel.get_xticks())
