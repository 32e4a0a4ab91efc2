from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.published import Published
from bench.rendering import render, three_digits
from bench.table_formats import latex_escape
from bench.tables import Row, TableCell, TableData, TableDefinition
from methods.pecan.describing import FLAGGED_EVENTS


def summary(f1: float, tflops: float, **more: Any) -> dict[str, Any]:
    return {
        "n": 40,
        "n_failed": 0,
        "n_truncated": 0,
        "metrics": {"f1": {"mean": f1, "low": f1 - 0.05, "high": f1 + 0.05, "reason": ""}},
        "query_flops": {"mean": tflops * 1e12, "low": None, "high": None, "reason": ""},
        "flags": {},
        "errors": {},
        **more,
    }


DESCRIPTION: dict[str, Any] = {
    "model": "tiny",
    "model_label": "tiny & co_",
    "model_small": True,
    "dtype": "float32",
    "models": {"reader": {"name": "tiny"}, "embedder": {"name": "minilm"}},
    "geometry": {"chunk_tokens": 75, "window": 2048, "input_limit": 4096},
    "config": {"prompt": "pecan"},
    "flop_convention": "paper",
    "data_label": "qasper (sample)",
    "git_commit": "abc",
    "cell_id": "0123",
    "seed": 0,
}


@pytest.fixture
def table() -> TableData:
    rows = (
        Row(id="bm25_top5", label="BM25 Top-5", method="bm25"),
        Row(id="pecan", label="PECAN | 100%", method="pecan"),
        Row(id="dragon", label="Dragon", method="dragon"),
    )
    definition = TableDefinition(
        id="t", title="T", source="S", datasets=("qasper",), metrics=("f1",), ratio_to="pecan", rows=rows
    )
    failed = summary(
        0.5, 2.0, n_failed=3, errors={"ValueError": 3}, n_truncated=2, flags={"empty_document": 1}
    )
    cells = {
        ("bm25_top5", "qasper"): TableCell(rows[0], "qasper", summary(0.25, 1.0), DESCRIPTION),
        ("pecan", "qasper"): TableCell(rows[1], "qasper", failed, DESCRIPTION),
        ("dragon", "qasper"): TableCell(rows[2], "qasper", None, None, "not run yet"),
    }
    return TableData(definition, cells)


PUBLISHED = {("bm25_top5", "qasper", "f1"): Published(44.1, "Table 1", "BM25 Top-5")}


def test_markdown_shows_ours_beside_the_published_value(table: TableData) -> None:
    text = render(table, PUBLISHED).markdown
    row = next(line for line in text.splitlines() if "BM25" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "BM25 Top-5",
        "25.0 [20.0, 30.0]",
        "1.00",
        "0.50",
        "40",
        "44.1 (−19.1)",
    ]
    assert "in brackets, ours minus it." in text and "No published TFLOPs of these rows" in text


def test_nothing_is_said_beside_what_was_never_read(table: TableData) -> None:
    text = render(table, {}).markdown
    assert "publ. |" not in text and "in brackets" not in text
    assert "No published value of these rows could be read at a source." in text
    assert "published" not in render(table, {}).latex.split("\\bottomrule")[0]


def test_a_published_value_stands_alone_where_we_have_none(table: TableData) -> None:
    known = {
        ("dragon", "qasper", "f1"): Published(50.5, "Table 1", "Dragon"),
        ("pecan", "qasper", "f1"): Published(50.0, "Table 1", "PECAN"),
        ("pecan", "qasper", "tflops"): Published(2.02, "Table 1", "PECAN"),
    }
    shown = {
        cells[1].strip(" \\"): [cell.strip() for cell in cells[-3:-1]]
        for line in render(table, known).markdown.splitlines()
        if len(cells := line.split("|")) > 8
    }
    assert shown["Dragon"] == ["50.5", "–"]
    assert shown["PECAN"] == ["50 (0.0)", "2.02 (−1.0 %)"]


def test_nothing_stays_hidden(table: TableData) -> None:
    text = render(table, PUBLISHED).markdown
    assert (
        "- PECAN | 100%: failed and scored 0: 3 of 40 (qasper: ValueError 3); "
        "truncated context: 2 of 40 (qasper); empty_document: 1 of 40 (qasper)." in text
    )
    assert "docs/records.md, Flags" in text and "No question failed" not in text
    assert "Without values: Dragon: not run yet." in text
    assert "small stand-in" in text and "qasper (sample)" in text and "convention paper" in text
    assert "chunks of 75 tokens, window 2,048" in text and "minilm" in text


def test_every_flag_under_a_table_is_explained() -> None:
    explained = (Path(__file__).parents[2] / "docs" / "records.md").read_text().partition("## Flags")[2]
    methods = Path(__file__).parents[2] / "methods"
    flags = {f"graph_{event}" for event in FLAGGED_EVENTS}
    for source in methods.rglob("*.py"):
        flags |= set(re.findall(r'flags(?:=|\.append\()\(?"(\w+)"', source.read_text()))
    assert {"empty_document", "illegal_action", "graph_cut_bullet"} <= flags
    assert [flag for flag in sorted(flags) if f"`{flag}`" not in explained] == []


def test_rows_without_values_on_some_data_say_on_which(table: TableData) -> None:
    definition = table.definition.model_copy(update={"datasets": ("qasper", "musique")})
    more = {
        (row.id, "musique"): TableCell(row, "musique", None, None, "not run yet") for row in definition.rows
    }
    text = render(TableData(definition, {**table.cells, **more}), PUBLISHED).markdown
    assert "- Without values on musique: BM25 Top-5, PECAN | 100%: not run yet." in text
    assert "- Without values: Dragon: not run yet." in text


def test_it_is_said_where_nothing_went_wrong(table: TableData) -> None:
    well = {key: cell for key, cell in table.cells.items() if key[0] != "pecan"}
    rows = tuple(row for row in table.definition.rows if row.id != "pecan")
    definition = table.definition.model_copy(update={"rows": rows})
    text = render(TableData(definition, well), PUBLISHED).markdown
    assert "- No question failed and no context was truncated." in text and "docs/records.md" not in text
    assert "×" not in text  # the row that the ratio is to is not there


def test_a_missing_interval_has_its_reason(table: TableData) -> None:
    assert "Without an interval" not in render(table, PUBLISHED).markdown
    alone = {"mean": 0.5, "low": None, "high": None, "reason": "fewer than 2 documents"}
    key = ("pecan", "qasper")
    cells = {**table.cells, key: replace(table.cells[key], summary=summary(0.5, 1.0, metrics={"f1": alone}))}
    text = render(replace(table, cells=cells), PUBLISHED).markdown
    assert "- Without an interval: qasper: fewer than 2 documents." in text


def test_prompts_of_methods_and_stand_ins_are_told_apart(table: TableData) -> None:
    own = {**DESCRIPTION, "config": {}, "models": {**DESCRIPTION["models"], "compressor": {"name": "tiny-s"}}}
    key = ("pecan", "qasper")
    cells = {**table.cells, key: replace(table.cells[key], description=own)}
    text = render(replace(table, cells=cells), PUBLISHED).markdown
    assert "Prompt: pecan (PECAN | 100%: its own)." in text
    assert "Other models: minilm. Other small stand-ins of ours: tiny-s." in text


def test_a_model_whose_scores_show_little_is_said_to_be_one(table: TableData) -> None:
    assert "do not rank the methods" not in render(table, PUBLISHED).markdown
    smollm2 = {**DESCRIPTION, "model_small": False, "models": {"reader": {"name": "smollm2-135m"}}}
    cells = {key: replace(cell, description=smollm2) for key, cell in table.cells.items()}
    text = render(replace(table, cells=cells), PUBLISHED).markdown
    assert text.count("do not rank the methods") == 1
    assert "small stand-in" not in text


def test_rendering_twice_gives_the_same_bytes(table: TableData) -> None:
    assert render(table, PUBLISHED) == render(table, PUBLISHED)


def test_markdown_rows_have_as_many_cells_as_the_header(table: TableData) -> None:
    rows = [line for line in render(table, PUBLISHED).markdown.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7}


def test_latex_is_escaped_and_balanced(table: TableData) -> None:
    text = render(table, PUBLISHED).latex
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.replace(r"\&", "").count("&") for line in body} == {5}
    assert r"tiny \& co\_" in text and r"100\%" in text and "–" not in text
    for name in ("table*", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    assert latex_escape(r"\{}") == r"\textbackslash{}\{\}"


def test_html_shows_the_same_cells(table: TableData) -> None:
    page = render(table, PUBLISHED).html
    assert page.count("<tr>") == 1 + 3 and "<td>44.1 (−19.1)</td>" in page
    assert '<th scope="row">PECAN | 100%</th>' in page and "<li>Without values: Dragon" in page


def test_a_corpus_score_is_explained(table: TableData) -> None:
    assert "BLEU-4" not in render(table, {}).markdown
    definition = table.definition.model_copy(update={"metrics": ("f1", "bleu_4")})
    for cell in table.cells.values():
        if cell.summary is not None:
            cell.summary["metrics"]["bleu_4"] = {"mean": 0.072, "low": 0.05, "high": 0.1, "reason": ""}
    text = render(replace(table, definition=definition), {}).markdown
    assert "7.2 [5.0, 10.0]" in text and "BLEU-4 is one value for all questions together" in text


def test_csv_is_long_and_complete(table: TableData) -> None:
    rows = list(csv.DictReader(io.StringIO(render(table, PUBLISHED).csv)))
    assert len(rows) == 3 * 2
    first = rows[0]
    assert (first["metric"], first["value"], first["published"]) == ("f1", "25", "44.1")
    assert float(first["difference"]) == pytest.approx(25 - 44.1)
    assert rows[1]["metric"] == "tflops" and rows[1]["value"] == "1"
    assert rows[4]["missing"] == "not run yet" and rows[4]["value"] == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (92.53, "92.5"),
        (0.012345, "0.0123"),
        (1830.4, "1830"),
        (0, "0"),
        (0.00001234, "0.0000123"),
        (5, "5.00"),
    ],
)
def test_costs_have_three_significant_digits(value: float, text: str) -> None:
    assert three_digits(value) == text
