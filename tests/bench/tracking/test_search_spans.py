from __future__ import annotations

from typing import Any

from bench.data import load
from bench.results.passages import SourceTexts
from bench.results.records import ContextRecord, FlopCounts, Record, TokenCounts
from bench.tracking.search_spans import question_span

NO_SOURCE = SourceTexts("hotpotqa", "path")


def record(trace: Any, context: list[ContextRecord], **changes: Any) -> Record:
    fields = {
        "example_id": "q1",
        "document_ids": ["d"],
        "question": "Who?",
        "answers": ["Ilse"],
        "prediction": "Ilse",
        "scores": {"f1": 1.0},
        "context": context,
        "tokens": TokenCounts(prompt=40, completion=2, forwarded=50),
        "flops": FlopCounts(
            query=2_000_000_000, index=0, convention="paper", query_by_model={}, index_by_model={}
        ),
        "truncated": False,
        "flags": [],
        "wall_s": 2.0,
        "error": None,
        "trace": trace,
    }
    return Record(**{**fields, **changes})


def node(name: str, text: str | None) -> ContextRecord:
    return ContextRecord(document=None, title="", start=None, end=None, node=name, text=text)


def test_a_search_has_a_span_for_every_visited_node_with_text_score_and_what_was_said_after_it() -> None:
    steps = [
        {"nodes": [{"id": "2.1", "score": None}, {"id": "2.2", "score": None}], "p_yes": 0.1, "mass": 0.9},
        {"nodes": [{"id": "1.4", "score": 0.25, "r": 0.5}], "p_yes": 0.75, "mass": 0.8},
    ]
    context = [node("2.1", "one"), node("2.2", "two"), node("1.4", "three")]
    root = question_span(record({"stop": "patience", "steps": steps}, context), "pecan t_p=2", NO_SOURCE)
    assert [span.name for span in root.flat()] == [
        "pecan t_p=2",
        "step 0: 2 nodes · p_yes 0.10",
        "node 2.1",
        "node 2.2 · p_yes 0.10",
        "node 1.4 · p_yes 0.75",
        "answer",
    ]
    third = root.flat()[4]
    assert (third.kind, third.inputs) == ("RETRIEVER", {"node": "1.4"})
    assert third.outputs == {"text": "three", "score": 0.25, "p_yes": 0.75}
    assert third.attributes == {"score": 0.25, "r": 0.5, "p_yes": 0.75, "mass": 0.8}
    assert root.flat()[2].outputs == {"text": "one"}  # nothing was asked after it
    assert root.inputs == {"question": "Who?"}
    assert root.outputs == {"answer": "Ilse", "references": ["Ilse"]}
    assert root.attributes["stop"] == "patience" and root.attributes["query_tflops"] == 0.002
    assert root.weight == sum(child.weight for child in root.children)


def test_nodes_that_are_not_the_context_get_none_of_its_texts() -> None:
    root = question_span(record({"steps": [{"nodes": [{"id": "1.1"}]}]}, []), "m", NO_SOURCE)
    assert root.children[0].outputs == {"text": None}


def test_a_walk_has_a_span_per_step_with_what_was_seen_and_replied() -> None:
    steps = [
        {"node": "1.1", "offered": ["0.1", "0.2"], "action": 1, "reply": "Action: 1", "rejected": ["x"]},
        {"node": "0.2", "memory": ["1.1"], "action": -2, "reply": "Action: -2\nAnswer: Ilse", "rejected": []},
    ]
    root = question_span(record({"steps": steps}, [node("1.1", "a summary")]), "memwalker", NO_SOURCE)
    first, second, answer = root.children
    assert (first.name, second.name, answer.name) == ("step 0: node 1.1", "step 1: node 0.2", "answer")
    assert first.outputs == {"reply": "Action: 1"}
    assert first.inputs == {
        "node": "1.1", "offered": ["0.1", "0.2"], "action": 1, "rejected": ["x"], "text": "a summary",
    }  # fmt: skip


def test_a_ranker_has_one_span_with_its_passages_and_their_texts() -> None:
    from bench.data.cards import load_card

    documents = load(load_card("hotpotqa"), "sample", 1).examples[0].documents.documents
    item = ContextRecord(document=1, title=documents[1].title, start=0, end=12, score=4.5)
    ids = [document.id for document in documents]
    question_record = record({}, [item], document_ids=ids)
    root = question_span(question_record, "bm25", SourceTexts("hotpotqa", "sample"))
    (passage,) = root.children[0].outputs
    assert passage["page_content"] == documents[1].full_text[:12]
    assert passage["metadata"] == {
        "source": "document 1 [0:12]", "title": documents[1].title, "score": 4.5,
    }  # fmt: skip
    without = question_span(question_record, "bm25", NO_SOURCE).children[0].outputs[0]
    assert without["page_content"] == "(its document is not available here)"


def test_a_failed_question_says_why_in_the_place_of_its_answer() -> None:
    failed = record({}, [], prediction=None, error="RuntimeError: out of memory", scores={"f1": 0.0})
    root = question_span(failed, "bm25", NO_SOURCE)
    assert root.children[-1].outputs == "FAILED: RuntimeError: out of memory"
    assert len(root.children) == 1
