"""HippoRAG 2: a phrase that two passages share leads from the one that the question is like to the other."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.method import fits
from bench.schema import Document, DocumentSet, Question
from methods.retrievers.hipporag import (
    HippoRag,
    HippoRagConfig,
    _extract,
    entities_in,
    lists_in,
    phrase_graph,
    phrase_weights,
    synonym_edges,
)
from tests.methods.writers import Models
from tests.stand_ins import GEOMETRY

TEXTS = (
    "Where kites are given whom somebody asks.",
    "Mara Feld gave the kite to Otto Lund.",
    "In spring the clerk moved to Harbury.",
    "A goat called Pepper was given away.",
    "Rain fell all day on the fields.",
)
PAGES = DocumentSet(tuple(Document("", text) for text in TEXTS))
QUESTION = Question("Whom was the kite given by Mara Feld", PAGES, 8)
GIVEN = ["Mara Feld", "gave the kite to", "Otto Lund"]
MOVED = ["Otto Lund", "moved to", "Harbury"]
GOAT = ["goat", "called", "Pepper"]
OF_TEXT = {TEXTS[1]: [GIVEN], TEXTS[2]: [MOVED], TEXTS[3]: [GOAT]}


def run(kept: str = json.dumps([GIVEN]), of_text: Mapping[str, Any] = OF_TEXT, **options: Any) -> Any:
    """The method's index, ranking, answer, models, and the meters of index and answer."""

    def reply(prompt: str) -> str:
        if "leave out every" in prompt:
            return kept
        if "List the named entities" in prompt:
            return '["Otto Lund"]'
        if "Write the facts of the text" in prompt:
            assert '["Otto Lund"]' in prompt
            facts = next((facts for text, facts in of_text.items() if text in prompt), [])
            return facts if isinstance(facts, str) else json.dumps(facts)
        return "Harbury"

    models: Any = Models(reply, GEOMETRY)
    method = HippoRag(HippoRagConfig(chunk_tokens=32, join_documents="off", k=2, **options), GEOMETRY)

    async def both() -> Any:
        with metered(Meter()) as indexing:
            index = await method.index(PAGES, models)
        ranked = await method.rank(index, QUESTION, models)
        with metered(Meter()) as answering:
            answer = await method.answer(index, QUESTION, models)
        return index, ranked, answer, models.writer, indexing, answering

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("reply", "lists"),
    [
        ('{"triples": [["a", "b [c]", "d"],\n ["e", "f", "g",]]}', [["a", "b [c]", "d"], ["e", "f", "g"]]),
        ("Facts: [['Ada', 'born in', '1815'], ['Ada', 'is']]", [["Ada", "born in", "1815"], ["Ada", "is"]]),
        ("[Ines's clock, was, 3]", [["Ines's clock", "was", "3"]]),
        ('[["a", "b", "c"], ["d", "e', [["a", "b", "c"]]),  # cut
        ('[["Zo\\u00eb", "said \\"no\\"", "x"]]', [["Zoë", 'said "no"', "x"]]),
        ("Ada was born in 1815.", []),
        ("[a" + " " * 3000 + "b {", []),  # took minutes
        ("[]", []),
    ],
)
def test_triples_are_read_leniently(reply: str, lists: list[list[str]]) -> None:
    assert lists_in(reply) == lists


@pytest.mark.parametrize(
    ("reply", "entities"),
    [
        ('{"named_entities": ["Ada Lovelace", "London"]} and ["more"]', ["Ada Lovelace", "London"]),
        ('["Ada Lovelace", "Lon', ["Ada Lovelace"]),
        ("Ada Lovelace", []),
    ],
)
def test_entities_are_read_leniently(reply: str, entities: list[str]) -> None:
    assert entities_in(reply) == entities


def test_entities_that_do_not_fit_the_builder_beside_the_triples_are_left_out() -> None:
    builder: Any = Models(lambda prompt: f"[{', '.join(map(str, range(40)))}]", GEOMETRY).writer
    asyncio.run(_extract("Otto left.", builder, 100, events := Counter[str]()))
    assert events["left_out_entities"] > 0
    assert fits(builder.prompts[-1], builder, 100, GEOMETRY.input_limit)


def test_edges_join_the_phrases_of_triples_and_the_passages_with_them() -> None:
    graph = phrase_graph([[("a", "x", "b"), ("b", "y", "a"), ("a", "is", "a")], [], [("c", "x", "b")]])
    assert graph.phrases == ["a", "b", "c"]
    assert graph.passages_with == [1, 2, 1]
    assert graph.edges == {
        **{(0, 1): 2, (1, 0): 2, (1, 2): 1, (2, 1): 1},  # a triple of one phrase joins nothing
        **{(3, 0): 1, (3, 1): 1, (5, 2): 1, (5, 1): 1},
    }


def test_synonyms_are_similar_phrases_and_short_ones_look_for_none() -> None:
    vectors = np.array([[1, 0], [0.9, 0.436], [0.6, 0.8], [1, 0], [1, 0]], np.float32)
    edges = synonym_edges(["otto", "lund", "ann", "ot", ""], vectors, 0.8)
    assert set(edges) == {(0, 1), (1, 0), (0, 3), (1, 3), (1, 2), (2, 1)}
    assert edges[0, 1] == pytest.approx(0.9)


def test_a_phrase_weighs_the_mean_score_of_its_facts_over_its_number_of_passages() -> None:
    place = {"a": 0, "b": 1, "c": 2}
    facts = [(("a", "x", "b"), 1.0), (("b", "y", "c"), 0.5)]
    assert phrase_weights(facts, place, [1, 3, 1], 5) == [(0, 1.0), (2, 0.5), (1, 0.25)]
    assert phrase_weights(facts, place, [1, 3, 1], 2) == [(0, 1.0), (2, 0.5)]


def test_a_shared_phrase_leads_to_the_second_passage_that_similarity_ranks_low() -> None:
    _, ranked, answer, *_ = run()
    _, alone, *_ = run(kept="[]")
    assert list(ranked.best_first[:2]) == [1, 2]
    assert 2 not in alone.best_first[:2]
    assert [item.document for item in answer.context] == [1, 2]
    assert answer.trace["kept"] == [["mara feld", "gave the kite to", "otto lund"]]
    assert answer.flags == ()


@pytest.mark.parametrize(("kept", "more"), [("[]", ()), ("None of them.", ("filter_not_parsed",))])
def test_without_a_fact_that_helps_similarity_ranks_and_a_flag_says_so(kept: str, more: Any) -> None:
    _, ranked, answer, *_ = run(kept=kept)
    assert answer.flags == ("no_fact_kept", *more)
    assert ranked.scores.max() == 1 and ranked.scores.min() == 0


def test_what_the_reader_keeps_stands_for_the_closest_fact() -> None:
    *_, answer, _, _, _ = run(kept='[["Otto Lund", "moved", "to Harbury"]]')
    assert answer.trace["kept"] == [["otto lund", "moved to", "harbury"]]


def test_without_the_filter_all_facts_are_kept_and_nothing_is_asked() -> None:
    _, _, answer, writer, *_ = run(filter="off")
    assert answer.trace["kept"] == answer.trace["found"]
    assert not any("leave out every" in prompt for prompt in writer.prompts)


def test_extractions_that_cannot_be_read_are_counted_and_flagged() -> None:
    index, _, answer, *_ = run(of_text={TEXTS[1]: "Mara gave Otto a kite.", TEXTS[2]: [["Otto", "moved"]]})
    assert index.data["events"] == {"no_facts": 1, "not_three_parts": 1, "triples_not_parsed": 2}
    assert answer.flags == (*(f"graph_{event}" for event in index.data["events"]), "no_fact_kept")
    assert answer.trace["graph"] == {"facts": 0, "phrases": 0, **index.data["events"]}


def test_phrases_of_another_script_are_told_apart() -> None:  # all were one empty phrase
    of_text = {TEXTS[1]: [["东京", "在", "日本"]], TEXTS[2]: [["巴黎", "在", "法国"]]}
    assert run(of_text=of_text)[2].trace["graph"] == {"facts": 2, "phrases": 4}


def test_costs_are_the_extractions_of_the_index_and_the_filter_of_the_question() -> None:
    *_, writer, indexing, answering = run()
    for cue in ("List the named entities", "Write the facts of the text"):
        assert sum(cue in prompt for prompt in writer.prompts) == len(TEXTS)
    assert indexing.usage["writer", "prefill"].calls == 2 * len(TEXTS)
    assert answering.usage["writer", "prefill"].calls == 2  # the filter, and the reader


def test_extractions_that_no_context_holds_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="extract_tokens=8192: entities, triples and a chunk exceed"):
        HippoRag(HippoRagConfig(extract_tokens=8192), GEOMETRY)
