"""Scores and costs by the length of the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data.lengths import LENGTH
from bench.errors import ConfigError
from bench.figures.definition import load_figure, with_more_rows
from bench.figures.lengths import at_length, grouped_by_length
from bench.figures.make import make_figure
from bench.results.finished import read_finished
from bench.run.cell import CellRequest
from bench.run.session import Session
from bench.schema import Document, DocumentSet, Example
from tests.bench.report.finished import finish


def example(name: str, words: int, length: int | None = None) -> Example:
    return Example(
        id=name,
        dataset="hotpotqa",
        task="qa",
        question="q",
        answers=("a",),
        documents=DocumentSet((Document("", "word " * words),)),
        metadata={} if length is None else {LENGTH: length},
    )


def test_questions_are_grouped_by_the_length_that_they_were_made_for() -> None:
    grouped = grouped_by_length([example("a", 9, 800), example("b", 1, 400), example("c", 2, 800)])
    assert grouped.unit == "tokens"
    assert grouped.groups == ((400, frozenset("b")), (800, frozenset("ac")))


def test_other_questions_are_grouped_in_quarters_by_words() -> None:
    grouped = grouped_by_length([example(str(n), n) for n in (9, 1, 3, 7, 5, 11)])
    assert grouped.unit == "words"
    assert [(length, sorted(ids)) for length, ids in grouped.groups] == [
        (2, ["1", "3"]), (6, ["5", "7"]), (9, ["9"]), (11, ["11"]),
    ]  # fmt: skip
    assert grouped_by_length([]).groups == ()


def test_the_figure_has_the_means_of_each_length(tmp_path: Path) -> None:
    cell = finish(tmp_path, CellRequest("bm25", "hotpotqa", options={"k": 5}, limit=4), (1, 0.5, 0, 0))
    done = read_finished(cell.folder(tmp_path))
    assert done is not None
    points = at_length(done, grouped_by_length(cell.data.examples), "f1")
    assert sum(point.score for point in points) == 150 and [point.questions for point in points] == [1] * 4
    assert all(point.tflops == pytest.approx(0.002) for point in points)
    drawn = make_figure(load_figure("lengths"), CellRequest(limit=4), Session(tmp_path, compute=False))
    assert drawn.header == ("dataset", "row", "length", "questions", "f1", "tflops")
    assert [row[1] for row in drawn.rows] == ["BM25 Top-5"] * 4
    assert len([ax for ax in drawn.figure.axes if ax.get_visible()]) == 2


def test_rows_can_be_added_to_a_figure_that_compares_rows_over_lengths() -> None:
    figure = with_more_rows(load_figure("lengths"), ["rerank:k=3"])
    assert (figure.rows[-1].method, figure.rows[-1].set) == ("rerank", {"k": 3})
    with pytest.raises(ConfigError, match="pareto: --row"):
        with_more_rows(load_figure("pareto"), ["rerank"])
