"""What a request for a table may not combine, and that it is said before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError, ConfigError
from bench.run.cell import CellRequest
from bench.run.session import Session
from bench.tables.definition import load_table, with_rows
from bench.tables.make import TableRequest, plan_cells


@pytest.mark.parametrize(
    ("table", "setting", "options", "message"),
    [
        ("table1", CellRequest(), {"judge": "tiny"}, "table1: --judge is for tables of judgements"),
        ("table1", CellRequest(), {"protocol": "paper"}, "--protocol is for tables of judgements"),
        ("tableA3", CellRequest(), {"view": "retrieval"}, "tableA3: --columns retrieval is for"),
        ("tableA3", CellRequest(), {"view": "costs"}, "tableA3: --columns costs is for"),
        ("tableA3", CellRequest(), {"view": "price"}, "--columns price is for tables with a row per method"),
        ("tableA3", CellRequest(), {"view": "paired"}, "--columns paired is for tables of scores"),
    ],
)
def test_an_option_that_the_table_would_ignore_is_refused(
    table: str, setting: CellRequest, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_cells(TableRequest(load_table(table), setting, Session(tmp_path), **options))


def test_a_row_that_cannot_be_added_is_refused() -> None:
    for table, row, message in (
        ("tableA3", "bm25", "--row bm25: tableA3 has no rows of methods"),
        ("table1", "laed", "Unknown method 'laed'"),
        ("table1", "pecan", "already has this row"),
    ):
        with pytest.raises(BenchError, match=message):
            with_rows(load_table(table), [row])


def test_a_judge_that_does_not_exist_is_an_error_before_the_answers(tmp_path: Path) -> None:
    """It was one after all answers of the table: minutes with the smallest reader."""
    table = load_table("gor2").on("sample")
    with pytest.raises(BenchError, match="nobody"):
        plan_cells(TableRequest(table, CellRequest(limit=1), Session(tmp_path), judge="nobody"))
