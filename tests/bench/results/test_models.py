from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.metrics.statistics import Interval
from bench.results.curves import curve_point
from bench.results.finished import find_finished, read_finished
from bench.results.models import CellDescription, read_description, read_summary
from bench.results.records import CELL_FILE, SUMMARY_FILE
from bench.run.cell import plan_cell
from bench.run.cell_folder import describe
from tests import cells
from tests.bench.report.finished import bm25, finish, pecan


def rewrite(path: Path, **changes: Any) -> None:
    """The JSON file with other fields; None: without the field."""
    content = {**json.loads(path.read_bytes()), **changes}
    write_json(path, {key: value for key, value in content.items() if value is not None})


def test_both_files_hold_what_was_written_byte_for_byte(tmp_path: Path) -> None:
    folder = finish(tmp_path, bm25(), [1, 0]).folder(tmp_path)
    for name, read in ((SUMMARY_FILE, read_summary), (CELL_FILE, read_description)):
        before = (folder / name).read_bytes()
        write_json(folder / name, read(folder).to_json())
        assert (folder / name).read_bytes() == before


def test_costs_are_in_tflops_and_scores_in_percent() -> None:
    of = cells.summary(
        metrics={"f1": {"mean": 0.25, "low": None, "reason": "one document"}},
        query_flops={"mean": 3e12, "low": 2e12, "high": 4e12},
        index_flops=5e11,
        n_failed=4,
    )
    assert (of.tflops, of.index_tflops) == (3.0, 0.5)
    assert of.query_tflops == Interval(mean=3, low=2, high=4)
    assert of.percent("f1") == Interval(mean=25, reason="one document")
    assert of.all_failed and not cells.summary(n_failed=3).all_failed
    assert of.interval("evidence_recall") is None
    with pytest.raises(KeyError):
        of.interval("rouge_l")


def test_cells_that_differ_in_their_step_alone_are_points_of_one_curve() -> None:
    def point(**options: Any) -> Any:
        return curve_point(describe(plan_cell(pecan(**options))))

    one, two, other = point(t_p=1, t_c=0.9), point(t_p=2, t_c=0.9), point(t_p=2, t_c=0.5)
    assert (one.step, one.name) == (1, "t_c=0.9 pecan over t_p")
    assert two.key == one.key and two.step == 2 and other.key != one.key
    third = point(t_c=0.5, attention_weight=0.3, heads="top_layers", max_levels=3, score_norm="ranks")
    assert third.name.startswith("t_c=0.5 ") and third.name.count("=") == 4
    assert curve_point(cells.description(replayed=["k"], config={"k": None, "b": 1})) is None


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        (SUMMARY_FILE, {"n": "many"}, "field 'n'"),
        (SUMMARY_FILE, {"tokens": {"prompt": 1.0}}, "field 'tokens.completion'"),
        (SUMMARY_FILE, {"query_flops": None}, "field 'query_flops'"),
        (CELL_FILE, {"method": None}, "field 'method'"),
        (CELL_FILE, {"config": [1]}, "field 'config'"),
        (CELL_FILE, {"cell_id": ""}, "field 'cell_id'"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, name: str, content: dict[str, Any], what: str) -> None:
    folder = finish(tmp_path, bm25(), [1, 0]).folder(tmp_path)
    rewrite(folder / name, **content)
    with pytest.raises(BenchError) as raised:
        (read_summary if name == SUMMARY_FILE else read_description)(folder)
    assert str(folder / name) in str(raised.value) and what in str(raised.value)
    assert read_finished(folder) is None and find_finished(tmp_path)[1] == 1


@pytest.mark.parametrize("content", ["", "{", "\x00", "[" * 100_000, "[]", "null"])
def test_a_file_that_is_no_object_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / CELL_FILE).write_text(content)
    with pytest.raises(BenchError, match=CELL_FILE):
        read_description(tmp_path)
    with pytest.raises(BenchError, match=SUMMARY_FILE):
        read_summary(tmp_path)


def test_a_description_written_by_hand_needs_to_name_the_cell_only() -> None:
    about = CellDescription(cell_id="x", method="m", dataset="qasper")
    assert about.data == "qasper" and about.to_json() == {"cell_id": "x", "method": "m", "dataset": "qasper"}
