"""``bench data`` as the user meets it."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bench.cli import data
from bench.errors import UnknownNameError
from tests.bench.data import lines


def line(number: int, **changes: Any) -> str:
    documents = [{"title": "T", "text": "one two three"}, {"text": "four " * number}]
    asked = {"question": "Who?" if number % 2 else "When?", "documents": documents}
    return json.dumps(lines.line(number, **{**asked, **changes})) + "\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(data.command, [str(argument) for argument in arguments])


def test_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    result = run("check", path, "--dataset", "qasper")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        str(path),
        "  format     bench: longdoc-bench (JSON lines)",
        "  data set   qasper (3)",
        "  examples   3 (2 different questions, no evidence labels)",
        "  documents  4 different; 5 to 7 words per example, mean 6",
        "  problems   none",
        "  usable     yes",
    ]


def test_problems_are_all_listed_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    broken = line(5, answers=[True])
    path.write_text(line(1) + "{\n" + broken + line(3, documents=[]) + line(6, answers=[True]) + line(7))
    result = run("check", path)
    assert result.exit_code == 2
    assert "  problems   3 error(s), 1 warning(s)" in result.output
    assert f"    error: {path}:2: not JSON" in result.output
    assert f"    error: {path}:3: answers[0]: expected text, found True (and 1 more)" in result.output
    assert f"    warning: {path}:4: there are no documents" in result.output
    assert "  examples   3 " in result.output
    assert "  usable     no" in result.output


def test_a_file_of_another_set(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(1))
    result = run("check", path, "--dataset", "hotpotqa")
    assert result.exit_code == 2
    assert f"{path}:1: this is qasper data, not hotpotqa" in result.output
    assert isinstance(run("check", path, "--dataset", "hotpot").exception, UnknownNameError)


def test_a_folder_of_several_files_is_checked_file_by_file(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "deep/c.jsonl", ".hidden/d.jsonl", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(line(1))
    result = run("check", tmp_path)
    assert result.exit_code == 0
    assert result.output.count("  usable     yes") == 3
    (tmp_path / "b.jsonl").write_text("")
    result = run("check", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path / 'b.jsonl'}:1: the file is empty" in result.output


def test_nothing_to_check(tmp_path: Path) -> None:
    assert run("check", tmp_path).exit_code == 2
    assert run("check", tmp_path / "missing").exit_code == 2
    assert "no such file" in run("check", tmp_path / "missing").output
    (tmp_path / "questions.csv").write_text("question,documents\nWhen?,a.txt\n")
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    assert "not UTF-8" in run("check", tmp_path).output, "the names of files were taken for texts"
    (tmp_path / "a.txt").write_text("Text.")
    (tmp_path / "questions.csv").write_text("question,documents\n")
    assert "there is no example in it" in run("check", tmp_path).output, "problems none, usable no"


def test_a_release_folder_says_which_of_its_sets_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/d1.content").write_text("A story.")
    (tmp_path / "documents.csv").write_text("document_id,set,kind,wiki_title\nd1,train,movie,Film\n")
    header = "document_id,set,question,answer1,answer2\n"
    (tmp_path / "qaps.csv").write_text(header + "d1,train,Who?,a,b\nd1,test,Why?,a,b\n")
    result = run("check", tmp_path, "--dataset", "narrativeqa")
    assert result.exit_code == 0
    assert "narrativeqa (2); splits: train (1), test (1)" in result.output
    assert f"warning: {tmp_path}: only the split 'test' is evaluated; 1 examples" in result.output
    (tmp_path / "qaps.csv").write_text(header + "d1,train,Who?,a,b\n")
    assert run("check", tmp_path).exit_code == 0
    assert run("check", tmp_path, "--dataset", "narrativeqa").exit_code == 2
