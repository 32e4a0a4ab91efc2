from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data import load
from bench.data.cards import load_card
from bench.method import passages
from bench.method.chunking import chunk_documents
from bench.metrics.evidence import Place, evidence_places
from bench.metrics.retrieval import retrieval_quality
from bench.results.index_store import IndexStore
from bench.results.records import ContextRecord, Record, read_records
from bench.results.summary import summarize
from bench.schema import Document, DocumentSet, Evidence, Example, Question
from tests import cells
from tests.stand_ins import WordModel, WordModels, examples, run_cell, stand_in_cell

MULTI_HOP = Example(
    id="x",
    dataset="hotpotqa",
    task="qa",
    question="Who hid the kite of Otto's baker?",
    answers=("The Mill-Girl", "Mara Feld"),
    documents=DocumentSet(
        (
            Document("Otto", "Otto Lund knew a baker. Her name was Mara\nFeld, they say."),
            Document("Kite", "The kite was red. It lay in the mill."),
            Document("Fair", "There was a fair."),
        )
    ),
    evidence=(Evidence(0, 1, "Her name was Mara\nFeld, they say."), Evidence(1, 0, "x"), Evidence(0, 0, "y")),
)
LONG = replace(
    MULTI_HOP,
    dataset="qasper",
    documents=DocumentSet((Document("T", "Aaaa bbbb.\nCccc dddd.\nEeee ffff."),)),
    evidence=(Evidence(0, text="Cccc dddd."), Evidence(0, text="Aaaa bbbb.")),
)


def span(example: Example, document: int, start: int = 0, end: int | None = None) -> ContextRecord:
    text = example.documents.documents[document].full_text
    return ContextRecord(document=document, title="", start=start, end=len(text) if end is None else end)


def node(text: str) -> ContextRecord:
    return ContextRecord(document=None, title="", start=None, end=None, node="2:0", text=text)


def test_labels_of_sentences_stand_for_their_documents_and_passages_for_themselves() -> None:
    assert evidence_places(MULTI_HOP.documents, MULTI_HOP.evidence or ()) == [
        Place(0, 0, len("Otto\nOtto Lund knew a baker. Her name was Mara\nFeld, they say."), whole=True),
        Place(1, 0, len("Kite\nThe kite was red. It lay in the mill."), whole=True),
    ]
    assert evidence_places(LONG.documents, LONG.evidence or ()) == [Place(0, 2, 12), Place(0, 13, 23)]
    with pytest.raises(ValueError, match="does not hold the evidence 'Gggg'"):
        evidence_places(LONG.documents, [Evidence(0, text="Gggg")])


def test_recall_is_the_share_of_supporting_documents_that_passages_are_from() -> None:
    def recall(*context: ContextRecord) -> float:
        return retrieval_quality(context, MULTI_HOP)["evidence_recall"]

    assert recall() == 0
    assert recall(span(MULTI_HOP, 2)) == 0
    assert recall(span(MULTI_HOP, 1, 5, 9), span(MULTI_HOP, 1, 20, 25)) == 0.5
    assert recall(span(MULTI_HOP, 1, 5, 9), span(MULTI_HOP, 2), span(MULTI_HOP, 0, 0, 4)) == 1


def test_recall_of_labelled_passages_is_the_share_of_their_characters() -> None:
    def recall(*context: ContextRecord) -> float:
        return retrieval_quality(context, LONG)["evidence_recall"]

    assert recall(span(LONG, 0)) == 1
    assert recall(span(LONG, 0, 0, 12)) == 0.5
    assert recall(span(LONG, 0, 7, 15)) == pytest.approx((5 / 10 + 2 / 10) / 2)
    overlapping = [span(LONG, 0, 7, 12), span(LONG, 0, 5, 10), span(LONG, 0, 8, 9)]
    assert recall(*overlapping) == pytest.approx((7 / 10) / 2)
    assert recall(span(LONG, 0, 24, 30)) == 0


def ranks(example: Example, *scored: tuple[float, ContextRecord]) -> tuple[float, float]:
    context = [item.model_copy(update={"score": score}) for score, item in scored]
    quality = retrieval_quality(context, example)
    return quality["mrr"], pytest.approx(quality["ndcg"])


def test_mrr_and_ndcg_say_how_early_the_evidence_comes_by_score() -> None:
    otto, kite, fair = (span(MULTI_HOP, at) for at in range(3))
    first, second, third = (1 / math.log2(1 + rank) for rank in (1, 2, 3))
    assert ranks(MULTI_HOP, (3, otto), (2, kite), (1, fair)) == (1, 1)
    assert ranks(MULTI_HOP, (3, fair), (2, kite), (1, otto)) == (
        1 / 2, (second + third) / (first + second)
    )  # fmt: skip
    in_document_order = ranks(MULTI_HOP, (1, otto), (2, kite), (3, fair))
    assert in_document_order == (1 / 2, (second + third) / (first + second))
    assert ranks(MULTI_HOP, (2, fair), (1, kite)) == (1 / 2, second / (first + second))
    assert ranks(MULTI_HOP, (1, kite)) == (1, 1)  # one passage was read and could hold no more
    assert ranks(MULTI_HOP, (1, fair)) == ranks(MULTI_HOP) == (0, 0)


def test_a_passage_seen_again_adds_nothing_and_one_with_two_places_counts_as_two_ranks() -> None:
    first, second, third = (1 / math.log2(1 + rank) for rank in (1, 2, 3))
    again = [(3, span(LONG, 0, 13, 23)), (2, span(LONG, 0, 14, 23)), (1, span(LONG, 0, 2, 12))]
    assert ranks(LONG, *again) == (1, (first + third) / (first + second))
    assert ranks(LONG, (2, span(LONG, 0, 0, 24)), (1, span(LONG, 0, 24, 30))) == (1, 1)
    joined = [(2.0, span(MULTI_HOP, 0, 30)), (2.0, span(MULTI_HOP, 1, 0, 9)), (3.0, span(MULTI_HOP, 2))]
    assert ranks(MULTI_HOP, *joined) == (1 / 2, (second + third) / (first + second))


def test_neighbouring_documents_of_one_score_are_passages_of_their_own() -> None:
    otto, kite, fair = (span(MULTI_HOP, at).model_copy(update={"chunk": at}) for at in range(3))
    first, second, third = (1 / math.log2(1 + rank) for rank in (1, 2, 3))
    assert ranks(MULTI_HOP, (2, fair), (1, otto), (1, kite)) == (
        1 / 2, (second + third) / (first + second)
    )  # fmt: skip
    only_kite = replace(MULTI_HOP, evidence=(Evidence(1),))
    assert ranks(only_kite, (1, otto), (1, kite)) == (1 / 2, second)


def test_a_passage_goes_on_after_a_blank_document() -> None:
    blank = DocumentSet((Document("", "The kite was red."), Document("", " "), Document("", "Otto fell.")))
    example = replace(MULTI_HOP, documents=blank, evidence=(Evidence(2),))
    (chunk,) = chunk_documents(blank, WordModel().tokenize, 100, join=True)
    question = Question("Who fell?", blank, 8)
    context = [
        ContextRecord(**{name: getattr(item, name) for name in ContextRecord.model_fields})
        for item in passages(chunk, question, 1.0)
    ]
    assert [item.document for item in context] == [0, 2]
    assert ranks(example, *((1, item) for item in context)) == (1, 1)


def test_recall_is_left_out_where_it_says_nothing() -> None:
    whole = span(MULTI_HOP, 0)
    for evidence in (None, ()):
        assert "evidence_recall" not in retrieval_quality([whole], replace(MULTI_HOP, evidence=evidence))
    assert "evidence_recall" not in retrieval_quality([whole, node("Mara Feld")], MULTI_HOP)
    nowhere = replace(MULTI_HOP, documents=DocumentSet((Document("", ""),)), evidence=(Evidence(0),))
    assert "evidence_recall" not in retrieval_quality([], nowhere)


def test_an_answer_stands_in_the_context_by_whole_normalised_words() -> None:
    def in_context(*context: ContextRecord, answers: tuple[str, ...] = MULTI_HOP.answers) -> float:
        return retrieval_quality(context, replace(MULTI_HOP, answers=answers))["answer_in_context"]

    assert in_context(span(MULTI_HOP, 0)) == 1  # across a line break, before a comma
    assert in_context(span(MULTI_HOP, 1)) == 0
    assert in_context(span(MULTI_HOP, 0, 0, 44)) == 0  # cut inside the name
    assert in_context(node("it was a mill-girl")) == 1
    assert in_context(span(MULTI_HOP, 1), answers=("red kite",)) == 0
    assert in_context(span(MULTI_HOP, 1), answers=("ill",)) == 0  # part of a word
    assert in_context(answers=("Mara",)) == 0


def test_an_answer_that_no_text_needs_to_contain_is_not_looked_for() -> None:
    for answers in (("Yes",), ("no.", "Unanswerable"), ("A.",)):
        assert "answer_in_context" not in retrieval_quality([], replace(MULTI_HOP, answers=answers))
    assert retrieval_quality([span(MULTI_HOP, 1)], replace(MULTI_HOP, answers=("Yes", "red")))[
        "answer_in_context"
    ]
    assert "answer_in_context" not in retrieval_quality([], replace(MULTI_HOP, task="summarization"))


def record(name: str, retrieval: dict[str, float], error: str | None = None) -> Record:
    prediction = None if error else "a"
    fields = {"document_ids": [name], "prediction": prediction, "error": error, "retrieval": retrieval}
    return cells.record(example_id=name, **fields)


def test_the_summary_averages_over_the_questions_that_have_a_measure() -> None:
    rows = [
        record("a", {"evidence_recall": 1.0, "answer_in_context": 0.0}),
        record("b", {"evidence_recall": 0.5}),
        record("c", {}),
        record("d", {"evidence_recall": 0.0}, error="ValueError: no"),
    ]
    measures = summarize(rows, ["f1"]).retrieval
    assert (measures["evidence_recall"].mean, measures["evidence_recall"].n) == (0.5, 3)
    low, high = measures["evidence_recall"].low, measures["evidence_recall"].high
    assert low is not None and high is not None and 0 <= low < 0.5 < high <= 1
    assert (measures["answer_in_context"].mean, measures["answer_in_context"].n) == (0.0, 1)
    assert measures["answer_in_context"].low is None


def test_a_run_measures_every_context(tmp_path: Path) -> None:
    asked = tuple(replace(e, evidence=(Evidence(0),)) for e in examples(3))
    result = run_cell(stand_in_cell(asked), tmp_path / "cell", IndexStore(tmp_path / "i"), WordModels)
    assert result.summary.retrieval["evidence_recall"].mean == 1.0
    assert result.summary.retrieval["answer_in_context"].mean == 0.0
    measures = {"evidence_recall": 1.0, "mrr": 1.0, "ndcg": 1.0, "answer_in_context": 0.0}
    assert all(r.retrieval == measures for r in read_records(tmp_path / "cell" / "records.jsonl"))


@pytest.mark.parametrize(
    ("dataset", "file"),
    [("hotpotqa", "raw/hotpotqa/hotpotqa_train_100.json"), ("musique", "raw/musique/musique_head74.jsonl")],
)
def test_whole_texts_hold_all_evidence_of_real_questions(real_data: Path, dataset: str, file: str) -> None:
    questions = load(load_card(dataset), str(real_data / file), None).examples
    answers = []
    for example in questions:
        n = len(example.documents.documents)
        everything = retrieval_quality([span(example, i) for i in range(n)], example)
        assert everything["evidence_recall"] == 1.0
        labelled = {e.document for e in example.evidence or ()}
        rest = retrieval_quality([span(example, i) for i in range(n) if i not in labelled], example)
        assert rest["evidence_recall"] == 0.0
        if "answer_in_context" in everything:
            answers.append(everything["answer_in_context"])
    assert sum(answers) / len(answers) > 0.95  # a few answers are worded differently
