"""The first screen of the report: its pictures, and the sentences that say what they say."""

from __future__ import annotations

from pathlib import Path

from bench.report.cells import grouped
from bench.report.figure_part import FigurePart
from bench.report.overview import MAX_POINTS, Point, findings, planes
from bench.results.finished import find_finished
from bench.results.models import Interval
from tests.bench.report.finished import bm25, finish, pecan


def point(name: str, score: float, tflops: float, spread: float | None = 5) -> Point:
    if spread is None:
        return Point(name, Interval(mean=score), tflops)
    return Point(name, Interval(mean=score, low=score - spread, high=score + spread), tflops)


def pictures(results: Path) -> list[FigurePart]:
    """The pictures of all finished cells."""
    return planes(grouped(find_finished(results).finished, {}))


def test_the_best_and_the_cheapest_are_named_with_their_costs() -> None:
    text = findings([point("a", 40, 1), point("b", 60, 4), point("c", 58, 5)], "F1")
    assert text == (
        "b scores highest, F1 60.0 % [55.0, 65.0], with 4.00 TFLOPs per question. The cheapest, a, takes "
        "0.25 times as much and scores 40.0 % [35.0, 45.0]. Its interval overlaps those of 1 of the 2 others."
    )


def test_of_equal_scores_the_cheapest_is_the_best() -> None:
    text = findings([point("a", 60, 2), point("b", 60, 1), point("c", 10, 3)], "F1")
    assert text.startswith("b and 1 other score highest") and "the cheapest of them, with 1.00" in text
    assert "No other is cheaper." in text


def test_scores_that_the_questions_do_not_rank_are_said_to_be_so() -> None:
    assert "do not rank them" in findings([point("a", 40, 1), point("b", 42, 4)], "F1")
    assert "overlaps no other" in findings([point("a", 40, 1), point("b", 60, 4)], "F1")
    assert "may be chance" in findings([point("a", 40, 1, None), point("b", 60, 4, None)], "F1")


def test_a_data_set_has_a_picture_where_two_cells_asked_the_same(tmp_path: Path) -> None:
    finish(tmp_path, bm25(), [1, 0])
    assert pictures(tmp_path) == []
    finish(tmp_path, pecan(limit=1), [1])
    assert pictures(tmp_path) == []
    finish(tmp_path, pecan(), [1, 1])
    (plane,) = pictures(tmp_path)
    assert plane.title == "Score over cost on hotpotqa (sample)" and b"<svg" in plane.svg
    assert plane.about.startswith("pecan questions=2 scores highest, F1 100.0 %") and len(plane.rows) == 2
    assert [row[1] for row in plane.rows] == ["bm25", "pecan questions=2"]


def test_a_picture_of_many_cells_keeps_the_front_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    for k in range(1, MAX_POINTS + 3):
        finish(tmp_path, bm25(k=k), [0.5, 0.1])
    finish(tmp_path, pecan(), [1, 1])
    (plane,) = pictures(tmp_path)
    assert len(plane.rows) == MAX_POINTS and "pecan" in plane.about
    assert sum(row[6] == "1" for row in plane.rows) == 1
    assert plane.about.endswith("3 of the 19 cells are in the list below only.")
