"""One question about files, from Python and from the command line, with models that cost nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bench
from bench.cli.main import command
from bench.errors import BenchError, ConfigError, DataError
from bench.results.finished import find_finished
from bench.run.asking import best_part, unsupported
from tests.bench.data.files_of_every_kind import pdf
from tests.stand_ins import Replying, WordModels

SAYS = "It was shut down in June 2018."


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A reader that always says the same; the prompts that it was given."""
    reader = Replying(lambda _: SAYS)
    monkeypatch.setattr("bench.run.session.Session.models", lambda self, cell: WordModels(reader))
    return reader.prompts


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "reactor.pdf"
    path.write_bytes(pdf(["The Halden reactor boiled water.", "The board shut it down in 2018."]))
    return path


def ask(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(command, ["ask", *map(str, arguments)], input=stdin)


def test_an_answer_has_its_places_and_what_it_did_not_read(paper: Path, tmp_path: Path) -> None:
    answer = bench.ask("When?", paper, model="tiny", results=tmp_path / "results")
    assert (answer.text, answer.error, answer.method) == (SAYS, None, "bm25")
    assert [passage.place for passage in answer.passages] == ["reactor.pdf, pages 1-2"]
    assert "reactor.pdf" not in answer.passages[0].text  # the title line is no text of the file
    assert answer.unsupported == ("June",)
    assert answer.warnings and "answers mean nothing" in answer.warnings[-1]
    assert [record.prediction for record in bench.load_records(answer.folder)] == [SAYS]


def test_the_same_question_is_not_asked_twice(paper: Path, tmp_path: Path, asked: list[str]) -> None:
    for question, calls in (("When?", 1), ("When?", 1), ("Who?", 2)):
        bench.ask(question, paper, model="tiny", results=tmp_path)
        assert len(asked) == calls
    bench.ask("When?", paper, model="tiny", options={"k": 1}, results=tmp_path)
    assert len(asked) == 3


def test_a_question_in_a_terminal_of_another_encoding_is_refused(paper: Path, tmp_path: Path) -> None:
    result = ask("Wann schloss das caf\udce9?", paper, "--model", "tiny", "--results", tmp_path)
    assert isinstance(result.exception, ConfigError)
    assert "holds half a character ('\\udce9' at 20)" in str(result.exception)
    with pytest.raises(ConfigError, match="half a character"):
        bench.ask("\ud83d", paper, model="tiny", results=tmp_path)


def test_a_file_whose_name_is_in_another_encoding_is_read(paper: Path, tmp_path: Path) -> None:
    named = paper.rename(tmp_path / "caf\udce9.pdf")
    result = ask("When?", named, "--model", "tiny", "--results", tmp_path / "results")
    assert result.exit_code == 0 and SAYS in result.output and "caf\ufffd.pdf" in result.output


def test_what_failed_is_asked_again(paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> object:
        raise MemoryError("for once")

    with monkeypatch.context() as passing:
        passing.setattr("methods.retrievers.bm25.Bm25.answer", fails)
        failed = bench.ask("When?", paper, model="tiny", results=tmp_path / "results")
    again = bench.ask("When?", paper, model="tiny", results=tmp_path / "results")
    assert failed.error and "MemoryError" in failed.error
    assert (again.text, again.error) == (SAYS, None)


def test_questions_asked_are_no_cells_of_a_report(paper: Path, tmp_path: Path) -> None:
    bench.ask("When?", paper, model="tiny", results=tmp_path)
    assert find_finished(tmp_path) == ([], 0)


def test_without_a_model_a_reader_of_real_text_is_taken_or_proposed(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.models.packed.PackedSource.here", lambda source: None)
    with pytest.raises(ConfigError, match=r"0.5 GB: bench model fetch qwen2.5-coder-0.5b"):
        bench.ask("When?", paper, results=tmp_path)
    monkeypatch.setattr("bench.models.packed.PackedSource.here", lambda source: tmp_path)
    assert bench.ask("When?", paper, results=tmp_path).model == "Qwen2.5-Coder-1.5B"


def test_in_a_notebook_where_an_event_loop_runs(paper: Path, tmp_path: Path) -> None:
    async def cell() -> str:
        return bench.ask("When?", paper, model="tiny", results=tmp_path).text

    assert asyncio.run(cell()) == SAYS


def test_run_and_load_records_from_python(tmp_path: Path) -> None:
    line = {"question": "When?", "answers": ["x"], "documents": ["June 2018"]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(line))
    result = bench.run("bm25", tmp_path / "mine.jsonl", model="tiny", results=tmp_path)
    (record,) = bench.load_records(result.folder)
    assert (result.summary.n, record.prediction, record.answers) == (1, SAYS, ["x"])
    matched = bench.run("bm25", dataset="qasper", limit=1, options={"k": "auto:bm25:k=3"}, results=tmp_path)
    assert isinstance(matched.description.config["k"], int)
    with pytest.raises(ConfigError, match="Name a reader of real text"):
        bench.run("bm25", tmp_path / "mine.jsonl", results=tmp_path)
    with pytest.raises(BenchError, match="no such file. Give a cell's folder"):
        bench.load_records(tmp_path / "nothing")


def test_the_command_names_what_it_could_not_read_and_goes_on(paper: Path, tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf([""]))
    done = ask("When?", paper, tmp_path / "scan.pdf", "--model", "tiny", "--results", tmp_path / "results")
    assert done.exit_code == 0, done.output
    assert f"left out: {tmp_path}/scan.pdf: no text on its 1 page(s)" in done.output
    assert "1 document, reader tiny" in done.output
    assert f"answer      {SAYS}" in done.output
    assert "1. reactor.pdf, pages 1-2\n" in done.output
    assert "      The Halden reactor boiled water. The board shut" in done.output
    assert "check       in nothing that was read: June; the model may have made it up" in done.output
    assert "warning     tiny reads only text like" in done.output


def test_a_bare_yes_elsewhere_is_said(paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (paper, "--model", "tiny", "--results", tmp_path / "results")
    assert "only Yes or No" not in ask("When was it shut down?", *arguments).output
    monkeypatch.setattr("tests.bench.run.test_asking.SAYS", "Yes")
    done = ask("When did the board shut it down?", *arguments)
    assert "check       only Yes or No, though the question asks for more: try a larger" in done.output
    assert "only Yes or No" not in ask("Did the board shut it down?", *arguments).output


def test_standard_input_is_a_document(tmp_path: Path) -> None:
    arguments = ["-", "--model", "tiny", "--results", tmp_path]
    assert "1. standard input, line 2" in ask("When?", *arguments, stdin=b"\nShut down in 2018.").output
    error = ask("When?", *arguments, stdin=b"").exception
    assert isinstance(error, DataError) and "standard input: the file is empty" in str(error)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["When?", "nothing.pdf"], "nothing.pdf: no such file or folder"),
        (["When?", "a.txt", "--method", "bm52"], "Did you mean 'bm25'?"),
        (["When?", "."], "No document could be read"),
    ],
)
def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[1] == "a.txt":
        Path("a.txt").write_text("text")
    result: Any = ask(*arguments, "--model", "tiny").exception
    assert isinstance(result, BenchError) and says in str(result)


def test_the_best_part_begins_with_the_sentence_that_has_most_words_of_the_question() -> None:
    text = " ".join(f"Sentence {i} is about nothing in particular." for i in range(20))
    text = f"{text} The reactor was shut down in June. {text}"
    first, last = best_part(text, "When was the reactor shut down?")
    assert "The reactor was shut down in June." in text[first:last] and last - first <= 300
    assert text[first - 2 : first] == ". "
    assert best_part("short", "anything") == (0, 5)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It cost 60,000 kroner.", ()),
        ("It cost 70,000 kroner in Bergen.", ("70,000", "Bergen")),
        ("Halden. Oslo is near.", ()),
        ("The Reactor closed.", ()),
    ],
)
def test_names_and_numbers_that_stand_nowhere(answer: str, expected: tuple[str, ...]) -> None:
    assert unsupported(answer, "What did the reactor cost?", ["A borehole cost 60,000 kroner."]) == expected
