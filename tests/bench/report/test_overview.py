"""The pictures of the report."""

import json
from pathlib import Path

from bench.report.cells import grouped
from bench.report.overview import MAX_POINTS, Plane, planes
from bench.results.finished import find_finished
from tests.bench.report.finished import bm25, finish, pecan


def pictures(results: Path) -> list[Plane]:
    """The pictures of all finished cells."""
    return planes(grouped(find_finished(results)[0]))


def test_a_data_set_has_a_picture_where_two_cells_asked_the_same(tmp_path: Path) -> None:
    finish(tmp_path, bm25(), [1, 0])
    assert pictures(tmp_path) == []
    finish(tmp_path, pecan(limit=1), [1])
    assert pictures(tmp_path) == []
    finish(tmp_path, pecan(), [1, 1])
    (plane,) = pictures(tmp_path)
    assert plane.title == "Score over cost on hotpotqa (sample)" and b"<svg" in plane.svg
    assert plane.about.startswith("Highest: pecan questions=2, F1 100.0 %") and len(plane.rows) == 2
    assert [row[1] for row in plane.rows] == ["pecan questions=2", "bm25"]
    for path in tmp_path.rglob("cell.json"):  # as one written by hand may be
        path.write_text(path.read_text().replace('"metrics"', '"no_metrics"'))
    assert len(pictures(tmp_path)) == 1


def test_cells_of_another_metric_than_most_are_in_no_picture(tmp_path: Path) -> None:
    """A cell from before its data set's metrics changed took the whole report down."""
    folders = [finish(tmp_path, bm25(k=k), [1, 0]).folder(tmp_path) for k in (1, 2, 3)]

    def of_old_metric(folder: Path) -> None:
        old = {"cell": {"metrics": ["old"]}, "summary": {"metrics": {"old": {"mean": 1.0}}, "checksum": ""}}
        for name, changed in old.items():
            path = folder / f"{name}.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    of_old_metric(folders[2])
    (plane,) = pictures(tmp_path)
    assert [row[1] for row in plane.rows] == ["bm25 k=1", "bm25 k=2"]
    assert plane.about.endswith("1 of the 3 cells stand in the list below only.")
    of_old_metric(folders[1])
    (plane,) = pictures(tmp_path)
    assert "old 100.0 %" in plane.about


def test_a_picture_of_many_cells_keeps_the_front_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    for k in range(1, MAX_POINTS + 3):
        finish(tmp_path, bm25(k=k), [0.5, 0.1])
    finish(tmp_path, pecan(), [1, 1])
    (plane,) = pictures(tmp_path)
    assert len(plane.rows) == MAX_POINTS and "pecan" in plane.about
    assert sum(row[6] == "1" for row in plane.rows) == 1
    assert plane.about.endswith("3 of the 19 cells stand in the list below only.")
