"""``bench show``: what it prints of a record."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.cells import named_folder, one_cell
from bench.cli.main import command
from bench.cli.show import describe_record
from bench.errors import BenchError, ConfigError
from bench.results.finished import find_cells
from bench.results.records import RECORDS_FILE, SUMMARY_FILE
from bench.run.cell import CellRequest
from tests.bench.report.finished import bm25, finish, own, own_file
from tests.bench.results.test_records import record


def shown(results: Path, *arguments: str) -> str:
    words = ["show", *arguments, "--results", str(results)]
    return CliRunner().invoke(command, words, catch_exceptions=False).output


def test_further_answers_are_shown_below_the_first_one() -> None:
    several = record("a", "one").model_copy(update={"drawn": ["two", "three"]})
    assert "\nprediction  one\ndrawn       two\ndrawn       three\n" in describe_record(several)
    assert "drawn" not in describe_record(record("a", "one"))


def test_of_a_question_asked_again_the_last_answer_is_shown(tmp_path: Path) -> None:
    failed, answered = record("a", None, "TimeLimitError: none within 1 s"), record("a", "the mill")
    (tmp_path / RECORDS_FILE).write_text(failed.to_line() + answered.to_line())
    for arguments in ([], ["a"]):
        assert "prediction  the mill" in shown(tmp_path, str(tmp_path / RECORDS_FILE), *arguments)


def test_a_cell_is_named_by_its_method_options_and_data(tmp_path: Path) -> None:
    finish(tmp_path, bm25(limit=1), [1])
    default = finish(tmp_path, bm25(limit=3), [1, 0, 1])
    finish(tmp_path, replace(bm25(limit=3), seed=1), [1, 1, 1])  # named alike, it made the name ambiguous
    two = finish(tmp_path, bm25(limit=3, k=2), [0, 0, 0])
    assert str(default.folder(tmp_path)) in shown(tmp_path, "bm25", "--dataset", "hotpotqa")
    assert str(two.folder(tmp_path)) in shown(tmp_path, "bm25:k=2")
    finish(tmp_path, CellRequest("bm25", "musique", limit=3, options={"k": 2}), [0, 0, 0])
    with pytest.raises(ConfigError, match="several cells; give --dataset") as error:
        shown(tmp_path, "bm25:k=2")
    assert str(error.value).count("bm25 k=2 on") == 2
    with pytest.raises(BenchError, match="has no cell of bm25:k=9 on musique. See: bench list cells"):
        shown(tmp_path, "bm25:k=9", "--dataset", "musique")
    with pytest.raises(BenchError, match="Did you mean 'bm25'"):
        shown(tmp_path, "bm52")
    with pytest.raises(ConfigError, match="--dataset chooses among cells, and one is named by its path"):
        shown(tmp_path, str(two.folder(tmp_path)), "--dataset", "musique")  # it was passed over
    (two.folder(tmp_path) / "records.jsonl").write_text("")
    with pytest.raises(BenchError, match="has no answered question yet"):
        shown(tmp_path, str(two.folder(tmp_path)))


def test_a_folder_of_a_methods_name_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without records was a traceback, and a folder may bear the name of a method."""
    results = tmp_path / "results"
    cell = finish(results, bm25(limit=3), [1, 0, 1])
    (tmp_path / "bm25").mkdir()
    (tmp_path / "papers").mkdir()
    monkeypatch.chdir(tmp_path)
    assert str(cell.folder(results)) in shown(results, "bm25")
    assert named_folder("bm25") is None and named_folder(str(cell.folder(results))) == cell.folder(results)
    for arguments in (["show", "papers"], ["compare", "papers", "bm25"], ["rm", "papers"]):
        with pytest.raises(BenchError, match="papers is not the folder of a cell: it has no cell.json"):
            CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_number_is_an_id_first_and_what_it_was_taken_for_is_said(tmp_path: Path) -> None:
    path = own_file(tmp_path, [("A", "a"), ("B", "b"), ("C", "c")])
    path.write_text(path.read_text().replace("own-1", "3").replace("own-2", "1"))
    finish(tmp_path, own(path), [1, 0, 0])
    text = shown(tmp_path, "bm25", "3")
    assert "line 2 (3 is its id)" in text and "scores      F1 0.0 %, ROUGE-L 0.0 %" in text
    assert "line 2 (a line number, no id)" in shown(tmp_path, "bm25", "2", "--dataset", "Qasper")  # as run's


def test_scores_without_the_references_they_came_from() -> None:
    """An exported cell's answers were called "not scored"."""
    exported = record("a", "one").model_copy(update={"answers": (), "scores": {"f1": 1.0}})
    assert "references  left out" in (text := describe_record(exported)) and "F1 100.0 %" in text


def test_of_a_file_that_was_changed_the_state_asked_last_is_meant(tmp_path: Path) -> None:
    """The cell of most questions was shown, of a question that was no longer in the file."""
    path = own_file(tmp_path, [("a", "one"), ("b", "two")])
    before = finish(tmp_path, own(path), [1, 0]).folder(tmp_path) / "cell.json"
    before.write_text(before.read_text().replace('"created_at": "20', '"created_at": "19'))
    assert own_file(tmp_path, [("a", "one")]) == path
    assert finish(tmp_path, own(path), [1]).folder(tmp_path) == one_cell("bm25", tmp_path)


def test_measures_of_the_context_have_the_names_of_the_tables() -> None:
    measured = record("a", "one").model_copy(update={"retrieval": {"evidence_recall": 1.0, "mrr": 0.5}})
    assert "retrieval   evidence recall 100.0 %, MRR 50.0 %" in describe_record(measured).splitlines()


def test_a_comparison_shows_each_question_and_its_references_once(tmp_path: Path) -> None:
    """The references stood there twice, the second time behind the first."""
    cells = finish(tmp_path, bm25(limit=1), [1]), finish(tmp_path, bm25(limit=1, k=2), [0])
    example = cells[0].data.examples[0]
    arguments = ["compare", "bm25", "bm25:k=2", "--limit", "1", "--dataset", "hotpotqa"]
    done = CliRunner().invoke(command, [*arguments, "--results", str(tmp_path)], catch_exceptions=False)
    lines = [line for line in done.output.splitlines() if line.startswith(("question ", "references "))]
    assert len(lines) == 2 and lines[0].endswith(example.question), done.output
    assert lines[1].removeprefix("references").strip() == " | ".join(example.answers)
    with pytest.raises(BenchError, match="No cell of bm25 with --limit 2 is finished. Others: "):
        one_cell("bm25", tmp_path, limit=2)  # it was passed over
    with pytest.raises(BenchError, match="No cell of bm25 with --seed 3 is finished"):
        one_cell("bm25", tmp_path, seed=3)
    folder, other = map(str, find_cells(tmp_path))
    with pytest.raises(ConfigError, match="--limit chooses among cells, and two folders are named"):
        CliRunner().invoke(command, ["compare", folder, folder, "--limit", "2"], catch_exceptions=False)
    (Path(folder) / SUMMARY_FILE).unlink()
    (Path(folder) / RECORDS_FILE).write_text(2 * (Path(folder) / RECORDS_FILE).read_text() + "{")  # twice
    done = CliRunner().invoke(command, ["compare", folder, other], catch_exceptions=False)
    assert f"{folder} has no summary.json" in done.stderr and "mean of 1 question on 1" in done.stdout
    assert str(tmp_path) not in done.stdout  # the whole folder stood wherever a cell is named
    (Path(folder) / RECORDS_FILE).unlink()
    with pytest.raises(BenchError, match="has no records.jsonl: no question of this cell has been asked"):
        CliRunner().invoke(command, ["compare", folder, folder], catch_exceptions=False)
