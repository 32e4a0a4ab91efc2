"""IRCoT: a sentence of reasoning finds what the question does not name."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet, Question
from methods.ircot import Ircot, IrcotConfig
from tests.stand_ins import GEOMETRY, WordModel, WordModels

TEXTS = ("Mara gave the kite to Otto", "Otto lives in Harbury", "a goat called Pepper", "rain fell all day")
PAGES = DocumentSet(tuple(Document("", text) for text in TEXTS))
QUESTION = Question("Where does whom Mara gave something live", PAGES, 8)


class Reader(WordModel):
    """Reasons the given sentences one after the other, and answers everything else alike."""

    def __init__(self, *sentences: str) -> None:
        self.sentences, self.reasoned = sentences, 0

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Any:
        generation = await super().generate(prompt, max_new_tokens, sampling)
        text = "Harbury"
        if "next sentence" in prompt:
            text, self.reasoned = self.sentences[self.reasoned], self.reasoned + 1
        return type(generation)(text, (1,), "stop", generation.prompt_tokens)


def asked(*sentences: str, rounds: tuple[int, ...] = (8,)) -> tuple[list[Any], Reader, Meter]:
    models: Any = WordModels()
    models.reader = Reader(*sentences)
    configs = [IrcotConfig(k=1, chunk_tokens=8, join_documents="off", rounds=n) for n in rounds]
    method = Ircot(configs[0], GEOMETRY)

    async def ask() -> Any:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), models.reader, meter


def test_a_sentence_finds_the_second_passage_and_a_conclusion_ends_it() -> None:
    (result,), reader, meter = asked("Otto lives somewhere. More.", "So the answer is Harbury.", "never")
    assert [item.document for item in result.prediction.context] == [0, 1] and reader.reasoned == 2
    assert result.prediction.trace["thoughts"] == ["Otto lives somewhere.", "So the answer is Harbury."]
    assert result.meter.flops == meter.flops


def test_fewer_rounds_cost_less_and_are_derived_from_one_run() -> None:
    sentences = ("Otto lives somewhere.", "A goat called Pepper.", "Rain fell.")
    results, reader, total = asked(*sentences, rounds=(0, 1, 3))
    assert [len(result.prediction.context) for result in results] == [1, 2, 4] and reader.reasoned == 3
    costs = [result.meter.flops for result in results]
    assert costs == sorted(set(costs)) and total.flops < sum(costs)
