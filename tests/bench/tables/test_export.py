"""A table's cells leave without any text of the data, and the same table comes back from them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.table import command
from bench.errors import BenchError, ConfigError, DataError
from bench.run.cell import CellRequest
from bench.run.session import Session
from bench.tables.cells import TableData, plan_table, table_cells
from bench.tables.definition import Row, TableDefinition, load_table
from bench.tables.export import export_table, exported_table
from bench.tables.formats import three_digits
from bench.tables.paired import paired_table
from bench.tables.render import render
from tests.bench.models.builders import save_causal

TABLE = TableDefinition(
    id="t",
    title="T",
    source="S",
    datasets=("hotpotqa", "musique"),
    metrics=("f1",),
    ratio_to="bm25",
    rows=(
        Row(id="bm25", label="BM25", method="bm25", set={"k": 2}),
        Row(id="bm25_1", label="BM25, one passage", method="bm25", set={"k": 1}),
        Row(id="closed", label="Closed book", method="closed_book"),
    ),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TableData:
    """Two rows on two data sets, by a small random model; one cell is not finished."""
    folder = tmp_path_factory.mktemp("export")
    reader = str(save_causal(folder / "small-llama", max_position_embeddings=4096))
    results = folder / "results"
    planned = plan_table(TABLE, CellRequest(model=reader, limit=2))
    run = {key: cell for key, cell in planned.items() if key != ("closed", "musique")}
    table_cells(TABLE, run, Session(results))
    return table_cells(TABLE, planned, Session(results, compute=False))


def test_the_same_table_comes_back_without_data_records_and_models(table: TableData, tmp_path: Path) -> None:
    export_table(table, tmp_path)
    back = exported_table(TABLE, tmp_path)
    assert paired_table(back).rows == paired_table(table).rows
    before, after = (render(shown, {}).files() for shown in (table, back))
    for kind, text in before.items():
        assert after[kind] == text.replace("not run yet", "not in this export")


def test_fewer_questions_than_a_cell_has_are_refused(table: TableData, tmp_path: Path) -> None:
    """Forty of its 150 lines gave a mean of forty, and another row's lines that row's mean."""
    _, questions = export_table(table, tmp_path)
    lines = questions.read_text("utf-8").splitlines(keepends=True)
    other = [line.replace("bm25_1,", "bm25,", 1) for line in lines]
    for told, found in ((lines[:1] + lines[2:], "1 lines of .*, 1 of"), (other, "4 lines of .*, 2 of")):
        questions.write_text("".join(told), "utf-8")
        with pytest.raises(DataError, match=f"{found} them of its cell, which has 2 questions"):
            paired_table(exported_table(TABLE, tmp_path))


def test_a_table_finished_at_first_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``bench table --export`` without ``--first 0`` wrote nothing, and said nothing."""
    definition = TABLE.model_copy(update={"datasets": ("hotpotqa",), "rows": TABLE.rows[:1]})
    monkeypatch.setattr("bench.tables.definition.load_table", lambda _: definition)
    reader = str(save_causal(tmp_path / "small-llama", max_position_embeddings=4096))
    told = ["t", "--limit=2", "--model", reader, "--results", str(tmp_path), "--no-track", "--export"]
    told.append(str(tmp_path / "e"))
    assert (done := CliRunner().invoke(command, told)).exit_code == 0, done.output
    assert exported_table(definition, tmp_path / "e").cells["bm25", "hotpotqa"].finished is not None
    error = CliRunner().invoke(command, [*told, "--columns", "price"]).exception
    assert isinstance(error, ConfigError) and "leave out --columns and --from" in str(error)


def test_an_export_in_parts_is_the_export_of_all(table: TableData, tmp_path: Path) -> None:
    whole = [path.read_bytes() for path in export_table(table, tmp_path / "whole")]
    parts = {dataset: {k: c for k, c in table.cells.items() if k[1] == dataset} for dataset in TABLE.datasets}
    export_table(TableData(TABLE, parts["hotpotqa"]), tmp_path / "parts")
    export_table(TableData(TABLE, parts["musique"]), tmp_path / "parts")
    export_table(table, tmp_path / "parts")  # what is there is replaced
    again = [path.read_bytes() for path in sorted((tmp_path / "parts").iterdir())]
    assert sorted(again) == sorted(whole)


def test_an_export_that_cannot_be_read_is_left_as_it_is(table: TableData, tmp_path: Path) -> None:
    cells, _ = export_table(table, tmp_path)
    cells.write_text("[{}]")
    with pytest.raises(DataError, match="nothing is added"):
        export_table(table, tmp_path)

    assert cells.read_text() == "[{}]"


def test_no_text_of_the_data_leaves_and_every_question_has_its_line(table: TableData, tmp_path: Path) -> None:
    paths = export_table(table, tmp_path)
    lines = list(csv.DictReader(paths[1].open(encoding="utf-8", newline="")))
    assert len(lines) == 10
    finished = [cell.finished for cell in table.cells.values() if cell.finished]
    records = [
        json.loads(line)
        for cell in finished
        for line in (cell.folder / "records.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["example_id"] for line in lines] == [record["example_id"] for record in records]
    assert [float(line["f1"]) for line in lines] == [record["scores"]["f1"] for record in records]
    published = "".join(path.read_text("utf-8") for path in paths)
    for record in records:
        for text in (record["question"], record["prediction"], *(c["title"] for c in record["context"])):
            assert len(text) < 4 or text not in published


def test_what_cannot_be_exported_or_read_back_is_said(table: TableData, tmp_path: Path) -> None:
    empty = TableData(TABLE, {key: cell for key, cell in table.cells.items() if cell.finished is None})
    with pytest.raises(BenchError, match="t: no cell is finished"):
        export_table(empty, tmp_path)
    with pytest.raises(DataError, match=r"t_cells.json: no such file. Run: bench table t --export"):
        exported_table(TABLE, tmp_path)
    export_table(table, tmp_path)
    with pytest.raises(DataError, match="has no cell of mine, but of hotpotqa, musique: name a data set"):
        exported_table(TABLE.on("a/path", ["mine"]), tmp_path)
    with pytest.raises(DataError, match=r"not the cells of a table \(no 'bleu_5'\)"):
        exported_table(TABLE.model_copy(update={"metrics": ("f1", "bleu_5")}), tmp_path)
    (tmp_path / "t_cells.json").write_text('[{"row": "bm25", "dataset": "hotpotqa"}]')
    with pytest.raises(DataError, match=r"not the cells of a table \(no 'cell'\)"):
        exported_table(TABLE, tmp_path)


def test_the_readmes_figures_on_real_text_are_those_of_the_published_records() -> None:
    root = Path(__file__).parents[3]
    shown = (root / "README.md").read_text("utf-8").partition("## On real text")[2].partition("\n## ")[0]
    table = exported_table(load_table("table1_real"), root / "docs/real_reader")
    rows = {row.label: row.id for row in table.definition.rows}
    lines = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith("| ")][1:]
    for label, *printed in lines:
        for dataset, score, cost in zip(table.definition.datasets, printed[::2], printed[1::2], strict=True):
            if (of := table.cells[rows[label], dataset].summary) is not None:
                f1, index = of.percent("f1"), f" ({of.index_tflops:.2g})" if of.index_tflops else ""
                assert score == f"{f1.mean:.1f} [{f1.low:.1f}, {f1.high:.1f}]", (label, dataset)
                assert cost == three_digits(of.tflops) + index, (label, dataset)
            else:
                assert score == cost == "–"
    assert len(lines) >= 8
