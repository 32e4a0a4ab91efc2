"""p_yes of a search's steps against what had been read by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.figures.calibration import Calibration, Judged, calibration_of
from bench.figures.definition import load_figure
from bench.figures.make import NothingFinishedError, make_figure
from bench.results.finished import read_finished
from bench.results.records import ContextRecord
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from tests.bench.report.finished import finish

REQUEST = CellRequest("pecan", "narrativeqa", options={"t_p": 8}, limit=2)


def search(answer: str, *p_yes: float) -> dict[str, Any]:
    """A record of a search that reads a node without the answer, then one with it, then one without."""
    texts = ["nothing of note", f"it was {answer}, they say", "more of the same"][: len(p_yes)]
    context = [
        ContextRecord(document=None, title="", start=None, end=None, node=f"2.{at}", text=text)
        for at, text in enumerate(texts)
    ]
    steps = [{"nodes": [{"id": f"2.{at}", "level": 2}], "p_yes": p} for at, p in enumerate(p_yes)]
    return {"context": context, "trace": {"stop": "exhausted", "steps": steps}}


def finished(results: Path, *changes: dict[str, Any]) -> Any:
    return finish(results, REQUEST, (1, 0), dict(enumerate(changes)))


def test_a_step_holds_the_answer_once_a_node_with_it_was_read(tmp_path: Path) -> None:
    examples = plan_cell(REQUEST).data.examples
    answers = [example.answers[0] for example in examples]
    cell = finished(tmp_path, search(answers[0], 0.1, 0.8, 0.9), search(answers[1], 0.3))
    calibration = calibration_of(read_finished(cell.folder(tmp_path)), cell.data.examples)
    assert [(s.p_yes, s.holds_answer) for s in calibration.steps] == [
        (0.1, False), (0.8, True), (0.9, True), (0.3, False),
    ]  # fmt: skip
    assert calibration.questions == 2
    area = calibration.auroc
    assert area is not None and area.mean == 1.0


def test_failed_questions_and_steps_without_a_verdict_are_left_out(tmp_path: Path) -> None:
    failed = {"prediction": None, "error": "WindowExceededError: too long", "context": []}
    unasked = search("x", 0.5)
    unasked["trace"]["steps"][0]["p_yes"] = None
    cell = finished(tmp_path, failed, unasked)
    assert calibration_of(read_finished(cell.folder(tmp_path)), cell.data.examples) == Calibration((), 0)
    with pytest.raises(NothingFinishedError, match="pecan"):
        make_figure(load_figure("pecan_yes"), CellRequest(limit=2), Session(tmp_path, compute=False))


def test_steps_are_grouped_by_their_p_yes() -> None:
    steps = tuple(Judged(at / 20, at % 2 == 0, "d") for at in range(20))
    bins = Calibration(steps, 20).bins()
    assert sum(count for _, _, count in bins) == 20 and len(bins) == 8
    assert [p for p, _, _ in bins] == sorted(p for p, _, _ in bins)
    assert bins[0] == (pytest.approx(0.05), pytest.approx(2 / 3), 3)


def test_the_figure_has_a_line_for_each_finished_variant(tmp_path: Path) -> None:
    answer = plan_cell(REQUEST).data.examples[0].answers[0]
    finished(tmp_path, search(answer, 0.1, 0.8, 0.9), search(answer, 0.3))
    drawn = make_figure(load_figure("pecan_yes"), CellRequest(limit=2), Session(tmp_path, compute=False))
    assert {row[:2] for row in drawn.rows} == {("narrativeqa", "question before")}
    assert sum(int(str(row[-1])) for row in drawn.rows) == 4
