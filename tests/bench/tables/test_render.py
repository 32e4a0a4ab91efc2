from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.results.models import Summary
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row
from bench.tables.formats import latex_escape
from bench.tables.published import Published
from bench.tables.render import render, three_digits
from methods.pecan.describing import FLAGGED_EVENTS
from tests import cells


def summary(f1: float, tflops: float, **more: Any) -> Summary:
    fields: dict[str, Any] = {
        "n": 40,
        "metrics": {"f1": {"mean": f1, "low": f1 - 0.05, "high": f1 + 0.05}},
        "query_flops": {"mean": tflops * 1e12},
    }
    return cells.summary(**{**fields, **more})


MODELS = {"reader": {"name": "tiny"}, "embedder": {"name": "minilm"}}
ABOUT: dict[str, Any] = {"model_label": "tiny & co_", "model_small": False, "data_source": "path"}
DESCRIPTION = cells.description(models=MODELS, **ABOUT)


def described(cell: TableCell, **fields: Any) -> TableCell:
    """The cell, if it is finished, with another description."""
    if cell.finished is None:
        return cell
    about = DESCRIPTION.model_copy(update=fields)
    return replace(cell, finished=replace(cell.finished, description=about))


def cell(row: Row, of: Summary) -> TableCell:
    return TableCell(row, "qasper", cells.finished(of, DESCRIPTION))


@pytest.fixture
def table() -> TableData:
    bm25, pecan, dragon = (
        Row(id="bm25_top5", label="BM25 Top-5", method="bm25"),
        Row(id="pecan", label="PECAN | 100%", method="pecan"),
        Row(id="dragon", label="Dragon", method="dragon"),
    )
    said = {
        "n_unscored": 4,
        "n_failed": 3,
        "errors": {"ValueError": 3},
        "n_truncated": 2,
        "flags": {"empty_document": 1},
    }
    shown = (cell(bm25, summary(0.25, 1.0)), cell(pecan, summary(0.5, 2.0, **said)))
    return cells.table(*shown, TableCell(dragon, "qasper", None, "not run yet"), ratio_to="pecan")


PUBLISHED = {("bm25_top5", "qasper", "f1"): Published(44.1, "Table 1", "BM25 Top-5")}


def test_markdown_shows_ours_beside_the_published_value(table: TableData) -> None:
    text = render(table, PUBLISHED).markdown()
    row = next(line for line in text.splitlines() if "BM25" in line)
    shown = "| BM25 Top-5 | 25.0 [20.0, 30.0] | 1.00 | 0.50 | 40 | 44.1 (−19.1) |"
    assert " ".join(row.split()) == shown
    assert "in brackets, ours minus it." in text


def test_no_column_stands_for_what_the_papers_do_not_print(table: TableData) -> None:
    text = render(table, {}).markdown()
    assert "publ. |" not in text and "in brackets" not in text
    assert "The papers print none of these values." in text
    assert "published" not in render(table, {}).latex().split("\\bottomrule")[0]


def test_a_prompt_that_was_set_is_named_in_the_place_of_the_method_s_own(table: TableData) -> None:
    for changed, said in (((), "the method's own"), (("prompt",), "longbench")):
        of = {"config": {"prompt": "longbench"}, "choices": {"wording": "paper"}, "non_defaults": changed}
        shown = replace(table, cells={key: described(cell, **of) for key, cell in table.cells.items()})
        assert f"Prompt: {said}." in render(shown, {}).markdown()


@pytest.mark.parametrize("stand_in", [{"model_small": True}, {"data_source": "sample"}])
def test_nothing_is_subtracted_from_a_published_value_where_reader_or_data_are_stand_ins(
    table: TableData, stand_in: dict[str, Any]
) -> None:
    shown = replace(table, cells={key: described(cell, **stand_in) for key, cell in table.cells.items()})
    rendered = render(shown, PUBLISHED)
    for text in (rendered.markdown(), rendered.latex()):
        assert "44.1" in text and "44.1 (" not in text and "ours against it" not in text
        assert "stand-ins, so no difference is shown" in text
    row = next(csv.DictReader(io.StringIO(rendered.csv)))
    assert (row["published"], row["difference"]) == ("44.1", "")


def test_a_row_without_published_values_does_not_make_the_others_comparable(table: TableData) -> None:
    # An added row, such as --row closed_book, has neither a stand-in nor a published value.
    shown = {
        key: replace(cell, row=cell.row.model_copy(update={"stand_in": key[0] == "bm25_top5"}))
        for key, cell in table.cells.items()
    }
    text = render(replace(table, cells=shown), PUBLISHED).markdown()
    assert "no difference is shown" in text and "in brackets" not in text


def test_a_published_value_stands_alone_where_we_have_none(table: TableData) -> None:
    known = {
        ("dragon", "qasper", "f1"): Published(50.5, "Table 1", "Dragon"),
        ("pecan", "qasper", "f1"): Published(50.0, "Table 1", "PECAN"),
        ("pecan", "qasper", "tflops"): Published(2.02, "Table 1", "PECAN"),
    }
    lines = [line.split("|") for line in render(table, known).markdown().splitlines()]
    shown = {line[1].strip(" \\"): [cell.strip() for cell in line[-3:-1]] for line in lines if len(line) > 8}
    assert shown["Dragon"] == ["50.5", "–"]
    assert shown["PECAN"] == ["50 (0.0)", "2.02 (−1.0 %)"]


@pytest.mark.parametrize(
    ("printed", "beside"), [(0.25, "0.25 (+300 %)"), (4.0, "4 (−75 %)"), (0.98, "0.98 (+2.0 %)")]
)
def test_a_cost_is_said_in_percent_of_the_published(table: TableData, printed: float, beside: str) -> None:
    """1 TFLOP is four times 0.25, which is 300 % more, and a quarter of 4."""
    known = {("bm25_top5", "qasper", "tflops"): Published(printed, "Table 1", "BM25 Top-5")}
    row = next(line for line in render(table, known).markdown().splitlines() if "BM25" in line)
    assert row.strip("|").split("|")[-1].strip() == beside


@pytest.mark.parametrize("defined", [40, 39])
def test_a_measure_that_some_questions_do_not_have_says_how_many_do(table: TableData, defined: int) -> None:
    recall = {"mean": 0.5, "low": 0.4, "high": 0.6, "reason": "", "n": defined}
    key = ("pecan", "qasper")
    known = summary(0.5, 2.0, retrieval={"evidence_recall": recall})
    shown = {**table.cells, key: cell(table.cells[key].row, known)}
    definition = table.definition.model_copy(update={"metrics": ("f1", "evidence_recall")})
    text = render(TableData(definition, shown), {}).markdown()
    assert ("is defined for" in text) == (defined < 40)
    if defined < 40:
        assert f"- PECAN | 100%: Recall is defined for {defined} of 40 (qasper)." in text


def test_nothing_stays_hidden(table: TableData) -> None:
    table = replace(table, cells={k: described(c, model_small=True) for k, c in table.cells.items()})
    text = render(table, PUBLISHED).markdown()
    assert (
        "- PECAN | 100%: without a reference answer and not scored: 4 of 40 (qasper); "
        "failed and scored 0: 3 of 40 (qasper: ValueError 3); "
        "truncated context: 2 of 40 (qasper); empty_document: 1 of 40 (qasper)." in text
    )
    assert "docs/records.md, Flags" in text and "No question failed" not in text
    assert "Without values: Dragon: not run yet." in text
    assert "small stand-in" in text and "qasper (sample)" in text and "convention paper" in text
    assert "chunks of 75 tokens, window 2,048" in text and "minilm" in text


def test_every_flag_under_a_table_is_explained() -> None:
    explained = (Path(__file__).parents[3] / "docs" / "records.md").read_text().partition("## Flags")[2]
    methods = Path(__file__).parents[3] / "methods"
    flags = {f"graph_{event}" for event in FLAGGED_EVENTS}
    for source in methods.rglob("*.py"):
        flags |= set(re.findall(r'flags(?:=|\.append\()\(?"(\w+)"', source.read_text()))
    assert {"empty_document", "illegal_action", "graph_cut_bullet"} <= flags
    assert [flag for flag in sorted(flags) if f"`{flag}`" not in explained] == []


def test_rows_without_values_on_some_data_say_on_which(table: TableData) -> None:
    definition = table.definition.model_copy(update={"datasets": ("qasper", "musique")})
    more = {(row.id, "musique"): TableCell(row, "musique", None, "not run yet") for row in definition.rows}
    text = render(TableData(definition, {**table.cells, **more}), PUBLISHED).markdown()
    assert "- Without values on musique: BM25 Top-5, PECAN | 100%: not run yet." in text
    assert "- Without values: Dragon: not run yet." in text


def test_a_missing_interval_has_its_reason(table: TableData) -> None:
    assert "Without an interval" not in render(table, PUBLISHED).markdown()
    alone = {"mean": 0.5, "low": None, "high": None, "reason": "fewer than 2 documents"}
    key = ("pecan", "qasper")
    bare = cell(table.cells[key].row, summary(0.5, 1.0, metrics={"f1": alone}))
    text = render(replace(table, cells={**table.cells, key: bare}), PUBLISHED).markdown()
    assert "- Without an interval: qasper: fewer than 2 documents." in text


def test_a_table_whose_questions_have_not_all_been_asked_says_so_everywhere(table: TableData) -> None:
    finished = table.cells["bm25_top5", "qasper"].finished
    about = DESCRIPTION.model_copy(update={"n_examples": 120, "config": {"k": 7}})
    part = replace(finished, description=about, asked=("q0", "q1"))
    row = Row(id="bm25_top5", label="BM25 Top-X", method="bm25", set={"k": "auto:pecan"})
    changed = {("bm25_top5", "qasper"): TableCell(row, "qasper", part)}
    unfinished = TableData(table.definition, {**table.cells, **changed})
    rendered = render(unfinished, PUBLISHED)
    assert rendered.title == "T (40 of 120 questions a cell)"
    assert "40 of 120" in rendered.sections[0].rows[0] and "40" in rendered.sections[0].rows[1]
    assert any("may still change" in line and "BM25 Top-X" in line for line in rendered.brief)
    whole = unfinished.without_unfinished()
    assert whole.cells["bm25_top5", "qasper"].missing == "not finished yet" and not whole.so_far


def test_latex_is_escaped_and_balanced(table: TableData) -> None:
    text = render(table, PUBLISHED).latex()
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.replace(r"\&", "").count("&") for line in body} == {5}
    assert r"tiny \& co\_" in text and r"100\%" in text and "–" not in text
    for name in ("table*", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    assert latex_escape(r"\{}") == r"\textbackslash{}\{\}"


def test_csv_is_long_and_complete(table: TableData) -> None:
    rows = list(csv.DictReader(io.StringIO(render(table, PUBLISHED).csv)))
    assert len(rows) == 3 * 3  # F1, TFLOPs and their ratio
    first = rows[0]
    assert (first["metric"], first["value"], first["published"]) == ("f1", "25", "44.1")
    assert float(first["difference"]) == pytest.approx(25 - 44.1)
    assert rows[1]["metric"] == "tflops" and rows[1]["value"] == "1"
    assert rows[6]["missing"] == "not run yet" and rows[6]["value"] == ""


def test_costs_have_three_significant_digits() -> None:
    values = {92.53: "92.5", 0.012345: "0.0123", 1830.4: "1830", 0: "0", 0.00001234: "0.0000123", 5: "5.00"}
    assert {value: three_digits(value) for value in values} == values
