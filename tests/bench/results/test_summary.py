from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.models.conversation import ModelSet
from bench.results.comparison import compare
from bench.results.index_store import IndexStore
from bench.results.models import read_summary
from bench.results.summary import summarize
from bench.run.cell import CellRequest, plan_cell
from bench.run.cell_folder import finished_cell
from tests.bench.report.finished import finish, record
from tests.stand_ins import run_cell


def test_a_metric_that_the_records_lack_is_scored_from_their_text_without_any_model(tmp_path: Path) -> None:
    cell = finish(tmp_path, CellRequest("bm25", "hotpotqa", limit=4), (1, 0, 1, 0))
    folder = cell.folder(tmp_path)
    more = replace(cell, card=cell.card.model_copy(update={"metrics": (*cell.card.metrics, "exact_match")}))
    assert "exact_match" not in read_summary(folder).metrics

    def refuse() -> ModelSet:
        raise AssertionError("a model was loaded")

    assert finished_cell(more, folder) is None
    result = run_cell(more, folder, IndexStore(tmp_path / "indexes"), refuse)
    assert result.answered == 0
    assert compare(result.records, result.records, "exact_match").equal == 4, "the records have it, too"
    # Two of the four predictions are the first reference, the others are "something else".
    assert result.summary.metrics["exact_match"].mean == 0.5
    assert result.summary.metrics["f1"].mean == 0.5
    found = finished_cell(more, folder)
    assert found is not None and found.summary == result.summary


def test_a_failed_question_scores_0_in_a_new_metric_too() -> None:
    examples = plan_cell(CellRequest("bm25", "hotpotqa", limit=2)).data.examples
    rows = [record(examples[0], 1), record(examples[1], 0, prediction=None, error="ValueError: no")]
    assert summarize(rows, ["exact_match"]).metrics["exact_match"].mean == 0.5


def test_an_index_that_failed_for_one_question_cost_what_it_cost_another() -> None:
    (example,) = plan_cell(CellRequest("bm25", "hotpotqa", limit=1)).data.examples
    built, failed = record(example, 1), record(example, 0, prediction=None, error="TimeoutError: index")
    failed = failed.model_copy(update={"flops": built.flops.model_copy(update={"index": 0})})
    for order in ([built, failed], [failed, built]):
        assert summarize(order, ["f1"]).index_flops == built.flops.index > 0


def test_questions_without_a_reference_are_in_no_score() -> None:
    examples = plan_cell(CellRequest("bm25", "hotpotqa", limit=2)).data.examples
    asked = record(examples[1], 0).model_copy(update={"answers": [], "scores": {}})
    summary = summarize([record(examples[0], 1), asked], ["f1", "bleu_4"])
    assert (summary.n, summary.n_unscored, summary.metrics["f1"].mean) == (2, 1, 1)
    none = summarize([asked], ["f1", "bleu_4"])
    assert (none.metrics, none.interval("f1"), none.n_scored) == ({}, None, 0)
    assert "n_unscored" not in summarize([record(examples[0], 1)], ["f1"]).to_json()


def test_bleu_of_a_summary_counts_drawn_answers() -> None:
    (example,) = plan_cell(CellRequest("bm25", "hotpotqa", limit=1)).data.examples
    text = "the kite lay in the mill"
    asked = record(example, 1).model_copy(update={"prediction": text, "answers": [text]})
    drawn = asked.model_copy(update={"drawn": ["the kite was sold at a fair"]})
    assert summarize([drawn], ["bleu_4"]).metrics["bleu_4"].mean < 1
    assert summarize([asked], ["bleu_4"]).metrics["bleu_4"].mean == pytest.approx(1)
