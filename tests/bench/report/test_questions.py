from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report.cells import grouped
from bench.report.questions import Browser, Limits, browse, shortened
from bench.results.finished import find_finished
from tests.bench.report.finished import OWN_TEXT, bm25, finish, own, own_file, steps


def browsed(results: Path, own_files: Sequence[Path] = (), **limits: int) -> Browser:
    return browse(grouped(find_finished(results)[0]), own_files, Limits(**limits))


def methods(browser: Browser, at: int = 0) -> Mapping[str, Any]:
    return {method["name"]: method for method in browser.data["sets"][at]["methods"]}


def test_an_answer_has_its_record_and_the_text_that_was_read(tmp_path: Path) -> None:
    cell = finish(tmp_path, bm25(), [1, 0], {1: {"flags": ["odd"], "truncated": True, "prediction": ""}})
    browser = browsed(tmp_path)
    (data,) = browser.data["sets"]
    first, second = data["methods"][0]["answers"]
    example = cell.data.examples[0]
    assert (browser.questions, browser.notes, data["metrics"]) == (2, (), ["f1", "rouge_l"])
    assert data["questions"][0]["references"] == list(example.answers)
    assert first["prediction"] == example.answers[0] and first["scores"] == {"f1": 1, "rouge_l": 1}
    assert first["flops"] == [2 * 10**9, 10**9] and "flags" not in first
    title, place, score, text = first["context"][0]
    document = example.documents.documents[0]
    assert (title, score) == (document.title, 1.25) and place.startswith("document 0 [0:")
    assert browser.data["texts"][text] == document.full_text
    assert second["prediction"] == "" and second["flags"] == ["truncated", "odd"]


def test_cells_of_different_length_share_their_questions(tmp_path: Path) -> None:
    finish(tmp_path, bm25(limit=1), [1])
    cell = finish(tmp_path, bm25(limit=3), [1, 0, 1])
    browser = browsed(tmp_path)
    (data,) = browser.data["sets"]
    short, long = methods(browser)["bm25 questions=1"], methods(browser)["bm25 questions=3"]
    assert [question["id"] for question in data["questions"]] == [e.id for e in cell.data.examples]
    assert [answer is None for answer in short["answers"]] == [False, True, True]
    assert all(answer is not None for answer in long["answers"])
    assert len(browser.data["texts"]) == len({e.documents.id for e in cell.data.examples})


def test_a_failed_question_says_why(tmp_path: Path) -> None:
    failed = {"prediction": None, "error": "ValueError: no text", "context": []}
    finish(tmp_path, bm25(), [1, 0], {0: {"scores": {}}, 1: failed})
    (data,) = browsed(tmp_path).data["sets"]
    answer = data["methods"][0]["answers"][1]
    assert data["metrics"], "the first question has no reference"
    assert answer["error"] == "ValueError: no text" and "prediction" not in answer and "context" not in answer


def test_what_is_over_a_limit_is_cut_where_one_sees_it_and_said(tmp_path: Path) -> None:
    for k in (3, 4, 5):
        finish(tmp_path, bm25(k=k, limit=3), [1, 0, 1], {0: {"prediction": "x" * 30}})
    browser = browsed(tmp_path, questions=2, cells=2, passage_characters=40, answer_characters=20)
    (data,) = browser.data["sets"]
    assert len(data["methods"]) == 2 and len(data["questions"]) == 2
    assert data["methods"][0]["answers"][0]["prediction"] == "x" * 20 + " … [10 more characters]"
    assert all(len(text) < 80 and "more characters]" in text for text in browser.data["texts"])
    assert browser.notes == (
        "hotpotqa (sample): 1 of 3 finished cells are left out of the questions; the highest scores are "
        "shown.",
        "hotpotqa (sample): the first 2 of 3 questions.",
    )


def test_a_full_page_takes_no_more_texts(tmp_path: Path) -> None:
    path = own_file(tmp_path, [("A", "a" * 100), ("B", "b" * 100)])
    finish(tmp_path / "results", own(path), [1, 0])
    browser = browsed(tmp_path / "results", [path], all_characters=150)
    first, second = browser.data["sets"][0]["methods"][0]["answers"]
    assert first["context"][0][3] == 0 and second["context"][0][3] is None
    (note,) = browser.notes
    assert note.startswith("1 passages have no text, since the page is limited to 150 characters")


def test_texts_of_own_data_need_the_file(tmp_path: Path) -> None:
    path = own_file(tmp_path, [("Bridge", OWN_TEXT)])
    finish(tmp_path / "results", own(path), [1])
    (text,) = browsed(tmp_path / "results").data["texts"]
    assert text == shortened("Bridge\n" + OWN_TEXT, Limits().passage_characters), "where the cell had it"
    path = path.rename(tmp_path / "moved.jsonl")
    without = browsed(tmp_path / "results")
    assert without.data["texts"] == []
    assert without.notes == ("qasper (own.jsonl): 1 passages have no text: name your file with --documents",)
    finish(tmp_path / "results", own(other := own_file(tmp_path, [("B", "b")], "b.jsonl")), [1])
    assert len(browsed(tmp_path / "results", [path]).data["texts"]) == 2, f"{other.name} is where it was"
    other.unlink()
    (text,) = browsed(tmp_path / "results", [path]).data["texts"]
    assert text == shortened("Bridge\n" + OWN_TEXT, Limits().passage_characters)


def test_the_search_path_has_every_node_with_its_step(tmp_path: Path) -> None:
    finish(tmp_path, bm25(), [1, 0], {0: {"trace": steps(0.7)}, 1: {"trace": steps(0.2, 0.7)}})
    first, second = browsed(tmp_path).data["sets"][0]["methods"][0]["answers"]
    assert first["path"] == {
        **{"stop": "patience", "t_p": 1, "t_c": 0.5, "patience": "cumulative"},
        "steps": [{"nodes": [{"id": "1.0", "level": 1, "score": 0.0}], "p_yes": 0.7, "mass": 0.9}],
    }
    assert "log" not in first
    assert "path" not in second and "t_c: 0.5" in second["log"], "two nodes, but one passage: no path"
