"""Folders of documents with a file of questions, and data sets of the user's own names."""

import json
from pathlib import Path

import pytest

from bench.data import check, load
from bench.data.cards import load_card
from bench.data.entries import Problem
from bench.data.loading import LoadedData
from bench.data.own import card_for, datasets_at
from bench.data.source import open_source
from bench.errors import ConfigError, DataError, UnknownNameError
from tests.bench.data.files_of_every_kind import pdf

ANSWERED = "question,answers,documents\nWhen?,June 2018 | in 2018,reactor.txt\nWhich pump?,,\n"


def folder(tmp_path: Path, questions: str | None = ANSWERED, name: str = "questions.csv") -> Path:
    path = tmp_path / "My papers"
    (path / "more").mkdir(parents=True)
    (path / "reactor.txt").write_text("It was shut down in June 2018.")
    (path / "more/pumps.pdf").write_bytes(pdf(["Air or ground."]))
    if questions is not None:
        (path / name).write_text(questions)
    return path


def loaded(path: Path, dataset: str = "", data: str | None = None) -> LoadedData:
    return load(card_for(dataset, data or str(path)), str(path))


def errors(path: Path) -> list[str]:
    return [item.message for item in open_source(path).examples() if isinstance(item, Problem)]


def test_a_folder_with_questions(tmp_path: Path) -> None:
    data = loaded(folder(tmp_path))
    first, second = data.examples
    assert (data.label, data.source, data.format) == ("my_papers (My papers)", "path", "folder")
    assert (first.id, first.dataset, first.answers) == ("q1", "my_papers", ("June 2018", "in 2018"))
    assert [d.title for d in first.documents.documents] == ["reactor.txt"]
    assert (second.question, second.answers) == ("Which pump?", ())
    assert [d.title for d in second.documents.documents] == ["reactor.txt", "more/pumps.pdf"]
    assert data.warnings == (
        f"{tmp_path}/My papers/questions.csv:3: no reference answer: the question is answered and not scored",
    )
    with pytest.raises(DataError, match="its documents are names of files; pass their folder"):
        open_source(tmp_path / "My papers" / "questions.csv")


@pytest.mark.parametrize(
    ("name", "questions"),
    [
        ("questions.csv", "question\nWhen?\n"),
        ("questions.csv", "question,answers,answer,document,file\nWhen?,,2018,A Report,reactor.txt\n"),
        ("anything.csv", "Id;Question;Answer\n7;When?;2018\n"),
        ("questions.csv", "\ufeffquestion\tanswer\nWhen?\t2018\n"),
        ("Questions.JSONL", '{"question": "When?", "answer": 2018, "file": "reactor.txt"}\n'),
        ("questions.json", '[{"question": "When?", "documents": ["pumps.pdf"]}]'),
        ("q.jsonl", '{"question": "When?", "documents": ["reactor.txt"]}\n'),
    ],
)
def test_files_of_questions(tmp_path: Path, name: str, questions: str) -> None:
    (example,) = loaded(folder(tmp_path, questions, name)).examples
    assert example.question == "When?"
    assert example.answers == (("2018",) if "2018" in questions else ())
    assert all(document.title for document in example.documents.documents)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("When?,a,reacter.txt", "no document 'reacter.txt' that could be read; is 'reactor.txt' meant?"),
        ("When?,a,/etc/passwd", "no document '/etc/passwd' that could be read; there are reactor.txt, more/"),
        (",a,reactor.txt", "the question is empty"),
    ],
)
def test_questions_that_do_not_hold(tmp_path: Path, row: str, says: str) -> None:
    path = folder(tmp_path, f"question,answers,documents\n{row}\n")
    assert says in errors(path)[0]
    with pytest.raises(DataError, match="A right line:\nquestion,answers,documents"):
        loaded(path)


def test_what_all_questions_of_a_file_lack(tmp_path: Path) -> None:
    """A missing column was an empty question, and tasks that a run refuses to mix were usable."""
    assert errors(folder(tmp_path, "frage,answers\nWhen?,a\n"))[0].startswith(
        "there is no field 'question'; "
    )
    *_, problem = check(folder(tmp_path / "2", "question,task\nWhen?,qa\nSum up,summarization\n")).problems
    assert problem.message.startswith("questions and summaries in one data set")


def test_a_name_that_several_documents_have(tmp_path: Path) -> None:
    path = folder(tmp_path, "question,document\nWhen?,pumps.pdf\n")
    (path / "other").mkdir()
    (path / "other/pumps.pdf").write_bytes(pdf(["Another."]))
    assert errors(path) == ["'pumps.pdf' may be more/pumps.pdf or other/pumps.pdf; give its folder as well"]


@pytest.mark.parametrize("name", ["../secret.txt", "more/../../secret.txt"])
def test_a_question_reaches_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("top secret")
    with pytest.raises(DataError, match=r"no document '.*secret.txt' that could be read"):
        loaded(folder(tmp_path, f"question,documents\nWhich?,{name}\n"))


def test_documents_that_cannot_be_read_are_left_out_and_named(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "scan.pdf").write_bytes(pdf([""]))
    assert any("scan.pdf: no text on its 1 page(s)" in warning for warning in loaded(path).warnings)
    (path / "reactor.txt").write_bytes(b"\xff")
    assert any("document 'reactor.txt' is unreadable: not UTF-8" in error for error in errors(path))
    (path / "more/pumps.pdf").write_bytes(b"")
    with pytest.raises(DataError, match=r"No document could be read\.\n(.|\n)*pumps.pdf: the file is empty"):
        loaded(path)


def test_a_folder_without_questions_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without questions. To ask one: bench ask .* a file questions.csv"):
        open_source(folder(tmp_path, None))


def test_the_revision_is_of_questions_and_texts(tmp_path: Path) -> None:
    path = folder(tmp_path)
    before = loaded(path).revision
    assert loaded(path).revision == before
    (path / "more/pumps.pdf").rename(path / "pumps.pdf")
    moved = loaded(path).revision
    assert moved != before
    (path / "reactor.txt").write_text("It was shut down in 2019.")
    assert loaded(path).revision not in (before, moved)


def test_any_name_is_a_data_set_where_the_data_are_a_path(tmp_path: Path) -> None:
    path = folder(tmp_path)
    assert card_for("", str(path)).name == "my_papers"
    assert loaded(path, "reactors").examples[0].dataset == "reactors"
    assert card_for("qasper", str(path)) == load_card("qasper")
    for near in ("my_qasper", "papers.v2"):  # a name that the user did not give is no slip
        assert loaded(path.rename(path.with_name(near))).examples[0].dataset == near.replace(".", "_")
        path = path.with_name(near)
    for name in ("qasper.txt", "test.txt", "train.txt"):
        (path / name).write_text("No data set, no part of one.")
        assert card_for("", str(path)).name == "papers_v2" and len(loaded(path).examples) == 2
    with pytest.raises(UnknownNameError, match="'qaspr'. Did you mean 'qasper'"):
        card_for("qaspr", str(path))
    with pytest.raises(UnknownNameError, match="Unknown data set 'mine'"):
        card_for("mine")
    with pytest.raises(ConfigError, match="--data is empty"):
        card_for("qasper", "")  # an unset variable, which pathlib takes for the current folder
    with pytest.raises(ConfigError, match="--data sample needs --dataset"):
        card_for("")


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    line = {"question": "When?", "answers": ["now"], "documents": ["Now."]}
    for named, expected in (("Mine 2", "mine_2"), ("qasper_original", "qasper"), (None, "mine")):
        path.write_text(json.dumps({**line, "dataset": named}))
        assert card_for("", str(path)).name == expected
        assert loaded(path).examples[0].dataset == expected
    assert check(path).datasets == {"mine": 1}
    path.write_text(json.dumps({**line, "dataset": "qaspr"}))
    assert card_for("qaspr", str(path)).name == "qaspr"  # a slip, if it is one, that the file makes too
    path.write_text(json.dumps({**line, "task": "summarization"}))
    assert card_for("", str(path)).metrics == ("rouge_l_f1_stem", "rouge_1", "rouge_2")
    assert loaded(path).examples[0].task == "summarization"


def test_what_a_table_shows_of_a_path(tmp_path: Path) -> None:
    asked = ("hotpotqa", "qasper")
    path = folder(tmp_path)
    assert datasets_at("sample", asked) == datasets_at("hub", asked) == asked
    assert datasets_at(str(path), asked) == ("my_papers",)
    line = {"question": "When?", "answers": ["now"], "documents": ["Now."], "dataset": "qasper"}
    several = tmp_path / "several"
    several.mkdir()
    (several / "qasper.jsonl").write_text(json.dumps(line))
    assert datasets_at(str(several / "qasper.jsonl"), asked) == ("qasper",)
    assert datasets_at(str(several), asked) == asked
    with pytest.raises(ConfigError, match=r"holds data sets by their names; give --dataset: qasper\."):
        card_for("", str(several))
