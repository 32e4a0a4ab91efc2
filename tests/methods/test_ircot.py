"""IRCoT: a sentence of reasoning finds what the question does not name."""

from __future__ import annotations

import pytest

from methods.ircot import Ircot, IrcotConfig, first_sentence
from tests.methods.multi_hop import QUESTION, ScriptedReader, asked_by_the_reranker, flag_rankings, replayed

REASONING = "next sentence"


@pytest.mark.parametrize("last", ["So the answer is Harbury.", " "])
def test_a_sentence_finds_more_and_a_conclusion_ends_it(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flag_rankings(monkeypatch)
    reader = ScriptedReader(["Otto lives somewhere. More.", last, "never"], REASONING)
    (result,), meter = replayed(Ircot, IrcotConfig, reader, rounds=(8,))
    assert [item.document for item in result.prediction.context] == [0, 1] and len(reader.prompts) == 2
    assert result.prediction.trace["thoughts"] == ["Otto lives somewhere.", last.strip()]
    assert result.meter.flops == meter.flops
    assert {QUESTION.text, "Otto lives somewhere."} <= {*result.prediction.flags}, "of every ranking"


def test_fewer_rounds_cost_less_and_are_derived_from_one_run() -> None:
    reader = ScriptedReader(["Otto lives somewhere.", "A goat called Pepper.", "Rain fell."], REASONING)
    results, total = replayed(Ircot, IrcotConfig, reader, rounds=(0, 1, 3))
    assert [len(result.prediction.context) for result in results] == [1, 2, 4] and len(reader.prompts) == 3
    costs = [result.meter.flops for result in results]
    assert costs == sorted(set(costs)) and total.flops < sum(costs)


@pytest.mark.parametrize(("far", "sentences"), [(200, 1), (165, 2)])
def test_reasoning_without_room_for_all_its_passages_is_flagged(far: int, sentences: int) -> None:
    reader = ScriptedReader(["Otto lives " + "far " * far + "away.", "So the answer is here."], REASONING)
    results, _ = replayed(Ircot, IrcotConfig, reader, rounds=(1, 8))
    assert [result.prediction.flags for result in results] == [(), ("cut_reasoning",)]
    assert len(reader.prompts) == sentences and {result.prediction.text for result in results} == {"Harbury"}


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ("Otto left. He ran.", "Otto left."),
        ("J. R. R. Tolkien wrote it! Dr. St. John agreed.", "J. R. R. Tolkien wrote it!"),
        ("É. Zola wrote it. Yes.", "É. Zola wrote it."),
        ("1. Otto left the U.S. army.\n2. He ran.", "1. Otto left the U.S. army."),
        ("It was in 1990. Otto was 3.5 feet tall.", "It was in 1990."),
        ("东京在河边。答案是东京。", "东京在河边。"),
        ("no end", "no end"),
        ("", ""),
    ],
)
def test_the_dot_of_an_initial_a_title_or_a_number_ends_no_sentence(written: str, first: str) -> None:
    assert first_sentence(written) == first


def test_a_ranker_that_asks_the_reader_asks_it_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_by_the_reranker(monkeypatch)
    reader = ScriptedReader(["Otto lives somewhere.", "So the answer is Harbury."], REASONING)
    replayed(Ircot, IrcotConfig, reader, rounds=(8,), ranker="rerank")
    assert asked == [QUESTION.text] * 4 + ["Otto lives somewhere."] * 4
