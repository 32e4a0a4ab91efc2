"""The values that a paper prints, alone."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import command
from bench.errors import ConfigError
from bench.figures.definition import load_figure
from bench.tables.definition import list_tables, load_table
from bench.tables.printed import printed_table
from bench.tables.published import FOLDER, published

PAPERS = [table.id for table in list_tables() if table.published_as == table.id and table.printed]


@pytest.mark.parametrize("table", PAPERS)
def test_every_published_value_is_shown_once(table: str) -> None:
    rendered = printed_table(load_table(table))
    values = published(table)
    lines = list(csv.DictReader(io.StringIO(rendered.csv)))
    assert {(line["row"], line["dataset"], line["metric"]): float(line["value"]) for line in lines} == {
        cell: value.value for cell, value in values.items()
    }
    shown = [text for section in rendered.sections for line in section.rows for text in line[1:]]
    numbers = sorted(float(text.replace(",", "")) for text in shown if text != "–")
    assert numbers == sorted(value.value for value in values.values())


def test_a_table_of_other_data_shows_the_papers_sets_and_rows() -> None:
    text = printed_table(load_table("gor1")).markdown()
    assert "| GoR               | 19.8 | 34.5 | 7.8 |" in text and "chronicles" not in text
    of_ours = printed_table(load_table("table1_real")).markdown()
    assert "1.5 billion" not in of_ours and "narrativeqa" not in of_ours, "the paper's title, our sets"


def test_a_table_that_no_paper_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="beyond is not a paper's table"):
        printed_table(load_table("beyond"))


def test_the_command_needs_nothing_but_the_published_file(tmp_path: Path) -> None:
    arguments = ["table", "gor1", "--columns", "published", "--dataset", "wcep", "--results", str(tmp_path)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "\nwcep\n" in result.stdout and "qmsum" not in result.stdout
    assert (FOLDER / "gor1.csv").is_file() and (tmp_path / "tables" / "gor1_published.md").is_file()
    assert not (tmp_path / "cells").exists()


def test_tables_and_figures_answer_to_the_names_that_make_has_for_them() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    targets = re.findall(r"^(\w+-(table|fig)\d+):", makefile, re.M)
    assert len(targets) == 14
    for name, kind in targets:
        definition = load_table(name) if kind == "table" else load_figure(name)
        assert definition.id == name.replace(f"-{kind}", "")
