"""What an entry of each format becomes; the real files are in test_real_files.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.data import load
from bench.data.cards import load_card
from bench.data.checking import check
from bench.data.entries import Problem
from bench.data.format import Parsed
from bench.data.source import open_source
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Document, Evidence, Example


def examples_in(path: Path) -> tuple[list[Parsed], list[Problem]]:
    items = list(open_source(path).examples())
    return [i for i in items if isinstance(i, Parsed)], [i for i in items if isinstance(i, Problem)]


def written(tmp_path: Path, *entries: Any) -> tuple[list[Parsed], list[Problem]]:
    """What a file with a line for each of these entries holds."""
    (tmp_path / "file").write_text("\n".join(map(json.dumps, entries)) + "\n", encoding="utf-8")
    return examples_in(tmp_path / "file")


def one(tmp_path: Path, entry: Any) -> Example:
    """The only example of a file that holds this entry."""
    examples, problems = written(tmp_path, entry)
    assert [p for p in problems if p.severity == "error"] == []
    (parsed,) = examples
    return parsed.example


def error(tmp_path: Path, entry: Any) -> str:
    (problem,) = [p for p in written(tmp_path, entry)[1] if p.severity == "error"]
    assert problem.place.startswith(str(tmp_path / "file"))
    return problem.message


BENCH: dict[str, Any] = {
    "id": "x1",
    "dataset": "qasper",
    "task": "qa",
    "question": "Who?",
    "answers": ["Ada", "Ada", "Ada L."],
    "documents": [{"title": "T", "text": "One."}, {"title": "", "text": "Two."}],
    "evidence": [{"document": 1, "sentence": 0, "text": "Two."}],
    "metadata": {"hops": 2},
    "source": "ignored",
}


def test_bench_line(tmp_path: Path) -> None:
    example = one(tmp_path, BENCH)
    assert (example.id, example.task, example.question) == ("x1", "qa", "Who?")
    assert example.answers == ("Ada", "Ada L.")
    assert example.documents.documents == (Document("T", "One."), Document("", "Two."))
    assert example.evidence == (Evidence(1, 0, "Two."),)
    assert example.metadata == {"hops": 2}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answers": {"text": "Ada"}}, "answers[0]: expected text, found {'text': 'Ada'}"),
        ({"answers": ["Ada", True]}, "answers[1]: expected text, found True"),
        ({"answers": [" "]}, "no reference answer"),
        ({"question": " \n"}, "the question is empty"),
        ({"question": 5}, "question: expected text, found 5"),
        ({"question": ["Who?"]}, "question: expected text, found ['Who?']"),
        ({"id": " "}, "the id is empty"),
        ({"task": "chat"}, "task: input should be 'qa' or 'summarization', found 'chat'"),
        ({"documents": [{"title": "T"}]}, "documents[0].text is missing"),
        ({"documents": [7]}, "documents[0]: expected an object, found 7"),
        ({"evidence": [{"document": 2}]}, "evidence names document 2, but there are 2"),
        ({"evidence": [{"document": 0, "text": "Ten."}]}, "document 0 does not contain the evidence 'Ten.'"),
        ({"question": "half \ud83d"}, "question holds half a character (surrogate '\\ud83d' at 5)"),
        ({"documents": [{"text": "\udc00"}], "evidence": None}, "document 0 holds half a character"),
        ({"documents": [{"text": "A."}, {"titel": "", "text": ""}]}, "documents[1]: unknown field 'titel' "),
        ({"documents": [{"txt": "Ada."}]}, "documents[0]: unknown field 'txt' (did you mean 'text'?)"),
        ({"evidence": [{"document": 0, "sentense": 1}]}, "evidence[0]: unknown field 'sentense' (did you"),
    ],
)
def test_bench_line_that_does_not_hold(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    assert says in error(tmp_path, {**BENCH, **change})


def test_what_a_bench_line_may_leave_out_or_say_in_short(tmp_path: Path) -> None:
    example = one(tmp_path, {"question": "When?", "answer": 1990, "documents": "It was 1990."})
    assert (example.id, example.task, example.answers) == ("q1", "qa", ("1990",))
    assert example.documents.documents == (Document("", "It was 1990."),)
    assert one(tmp_path, {"id": 7, "question": "When?", "documents": []}).id == "7"


@pytest.mark.parametrize("answers", [{}, {"answers": []}, {"answers": None}, {"answer": ""}])
def test_no_reference_is_no_error_in_our_own_format(tmp_path: Path, answers: dict[str, Any]) -> None:
    line = {"question": "When?", "documents": "It was 1990.", **answers}
    assert one(tmp_path, line).answers == ()


@pytest.mark.parametrize(("wrong", "right"), [("taks", "task"), ("ID", "id"), ("evidnece", "evidence")])
def test_misspelt_fields_are_named_with_the_right_ones(tmp_path: Path, wrong: str, right: str) -> None:
    line = {"question": "Who?", "documents": "Ada.", wrong: "a"}
    assert error(tmp_path, line) == f"unknown field '{wrong}' (did you mean '{right}'?)"


def test_fields_of_other_names_are_allowed(tmp_path: Path) -> None:
    line = {"question": "Who?", "documents": "Ada.", "source": "a", "task": "qa"}
    written(tmp_path, line, {**line, "question": "Whom?", "license": "CC0", "metadata": {"any": 1}})
    assert check(tmp_path / "file").usable


def test_ids_are_unique_within_a_file(tmp_path: Path) -> None:
    others = [{**BENCH, "question": "When?"}, {**BENCH, "question": "Why?"}, {**BENCH, "id": "x1-2"}]
    examples, problems = written(tmp_path, BENCH, *others, BENCH)
    assert [f.example.id for f in examples] == ["x1", "x1-2", "x1-3", "x1-2-2"]
    path = tmp_path / "file"
    assert problems[0].message == f"id 'x1' belongs to a different example at {path}:1; renamed to 'x1-2'"
    assert (problems[0].severity, problems[-1].severity) == ("warning", "error")
    assert str(problems[-1]) == f"{path}:5: repeats the example 'x1' of {path}:1; remove one of the two"
    (*_, again) = written(tmp_path, BENCH, *others, others[0])[1]  # of one that was renamed
    assert str(again) == f"{path}:5: repeats the example 'x1' of {path}:2; remove one of the two"


LONGBENCH: dict[str, Any] = {
    "input": "Who?",
    "context": "Passage 1:\nA\nfirst text\nPassage 3:\nquoted\nPassage 2:\nB\n\nsecond\n",
    "answers": ["x", "y"],
    "length": 12,
    "dataset": "hotpotqa_e",
    "language": "en",
    "all_classes": None,
    "_id": "0af",
}


def test_longbench_line(tmp_path: Path) -> None:
    example = one(tmp_path, LONGBENCH)
    assert example.id == "0af"
    assert example.answers == ("x", "y")
    first, second = example.documents.documents
    assert first == Document("A", "first text\nPassage 3:\nquoted") and second == Document("B", "\nsecond\n")
    assert example.evidence is None
    assert one(tmp_path, {**LONGBENCH, "dataset": "gov_report", "input": ""}).task == "summarization"


def test_longbench_v2_asks_with_its_choices_for_a_letter(tmp_path: Path) -> None:
    entry = {
        "_id": "66f", "domain": "Single-Document QA", "sub_domain": "Detective", "difficulty": "hard",
        "length": "short", "question": "Who hid it? ", "choice_A": "Mara", "choice_B": "Otto",
        "choice_C": "Ines", "choice_D": "nobody", "answer": "C", "context": "Ines hid it.\n",
    }  # fmt: skip
    example = one(tmp_path, entry)
    assert example.question == "Who hid it?\nChoices:\n(A) Mara\n(B) Otto\n(C) Ines\n(D) nobody"
    assert example.answers == ("C",) and example.documents.documents == (Document("", "Ines hid it."),)
    assert "answer: input should be 'A', 'B', " in error(tmp_path, {**entry, "answer": "E"})


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ('"[""it\'s"", ""say \'x\'""]"', ("it's", "say 'x'")),
        ("not a list", "should be a list of strings"),
        ("[1]", "answers[0]: expected text, found 1"),
        ('"[\'a\' \'b, c\'\n ""it\'s""]"', ("a", "b, c", "it's")),  # as numpy prints it: no text of three
        ("['a']", ("a",)),
        ("\"['a', 'b' 'c']\"", "with commas between them all"),
        ("['a' ... 'b']", "should be a list of strings"),
    ],
)
def test_csv_answers_are_a_list(tmp_path: Path, column: str, expected: str | tuple[str, ...]) -> None:
    path = tmp_path / "file"
    rows = f"Q1?,text,['sound'],3,qasper,a\nQ2?,text,{column},3,qasper,b\n"
    path.write_text("input,context,answers,length,dataset,_id\n" + rows, encoding="utf-8")
    (_, *examples), problems = examples_in(path)
    if isinstance(expected, tuple):
        assert examples[0].example.answers == expected and not problems
    else:
        assert not examples and problems[0].place == f"{path}:3" and expected in problems[0].message


HOTPOT: dict[str, Any] = {
    "_id": "5a",
    "question": "Who?",
    "answer": "Bob",
    "type": "bridge",
    "level": "hard",
    "context": [["T", ["One.", " Two."]], ["U", ["Three."]], ["T", ["Again."]]],
    "supporting_facts": [["T", 1], ["U", 0], ["U", 9], ["Z", 0], ["T", 1]],
}
HOTPOT_COLUMNS = {
    **{key: HOTPOT[key] for key in ("question", "answer", "type", "level")},
    "id": "5a",
    "context": {"title": ["T", "U", "T"], "sentences": [["One.", " Two."], ["Three."], ["Again."]]},
    "supporting_facts": {"title": ["T", "U", "U", "Z", "T"], "sent_id": [1, 0, 9, 0, 1]},
}


@pytest.mark.parametrize("entry", [[HOTPOT], [HOTPOT_COLUMNS]], ids=["release", "hub"])
def test_hotpotqa(tmp_path: Path, entry: Any) -> None:
    example = one(tmp_path, entry)
    assert example.id == "5a"
    documents = (Document("T", "One. Two."), Document("U", "Three."), Document("T", "Again."))
    assert example.documents.documents == documents
    assert example.evidence == (Evidence(0, 1, " Two."), Evidence(1, 0, "Three."), Evidence(1))


def test_hotpotqa_oddities_are_mentioned_and_2wiki_is_told_apart(tmp_path: Path) -> None:
    examples, problems = written(tmp_path, [HOTPOT, {**HOTPOT, "_id": "6b", "evidences": []}])
    assert [f.datasets for f in examples] == [("hotpotqa",), ("2wikimqa",)]
    assert {p.message for p in problems} == {
        "a supporting fact names a title that the context does not have",
        "a supporting fact names a sentence that its document does not have",
    }


MUSIQUE: dict[str, Any] = {
    "id": "3hop1__1_2_3",
    "question": "Who?",
    "answer": "Bob",
    "answer_aliases": ["Bobby", "Bob"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "U", "paragraph_text": "Two.", "is_supporting": True},
    ],
    "question_decomposition": [],
}


def test_musique(tmp_path: Path) -> None:
    example = one(tmp_path, MUSIQUE)
    assert example.answers == ("Bob", "Bobby")
    assert example.documents.documents == (Document("T", "One."), Document("U", "Two."))
    assert example.evidence == (Evidence(1),)
    assert example.metadata == {"hops": 3}


def test_musique_full_twins(tmp_path: Path) -> None:
    twin = {**MUSIQUE, "answerable": False, "paragraphs": MUSIQUE["paragraphs"][:1]}
    examples, problems = written(tmp_path, MUSIQUE, twin)
    assert [f.example.id for f in examples] == ["3hop1__1_2_3", "3hop1__1_2_3-unanswerable"]
    assert examples[1].example.answers == ("Unanswerable",)
    assert examples[1].example.evidence == ()
    assert [p.place for p in problems] == [f"{tmp_path}/file:2"]


def answer(**fields: Any) -> dict[str, Any]:
    empty = {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}
    return {"answer": {**empty, "evidence": [], **fields}}


PAPER: dict[str, Any] = {
    "title": "T",
    "abstract": "We do.",
    "full_text": [
        {"section_name": "Intro", "paragraphs": ["First.", "Second."]},
        {"section_name": None, "paragraphs": ["Third."]},
    ],
    "qas": [
        {
            "question": "What?",
            "question_id": "q1",
            "answers": [
                answer(extractive_spans=["a", "b"], evidence=["Second.", "FLOAT SELECTED: Table 1: x"]),
                answer(free_form_answer="a thing", evidence=["Second."]),
                answer(yes_no=False),
                answer(yes_no=True),
                answer(unanswerable=True),
            ],
        },
        {"question": "Is it?", "question_id": "q2", "answers": [answer(yes_no=False), answer()]},
    ],
}


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: [row[key] for row in rows] for key in rows[0]}


COLUMNAR = {
    "id": "1909.1",
    "title": "T",
    "abstract": "We do.",
    "full_text": columns(PAPER["full_text"]),
    "qas": columns([{**qa, "answers": columns(qa["answers"])} for qa in PAPER["qas"]]),
}


@pytest.mark.parametrize("entry", [{"1909.1": PAPER}, COLUMNAR, [COLUMNAR]], ids=["release", "hub", "array"])
def test_qasper(tmp_path: Path, entry: Any) -> None:
    examples, problems = written(tmp_path, entry)
    first, second = (f.example for f in examples)
    assert first.answers == ("a, b", "a thing", "No", "Yes", "Unanswerable")
    assert first.documents.documents == (Document("T", "We do.\n\nIntro\nFirst.\nSecond.\n\nThird."),)
    assert first.evidence == (Evidence(0, text="Second."),)
    assert second.answers == ("No",)
    assert [p.message for p in problems] == ["an annotator gave no answer"]


def test_qasper_that_does_not_hold(tmp_path: Path) -> None:
    paper = {**PAPER, "qas": [{"question": "?", "question_id": "q", "answers": [{"answer": {}}]}]}
    assert error(tmp_path, {"p": paper}).startswith("qas[0].answers[0].answer.unanswerable is missing")
    paper = {**COLUMNAR, "full_text": {"section_name": ["a"], "paragraphs": []}}
    assert error(tmp_path, paper) == "full_text: its columns have different lengths"
    unanswered = {**PAPER, "qas": [{"question": "?", "question_id": "q", "answers": []}]}
    assert "no reference answer" in error(tmp_path, {"p": unanswered})


def test_narrativeqa_hub_row(tmp_path: Path) -> None:
    summary = {"text": "s", "title": "Film"}
    document = {"id": "d1", "kind": "movie", "text": "A story.", "summary": summary}
    question, answers = {"text": "Who?", "tokens": ["Who", "?"]}, [{"text": "Ann"}, {"text": "Anna"}]
    example = one(tmp_path, {"document": document, "question": question, "answers": answers})
    assert (example.id, example.question, example.answers) == ("d1-0", "Who?", ("Ann", "Anna"))
    assert example.documents.documents == (Document("", "A story."),)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "narrativeqa-master"
    (folder / "tmp").mkdir(parents=True)
    (folder / "documents.csv").write_text(
        "document_id,set,kind,story_url,wiki_title\nd1,test,movie,http://x,Film\nd2,train,gutenberg,http://y,Book\n"
    )
    (folder / "qaps.csv").write_text(
        "document_id,set,question,answer1,answer2\nd1,test,Who?,Ann,Anna\nd2,train,When?,now,now\nd1,test,Why?,b,c\n"
    )
    (folder / "tmp/d1.content").write_bytes("\ufeffStory é".encode())
    (folder / "tmp/d2.content").write_bytes("Caf\xe9".encode("latin-1"))
    return folder


def test_narrativeqa_release_folder(release: Path) -> None:
    examples, problems = examples_in(release)
    assert [f.example.id for f in examples] == ["d1-0", "d2-1", "d1-2"]
    assert [f.example.documents.documents[0].text for f in examples] == ["Story é", "Café", "Story é"]
    assert examples[1].example.answers == ("now",)
    assert [f.split for f in examples] == ["test", "train", "test"]
    assert [p.message for p in problems] == ["d2.content is not UTF-8; read as Latin-1"]


def test_narrativeqa_release_with_missing_parts(release: Path) -> None:
    (release / "tmp/d1.content").unlink()
    examples, problems = examples_in(release)
    assert [f.example.id for f in examples] == ["d2-1"]
    errors = [p.place for p in problems if p.severity == "error"]
    assert errors == [f"{release}/qaps.csv:2", f"{release}/qaps.csv:4"]
    assert "run download_stories.sh" in problems[0].message


def test_narrativeqa_digest_covers_the_stories(release: Path) -> None:
    before = open_source(release).digest()
    (release / "tmp/d1.content").write_text("Another story")
    assert open_source(release).digest() != before


def test_mixed_formats_in_one_file(tmp_path: Path) -> None:
    _, problems = written(tmp_path, BENCH, MUSIQUE)
    assert str(problems[0]) == f"{tmp_path}/file:2: a MuSiQue entry among longdoc-bench entries"


def test_qmsum_gives_its_general_queries_on_the_turns(tmp_path: Path) -> None:
    turns = [{"speaker": "A", "content": "Hello ."}, {"speaker": "B", "content": "Yes ."}]
    queries = [{"query": "Summarize.", "answer": "They met."}, {"query": "Decision?", "answer": "None."}]
    specific = [{"query": "x"}]
    entry = {"meeting_transcripts": turns, "general_query_list": queries, "specific_query_list": specific}
    examples, problems = written(tmp_path, entry)
    assert not problems
    assert [(f.example.question, f.example.answers) for f in examples] == [
        ("Summarize.", ("They met.",)),
        ("Decision?", ("None.",)),
    ]
    assert examples[0].example.documents.documents == (Document("", "A: Hello .\nB: Yes ."),)
    assert examples[0].datasets == ("qmsum",)


MEETING = {
    "meeting_transcripts": [
        {"speaker": "Chair", "content": "{ vocalsound } The a_m_i_ remote { disfmarker } has an l_c_d_ ."},
        {"speaker": "B", "content": "Um { pause } no t_v_ ."},
    ],
    "general_query_list": [{"query": "Summarize the whole meeting.", "answer": "They met."}],
    "topic_list": [{"topic": "Remote", "relevant_text_span": [["0", "1"]]}, {"topic": "Cost of it"}],
}


def test_qmsum_in_graph_of_records_layout_where_a_card_names_it(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(MEETING) + "\n", encoding="utf-8")
    card = load_card("qmsum")
    plain = load(card, str(path)).examples[0]
    assert plain.documents.documents[0].text.startswith("Chair: { vocalsound } The a_m_i_ remote")
    formats = ("qmsum-speakers", *(name for name in card.formats if name != "qmsum"))
    theirs = load(card.model_copy(update={"formats": formats}), str(path)).examples[0]
    assert theirs.documents.documents[0].text == (
        "Speaker: Chair\nContent: The ami remote has an lcd .\nSpeaker: B\nContent: Um no tv ."
    )
    assert plain.id != theirs.id, "cells of the two are told apart by their questions' ids"


def test_qmsum_is_searched_with_its_topics_and_the_reader_is_asked_without(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(MEETING) + "\n", encoding="utf-8")
    cell = plan_cell(CellRequest("bm25", "qmsum", data=str(path)))
    question = cell.question(cell.data.examples[0])
    assert question.text == "Summarize the whole meeting."
    assert question.query == (
        "Summarize the whole meeting. The topic list of the meeting transcript is: Remote, Cost of it"
    )
    without = {key: value for key, value in MEETING.items() if key != "topic_list"}
    path.write_text(json.dumps(without) + "\n", encoding="utf-8")
    example = load(load_card("qmsum"), str(path)).examples[0]
    assert cell.question(example).query == "Summarize the whole meeting."


def squality(*questions: str) -> dict[str, Any]:
    responses = [{"response_text": f"Plot {number}"} for number in range(4)]
    asked = [{"question_text": text, "question_number": 1, "responses": responses} for text in questions]
    return {"metadata": {"passage_id": "51"}, "document": "Once.", "questions": asked}


def test_squality_asks_for_the_plot_alone(tmp_path: Path) -> None:
    example = one(tmp_path, squality("Who is Bob?", "What is the plot of the story?"))
    assert (example.id, example.question, example.task) == (
        "squality-51", "What is the plot of the story?", "summarization",
    )  # fmt: skip
    assert example.answers == ("Plot 0", "Plot 1", "Plot 2", "Plot 3")
    assert "none of its 1 questions" in error(tmp_path, squality("Who is Bob?"))


BOOKSUM = {
    "book_id": "Emma.chapter 1", "source": "sparknotes", "chapter": "Emma.", "chapter_length": "9000.0",
    "summary_text": "Emma is rich.", "summary_path": "x", "summary": "{}",
}  # fmt: skip


def test_booksum_rows_tell_the_length_of_their_chapter(tmp_path: Path) -> None:
    example = one(tmp_path, BOOKSUM)
    assert (example.id, example.metadata["chapter_length"]) == ("booksum-Emma.chapter 1-sparknotes", 9000.0)
    assert example.answers == ("Emma is rich.",)
    assert "chapter_length" in error(tmp_path, {**BOOKSUM, "chapter_length": "long"})


def test_wcep_articles_are_documents_with_their_titles(tmp_path: Path) -> None:
    articles = [{"title": "A", "text": "One."}, {"title": None, "text": "Two."}]
    example = one(tmp_path, {"id": 7, "summary": "S.", "articles": articles, "date": "2019"})
    assert (example.id, example.answers) == ("wcep-7", ("S.",))
    assert example.documents.documents == (Document("A", "One."), Document("", "Two."))


@pytest.mark.parametrize(
    ("entry", "texts", "datasets"),
    [
        ({"report": "R.", "summary": "S."}, ["R."], ("gov_report",)),
        ({"document": "One. </s> Two.</s>", "summary": "S."}, ["One.", "Two."], ()),
        ({"document": ["One.", " Two."], "summary": "S.", "id": "x"}, ["One.", "Two."], ()),
    ],
)
def test_texts_and_their_summary(
    tmp_path: Path, entry: dict[str, Any], texts: list[str], datasets: tuple[str, ...]
) -> None:
    examples, problems = written(tmp_path, entry)
    assert [document.text for document in examples[0].example.documents.documents] == texts
    assert examples[0].datasets == datasets
    assert ["does not say" in problem.message for problem in problems] == [True] * (not datasets)


ABSTRACT_WANTED = {"title": "T", "abstract": "A.", "main_content": "Text.", "gt": "Abstract."}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("test_0", "test"),
        ("abs_9K.test", "test"),
        ("latest_papers_train_3", "train"),
        ("VAL", "val"),
        ("evaluation_abs_9K", ""),
        ("contest-train", "train"),
        ("test_test", "test"),
    ],
)
def test_a_papers_split_is_a_whole_word_of_its_files_name(tmp_path: Path, name: str, split: str) -> None:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(ABSTRACT_WANTED), encoding="utf-8")
    (example,), problems = examples_in(path)
    assert example.split == split and not problems


def test_sentences_of_2wiki_which_carry_no_blank_are_joined_by_one(tmp_path: Path) -> None:
    context = [["T", ["One.", "He was born."]], *HOTPOT["context"][1:]]
    example = one(tmp_path, [{**HOTPOT, "context": context, "evidences": []}])
    assert example.documents.documents[0].text == "One. He was born."
