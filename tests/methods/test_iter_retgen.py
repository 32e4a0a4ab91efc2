"""Iter-RetGen: the answer finds what the question does not name."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet, Question
from methods.iter_retgen import IterRetGen, IterRetGenConfig
from tests.stand_ins import GEOMETRY, WordModel, WordModels

TEXTS = ("Mara gave the kite to Otto", "Otto lives in Harbury", "a goat called Pepper", "rain fell all day")
PAGES = DocumentSet(tuple(Document("", text) for text in TEXTS))
QUESTION = Question("Where does whom Mara gave something live", PAGES, 8)


class Reader(WordModel):
    """Gives the answers one after the other, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.prompts = answers, list[str]()

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Any:
        generation = await super().generate(prompt, max_new_tokens, sampling)
        self.prompts.append(prompt)
        return type(generation)(self.answers[len(self.prompts) - 1], (1,), "stop", generation.prompt_tokens)


def asked(*answers: str, rounds: tuple[int, ...]) -> tuple[list[Any], Reader, Meter]:
    models: Any = WordModels()
    models.reader = Reader(*answers)
    configs = [IterRetGenConfig(k=1, chunk_tokens=8, join_documents="off", rounds=n) for n in rounds]
    method = IterRetGen(configs[0], GEOMETRY)

    async def ask() -> Any:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), models.reader, meter


def test_a_round_reads_only_what_question_and_last_answer_find() -> None:
    (one, two), reader, meter = asked("Otto lives lives", "Harbury", rounds=(1, 2))
    assert [item.document for item in one.prediction.context] == [0]
    assert [item.document for item in two.prediction.context] == [1]
    assert (one.prediction.text, two.prediction.text) == ("Otto lives lives", "Harbury")
    assert "Mara gave the kite" not in reader.prompts[1]
    assert one.meter.flops < two.meter.flops == meter.flops


def test_a_round_that_finds_the_same_ends_it_without_another_generation() -> None:
    results, reader, _ = asked("Mara kite", rounds=(5, 1))
    assert [result.prediction.text for result in results] == ["Mara kite", "Mara kite"]
    assert len(reader.prompts) == 1 and results[0].prediction.trace["answers"] == ["Mara kite", "Mara kite"]
