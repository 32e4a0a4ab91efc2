"""``--render-only`` computes nothing, and what it renders is the same bytes every time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import command
from bench.run.cell import CellRequest
from bench.tables.cells import plan_table
from bench.tables.definition import list_tables, load_table
from tests.bench.report.finished import finish

SCORES = (1, 0, 1, 0)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some finished cells of Table 1 on HotpotQA."""
    folder = tmp_path_factory.mktemp("results")
    planned = plan_table(load_table("table1"), CellRequest(limit=len(SCORES)))
    for row in ("full_context", "bm25_top5", "pecan"):
        finish(folder, planned[row, "hotpotqa"].request, SCORES)
    return folder


@pytest.fixture
def results(cells: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same cells, in a place where nothing can be run and no model loaded."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("--render-only computed something")

    for name in (
        "bench.run.session.Session.run",
        "bench.run.session.Session._run_group",
        "bench.run.session.run_group",
        "bench.models.model_set.LoadedModels.__init__",
    ):
        monkeypatch.setattr(name, refuse)
    for made in ("tables", "figures"):
        shutil.rmtree(cells / made, ignore_errors=True)
    return cells


def render(results: Path, *arguments: str) -> str:
    ran = CliRunner().invoke(
        command,
        [*arguments, "--render-only", "--limit", str(len(SCORES)), "--results", str(results)],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0, ran.output
    return ran.output


def files(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


ONE_OF_EACH_KIND = {definition.kind: definition.id for definition in reversed(list_tables())}.values()


@pytest.mark.parametrize("table", sorted(ONE_OF_EACH_KIND))
def test_a_table_of_every_kind_is_rendered_from_what_is_there(table: str, results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (results / "cells").rglob("*")}
    output = render(results, "table", table)
    first = files(results / "tables")
    assert set(first) == {f"{table}.{suffix}" for suffix in ("md", "tex", "csv")}
    assert render(results, "table", table) == output and files(results / "tables") == first
    assert {path: path.stat().st_mtime_ns for path in (results / "cells").rglob("*")} == before


def test_a_missing_cell_is_said_to_be_missing(results: Path) -> None:
    output = render(results, "table", "table1")
    assert "Full context" in output and "50.0" in output  # the mean of the four scores
    assert "SBERT Top-5" in output and "not run yet" in output


def test_garlic_shows_the_baselines_that_were_run_for_pecan(results: Path) -> None:
    output = render(results, "table", "garlic1")
    line = next(line for line in output.split("hotpotqa", 1)[1].splitlines() if "BM25 Top-5" in line)
    assert line.removeprefix("BM25 Top-5").strip().startswith("50.0")
    assert "BLEU-4" in output


def test_a_figure_is_drawn_from_what_is_there(results: Path) -> None:
    render(results, "figure", "pareto")
    assert set(files(results / "figures")) == {"pareto.png", "pareto.svg", "pareto.pdf", "pareto.csv"}
