from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import CliRunner

from bench.cli.run import command
from bench.data.cards import load_card
from bench.errors import ModelUnavailableError
from bench.models.presets import presets
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.equal_cost import cost_match
from bench.run.hooks import RunHooks
from bench.run.session import Session
from bench.tables.cells import Plan, TableData, plan_table, retrieval_view, table_cells
from bench.tables.definition import Row, TableDefinition, load_table
from bench.tables.render import render
from tests.bench.models.builders import save_causal


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small random model: what it answers is nonsense, what it costs and what it is given are not."""
    return str(save_causal(tmp_path_factory.mktemp("models") / "small-llama", max_position_embeddings=4096))


def definition(*rows: Row) -> TableDefinition:
    return TableDefinition(id="t", title="T", source="S", datasets=("hotpotqa",), metrics=("f1",), rows=rows)


class Ran(RunHooks):
    """Remembers which cells ran."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []

    def on_start(self, cells: Sequence[Cell], done: object) -> None:
        self.groups.append([f"{c.request.method} {c.identity.config.get('k', '')}".strip() for c in cells])


def made(
    table: TableDefinition, planned: Mapping[tuple[str, str], Plan], results: Path, compute: bool = True
) -> TableData:
    return table_cells(table, planned, Session(results, compute=compute))


MORE = Row(id="more", label="TF-IDF Top-X", method="tfidf", set={"k": "auto:bm25"})
BM25 = Row(id="bm25", label="BM25", method="bm25", set={"k": 5})
THREE = Row(id="k3", label="BM25 Top-3", method="bm25", set={"k": 3})


def test_a_table_asks_as_many_questions_of_each_data_set_as_it_says(reader: str) -> None:
    table = definition(BM25).model_copy(update={"questions": {"hotpotqa": 3}})
    for limit, asked in ((None, 3), (2, 2)):
        cell = plan_table(table, CellRequest(model=reader, limit=limit))["bm25", "hotpotqa"]
        assert cell.identity.n_examples == asked


def test_rows_that_match_a_cost_come_last_and_bring_their_reference(reader: str, tmp_path: Path) -> None:
    table, ran = definition(MORE, BM25, THREE), Ran()
    planned = plan_table(table, CellRequest(model=reader, limit=2))
    table_data = table_cells(table, planned, Session(tmp_path, hooks=[ran]))
    assert list(table_data.cells) == [(row, "hotpotqa") for row in ("more", "bm25", "k3")]
    cells = [cell for group in ran.groups for cell in group]
    assert ran.groups[0] == ["bm25 5", "bm25 3"], "one run per question serves both"
    assert len(cells) == len(set(cells)) <= 6
    k = table_data.cells["more", "hotpotqa"].description.config["k"]
    # Both read chunks of equal length; only the frames of the prompts differ between k and k + 1.
    assert abs(k - 5) <= 1
    note = f"TF-IDF Top-X: k with the same cost as bm25: {k} (hotpotqa)."
    assert note in render(table_data, {}).markdown()
    again = made(table, planned, tmp_path, compute=False)
    before, after = ([cell.description for cell in of.cells.values()] for of in (table_data, again))
    assert before == after


def test_bench_run_runs_what_its_k_depends_on(reader: str, tmp_path: Path) -> None:
    arguments = ["--method", "bm25", "--dataset", "hotpotqa", "--model", reader, "--limit", "2", "--no-track"]
    arguments += ["--set", "k=auto:closed_book", "--results", str(tmp_path)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "k=auto:closed_book: k=1 is closest to" in result.output
    assert "evidence recall" in result.output


def test_a_row_without_its_encoder_is_left_out_and_says_why(reader: str, tmp_path: Path) -> None:
    rows = (
        *(Row(id=f"k{k}", label="", method="dragon", set={"encoder": "dragon-plus", "k": k}) for k in (1, 2)),
        Row(id="dpr", label="DPR", method="dpr", set={"encoder": "dpr"}),
        Row(id="closed_book", label="Closed book", method="closed_book"),
    )
    planned = plan_table(definition(*rows), CellRequest(model=reader, limit=1))
    table_data = made(definition(*rows), planned, tmp_path)
    assert table_data.cells["closed_book", "hotpotqa"].summary is not None
    for row in ("k1", "k2", "dpr"):
        assert table_data.cells[row, "hotpotqa"].summary is None
    text = render(table_data, {}).markdown()
    assert "facebook/dragon-plus-query-encoder" in text and "facebook/dpr-question_encoder-single" in text


def test_without_the_reader_there_is_no_table(tmp_path: Path) -> None:
    table = definition(Row(id="closed_book", label="Closed book", method="closed_book"))
    with pytest.raises(ModelUnavailableError, match="no folder .*nowhere"):
        plan_table(table, CellRequest(model="./nowhere", limit=1))
    planned = plan_table(table, CellRequest(model="llama-3.1-8b", limit=1))
    with pytest.raises(ModelUnavailableError, match=r"meta-llama/Llama-3\.1-8B-Instruct"):
        made(table, planned, tmp_path)


def test_the_retrieval_view_shows_what_the_contexts_hold(reader: str, tmp_path: Path) -> None:
    rows = (
        Row(id="bm25", label="BM25", method="bm25", set={"k": 2}),
        Row(id="full", label="Full context", method="full_context"),
        Row(id="closed_book", label="Closed book", method="closed_book"),
    )
    table = definition(*rows)
    planned = plan_table(table, CellRequest(model=reader, limit=4))
    view = retrieval_view(made(table, planned, tmp_path))
    assert view.definition.id == "t_retrieval"
    rendered = render(view, {})
    lines = [line for line in rendered.markdown().splitlines() if line.startswith("|")]
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert header == ["Method", "Recall", "MRR", "nDCG", "Answer in context", "TFLOPs", "n"]
    values = {line.split("|")[1].strip(): line.split("|")[2:6] for line in lines[2:]}
    full, none = "100.0 [100.0, 100.0]", "0.0 [0.0, 0.0]"
    selection = [cell.strip() for cell in values["Full context"]]
    assert selection == [full, "–", "–", full], "no ranking"
    assert [cell.strip() for cell in values["Closed book"]] == [none] * 4
    assert "Recall: share of the labelled evidence" in rendered.markdown()
    assert "evidence_recall,100,100,100" in rendered.csv


def test_rows_take_larger_and_smaller_models_from_the_tables_roles(reader: str, tmp_path: Path) -> None:
    other = str(save_causal(tmp_path / "other-llama", max_position_embeddings=4096))
    rows = (
        Row(id="same", label="row", method="pecan", model="large"),
        Row(id="mixed", label="row", method="pecan", model="small", set={"graph_model": {"model": "large"}}),
        Row(id="none", label="row", method="pecan", model="medium"),
    )
    table = definition(*rows).model_copy(update={"models": {reader: {"large": reader, "small": other}}})
    planned = plan_table(table, CellRequest(model=reader, limit=2))
    mixed = planned["mixed", "hotpotqa"]
    assert isinstance(mixed, Cell) and mixed.reader.name == "other-llama"
    assert mixed.roles["builder"].name == "small-llama"
    same = planned["same", "hotpotqa"]
    assert isinstance(same, Cell) and same.index_key_parts() == mixed.index_key_parts()  # one graph for both
    assert planned["none", "hotpotqa"] == ("the table's definition has no medium model for this reader")


def test_a_row_for_one_reader_is_no_cell_of_another() -> None:
    """PECAN's heads are chosen for ``tiny``; of another model these are other heads."""
    (row,) = [row for row in load_table("pecan_open").rows if row.only_reader]
    plans = (plan_table(definition(row), CellRequest(model=name)) for name in ("tiny", "tiny-s"))
    own, other = (plan[row.id, "hotpotqa"] for plan in plans)
    assert isinstance(own, Cell) and own.identity.config["heads"] == row.set["heads"]
    assert other == "its options are for tiny alone"


def test_what_the_paper_chose_for_its_reader_holds_for_no_other() -> None:
    # PECAN, Table 1: Top-X is chosen "to match the TFLOPs of PECAN"; Sec. 4.2: as many nodes as its average.
    # GARLIC, Table 1: "the numbers are selected to ensure the baselines have similar TFLOPs to GARLIC".
    for table, row_id, option, value, otherwise in (
        ("table1", "bm25_topx", "k", 4, "auto:pecan"),
        ("garlic1", "raptor_ct_topx", "k", 12, "auto:pecan:variant=garlic"),
        ("table3", "no_progress_control", "n_nodes", 17, "auto:pecan"),
        ("garlic2", "no_progress_control", "n_nodes", 17, "auto:pecan"),
    ):
        paper_table = load_table(table)
        row = next(row for row in paper_table.rows if row.id == row_id)
        assert paper_table.is_of_paper("llama-3.1-8b", "hub", None)
        assert not paper_table.is_of_paper("llama-3.1-8b", "sample", None)
        assert not paper_table.is_of_paper("tiny", "hub", None)
        assert row.options(load_card("hotpotqa"))[option] == value
        assert row.options(load_card("hotpotqa"), as_published=False)[option] == otherwise


@pytest.mark.parametrize("table_id", ["gor1", "gor2", "gor3", "gor4", "gor7", "gor8"])
def test_the_papers_writer_is_beside_its_reader_on_the_full_sets_alone(table_id: str) -> None:
    # Graph of Records, Sec. 3.1: Mixtral-8x7B simulates queries, LLaMA-2-7b-chat reads.
    table = load_table(table_id)
    roles, card = table.models["llama-2-7b-chat"], load_card("qmsum")
    assert set(roles.values()) <= set(presets()), "costs of all of them have a closed form"
    assert table.is_of_paper("llama-2-7b-chat", "hub", None)
    rows = [row for row in table.rows if "graph_model" in row.set]
    assert {row.method for row in rows} >= {"gor"} and len(rows) == sum(
        row.method in {"gor", "thought_retriever", "node2vec"} for row in table.rows
    )
    for row in rows:
        assert row.options(card, roles)["graph_model"] == "mixtral-8x7b"
        assert row.options(card, {}, as_published=False)["graph_model"] == ""
        with pytest.raises(ModelUnavailableError, match="no writer model"):
            row.options(card, {})


def test_lengths_of_a_row_shrink_with_the_readers_chunks() -> None:
    # Graph of Records, Sec. 3.1: chunks of 256 tokens, overlap 32.
    row = next(row for row in load_table("gor1").rows if row.id == "bm25")
    card = load_card("wcep")
    full = row.options(card)
    assert (full["chunk_tokens"], full["overlap_tokens"], full["join_documents"]) == (256, 32, "off")
    assert row.options(card, chunk_tokens=75)["chunk_tokens"] == 64
    assert row.options(card, chunk_tokens=75)["overlap_tokens"] == 8


def test_as_many_nodes_are_read_as_another_method_reads_on_average(reader: str, tmp_path: Path) -> None:
    fixed = {"progress_control": "off", "n_nodes": "auto:bm25", "graph": "tree"}
    row = Row(id="fixed", label="Fixed", method="pecan", set=fixed)
    table, setting = definition(row), CellRequest(model=reader, limit=2)
    planned = plan_table(table, setting)
    unknown = made(table, planned, tmp_path, compute=False).cells["fixed", "hotpotqa"]
    assert unknown.missing == "not run yet"
    cell = made(table, planned, tmp_path).cells["fixed", "hotpotqa"]
    reference = made(definition(BM25), plan_table(definition(BM25), setting), tmp_path, compute=False)
    bm25 = reference.cells["bm25", "hotpotqa"].finished
    read = [len(record.context) for record in bm25.records]
    assert cell.finished.description.config["n_nodes"] == max(1, round(fmean(read)))
    shown = render(TableData(table, {("fixed", "hotpotqa"): cell}), {})
    assert "nodes read, the average of bm25:" in shown.markdown()


def test_garlics_rows_are_matched_to_garlic_and_its_ablations_search_as_it_does() -> None:
    # GARLIC, Sec. 4.4: "We retain the same search mechanism"; the number of nodes is that "with GARLIC".
    assert {row.set.get("variant") for row in load_table("garlic2").rows} == {"garlic"}
    garlic = plan_cell(CellRequest("pecan", "hotpotqa", "tiny", options={"variant": "garlic"}))
    card = load_card("hotpotqa")
    requests = [
        CellRequest(row.method, "hotpotqa", "tiny", options=row.options(card, as_published=False))
        for row in load_table("garlic1").rows
        if row.id.endswith("_topx")
    ]
    options = {"variant": "garlic", "progress_control": "off", "n_nodes": "auto:pecan"}
    for request in (*requests, CellRequest("pecan", "hotpotqa", "tiny", options=options)):
        match = cost_match(request)
        assert match is not None and match.reference.identity == garlic.identity
