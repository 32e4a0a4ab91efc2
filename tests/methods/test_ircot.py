"""IRCoT: a sentence of reasoning finds what the question does not name."""

from __future__ import annotations

from methods.ircot import Ircot, IrcotConfig
from tests.methods.multi_hop import ScriptedReader, replayed

REASONING = "next sentence"


def test_a_sentence_finds_the_second_passage_and_a_conclusion_ends_it() -> None:
    sentences = ["Otto lives somewhere. More.", "So the answer is Harbury.", "never"]
    reader = ScriptedReader(sentences, REASONING)
    (result,), meter = replayed(Ircot, IrcotConfig, reader, rounds=(8,))
    assert [item.document for item in result.prediction.context] == [0, 1] and len(reader.prompts) == 2
    assert result.prediction.trace["thoughts"] == ["Otto lives somewhere.", "So the answer is Harbury."]
    assert result.meter.flops == meter.flops


def test_fewer_rounds_cost_less_and_are_derived_from_one_run() -> None:
    reader = ScriptedReader(["Otto lives somewhere.", "A goat called Pepper.", "Rain fell."], REASONING)
    results, total = replayed(Ircot, IrcotConfig, reader, rounds=(0, 1, 3))
    assert [len(result.prediction.context) for result in results] == [1, 2, 4] and len(reader.prompts) == 3
    costs = [result.meter.flops for result in results]
    assert costs == sorted(set(costs)) and total.flops < sum(costs)
