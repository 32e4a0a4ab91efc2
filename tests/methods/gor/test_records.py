"""Queries, answers and edges on a stand-in whose replies are a function of the prompt."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.method.dense import unit_rows
from bench.method.prompts import reader_prompt
from bench.models.api import Geometry
from bench.models.spec import default_geometry
from bench.schema import Document, DocumentSet, Question
from methods.gor import Gor, GorConfig
from methods.gor.prompts import gor_answer_prompt, gor_question_prompt
from methods.gor.records import Records, RecordsPlan, arcs, build_records
from methods.gor.simulation import first_question, simulate_queries
from tests.methods.writers import GEOMETRY, Models

LENGTHS = {"chunk_tokens": 6, "overlap_tokens": 0, "question_tokens": 12, "answer_tokens": 9}
PLAN = RecordsPlan(**LENGTHS, queries=8, k=3, temperature=0.5, seed=0)


def document(chunks: int) -> DocumentSet:
    texts = (f"alpha{i} beta{i} gamma{i} delta{i} x y" for i in range(chunks))
    return DocumentSet((Document("", " ".join(texts)),))


def reply(prompt: str) -> str:
    """Asks about the chunk's second word, and answers with the first word of every text it was given."""
    if prompt.startswith("Passage:"):
        return f"What is {prompt.split()[2]}?"
    texts = prompt.partition("Information:\n")[2].partition("\n\nQuestion:")[0].split("\n\n")
    asked = prompt.partition("Question:\n")[2].split()[2]
    return f"{asked} is " + " ".join(text.split()[0] for text in texts)


def build(
    documents: DocumentSet, plan: RecordsPlan = PLAN, models: Models | None = None
) -> tuple[Records, Models]:
    models = models or Models(reply)
    building: Any = build_records(documents, models.writer, models.encoder, plan)  # type: ignore[arg-type]
    return asyncio.run(building), models


def test_a_query_is_answered_from_the_nearest_chunks_and_earlier_answers() -> None:
    records, _ = build(document(12))
    assert len(records.queries) == PLAN.queries and records.chunks == 12
    assert len({query.text for query in records.queries}) == PLAN.queries
    units = unit_rows(records.embeddings)
    seen = records.chunks
    read_answers = 0
    for query, vector in zip(records.queries, unit_rows(records.query_embeddings), strict=True):
        assert query.text.split()[2].rstrip("?") in records.nodes[query.source].text
        expected = np.argsort(-(units[:seen] @ vector), kind="stable")[: PLAN.k]
        assert list(query.retrieved) == expected.tolist(), "among chunks and the answers so far, best first"
        assert query.answer is not None
        words = records.nodes[query.answer].text.split()[2:]
        assert words == [records.nodes[node].text.split()[0] for node in query.retrieved]
        read_answers += any(node >= records.chunks for node in query.retrieved)
        seen = max(seen, query.answer + 1)
    assert read_answers, "some answer was written from an earlier one"


def test_an_edge_leads_from_everything_read_to_the_answer_once() -> None:
    records, _ = build(document(12))
    expected = {(n, q.answer) for q in records.queries for n in q.retrieved if n != q.answer}
    assert sorted(map(tuple, arcs(records.queries).T.tolist())) == sorted(expected)  # type: ignore[type-var]
    never = set(range(records.chunks)) - {n for q in records.queries for n in q.retrieved}
    assert never and not never & set(arcs(records.queries).ravel().tolist()), "unread chunks stay, alone"


def test_what_is_said_twice_is_one_node() -> None:
    same, other = "one two three four five six", "other words are here now too"
    repeated = DocumentSet((Document("", f"{same} " * 4 + other),))
    number = itertools.count()
    models = Models(lambda p: f"What {next(number)}?" if p.startswith("Passage") else "Always.")
    records, _ = build(repeated, replace(PLAN, queries=6), models)
    assert [node.text.strip() for node in records.nodes] == [same, other, "Always."]
    first = records.nodes[0].chunk
    assert first is not None and first.start == 0, "the first of them stands for all"
    assert records.notes["events"]["duplicate_chunk"] == 3
    assert records.notes["events"]["duplicate_answer"] == 5
    assert {query.answer for query in records.queries} == {2}
    assert sorted(arcs(records.queries).T.tolist()) == [[0, 2], [1, 2]], "no edge of a node with itself"


@pytest.mark.parametrize("documents", [DocumentSet(()), DocumentSet((Document("", " \n"),))])
def test_nothing_to_read_is_a_graph_without_nodes(documents: DocumentSet) -> None:
    records, models = build(documents)
    assert not records.nodes and not records.queries and not models.writer.prompts
    assert arcs(records.queries).shape == (2, 0) and records.embeddings.shape == (0, 16)


def test_queries_are_drawn_at_the_temperature_and_answers_are_not() -> None:
    _, models = build(document(6))
    for prompt, sampling in zip(models.writer.prompts, models.writer.samplings, strict=True):
        if prompt.startswith("Passage"):
            assert sampling is not None and sampling.temperature == 0.5
        else:
            assert sampling is None
    seeds = [s.seed for s in models.writer.samplings if s is not None]
    assert len(set(seeds)) == len(seeds), "no two attempts draw alike"
    _, greedy = build(document(6), replace(PLAN, temperature=0.0))
    assert not any(greedy.writer.samplings)


def test_a_document_has_its_own_queries_and_always_the_same() -> None:
    def asked(chunks: int, seed: int = 0) -> list[str]:
        return [query.text for query in build(document(chunks), replace(PLAN, seed=seed))[0].queries]

    assert asked(12) == asked(12) != asked(12, seed=1)
    assert [q.rstrip("?")[-1] for q in asked(12)] != [q.rstrip("?")[-1] for q in asked(13)]


def test_silence_and_repetition_are_counted_and_end() -> None:
    events: Counter[str] = Counter()
    models = Models(lambda prompt: "" if "text1" in prompt else "1. Same question?")
    options: dict[str, Any] = {"wanted": 4, "temperature": 0.5, "max_new_tokens": 9, "seed": (0,)}
    writer: Any = models.writer
    queries = asyncio.run(simulate_queries(["text0", "text1"], writer, events=events, **options))
    assert [asked.text for asked in queries] == ["Same question?"]
    assert events["query_attempts"] == 12
    assert events["empty_query"] + events["duplicate_query"] == 11 and events["empty_query"] > 0


def test_an_empty_answer_is_no_node_and_its_query_stays() -> None:
    silent = Models(lambda prompt: reply(prompt) if prompt.startswith("Passage") else "")
    records, _ = build(document(4), replace(PLAN, queries=3), silent)
    assert len(records.nodes) == 4 and len(records.queries) == 3
    assert all(query.answer is None for query in records.queries)
    assert records.notes["events"]["empty_answer"] == 3


def test_what_does_not_fit_is_left_out_and_has_no_edge() -> None:
    small = Geometry(chunk_tokens=6, window=64, input_limit=48, summary_tokens=8)
    records, models = build(document(9), replace(PLAN, k=6), Models(reply, small))
    answers = [p for p in models.writer.prompts if p.startswith("Information")]
    assert all(models.writer.count_tokens(p) + 3 + PLAN.answer_tokens <= 48 for p in answers)
    assert records.notes["events"]["dropped_passage"] > 0
    assert all(0 < len(query.retrieved) < 6 for query in records.queries)


def test_the_graph_survives_its_index() -> None:
    records, _ = build(document(9))
    again = Records.from_index(records.to_index(), document(9))
    assert again.nodes == records.nodes and again.queries == records.queries
    np.testing.assert_array_equal(again.embeddings, records.embeddings)
    assert [again.id(node) for node in (0, 8, 9)] == ["c1", "c9", "r1"]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("1. Who hid it?\n2. Why?", "Who hid it?"),
        ("\n\n- «Où est-il ?»", "Où est-il ?»"),
        ("東京は どこ?", "東京は どこ?"),
        ("12 34 ...\nWho   is\tit?", "Who is it?"),
        ("?!", ""),
        ("", ""),
    ],
)
def test_the_first_question_of_a_reply(text: str, question: str) -> None:
    assert first_question(text) == question


def test_readers_at_the_papers_lengths_are_asked_in_the_papers_words() -> None:
    # Graph of Records, App. D.1 and D.2.
    assert gor_question_prompt("P", "paper").startswith("You are a great questioner of any text")
    assert gor_question_prompt("P", "paper").endswith("do not output irrelevant text.\n\nDOCUMENT: P")
    assert gor_answer_prompt("M", "Q", "paper") == (
        "Refer to the following supporting materials and answer the question with brief but complete "
        "explanations.\n\nSUPPORTING MATERIALS: M\n\nQUESTION: Q"
    )
    paper, small = Gor(GorConfig(), default_geometry(131_072)), Gor(GorConfig(), GEOMETRY)
    assert (paper.plan.wording, small.plan.wording) == ("paper", "ours")
    final = reader_prompt(paper.prompt, "M", Question("Q", DocumentSet(()), 8))
    assert final == gor_answer_prompt("M", "Q", "paper") and small.prompt == "pecan"
    assert Gor(GorConfig(prompt="longbench"), default_geometry(131_072)).prompt == "longbench"
    assert paper.roles()["ranking_encoder"].model == "microsoft/deberta-xlarge-mnli"  # Sec. 2.3
    assert small.roles()["ranking_encoder"].model == "minilm"
