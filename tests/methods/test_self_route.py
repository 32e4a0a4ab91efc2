"""Self-Route: where a question ends, and what it costs there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from methods.self_route import DECLINED, PERMISSION, SelfRoute, SelfRouteConfig
from tests.stand_ins import GEOMETRY, WordModel, WordModels

PAGES = DocumentSet(
    tuple(Document("", f"page{n} is about the kite of Mara Feld number {n} .") for n in range(9))
)
QUESTION = Question("Where is kite 3 ?", PAGES, 8)


class Reader(WordModel):
    """Answers every prompt that permits to decline with ``reply``, and counts its prompts."""

    def __init__(self, reply: str) -> None:
        self.reply, self.prompts = reply, list[str]()

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Any:
        self.prompts.append(prompt)
        generation = await super().generate(prompt, max_new_tokens, sampling)
        return type(generation)(
            self.reply if PERMISSION in prompt else "whole", (1,), "stop", generation.prompt_tokens
        )


def routed(reply: str) -> tuple[Prediction, Reader, Meter]:
    models: Any = WordModels()
    models.reader = Reader(reply)
    method = SelfRoute(SelfRouteConfig(k=2), GEOMETRY)

    async def ask() -> Prediction:
        return await method.answer(await method.index(PAGES, models), QUESTION, models)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), models.reader, meter


def test_an_answer_from_the_passages_ends_the_question() -> None:
    prediction, reader, _ = routed("in the mill")
    assert prediction.text == "in the mill" and len(reader.prompts) == 1
    assert prediction.trace["read"] == "passages" and "read_everything" not in prediction.flags


@pytest.mark.parametrize("reply", ["unanswerable", "Unanswerable.", "It is unanswerable"])
def test_a_declined_question_is_asked_of_everything_and_pays_for_both(reply: str) -> None:
    prediction, reader, meter = routed(reply)
    assert prediction.text == "whole" and "read_everything" in prediction.flags
    assert len(reader.prompts) == 2 and PERMISSION not in reader.prompts[1]
    alone: Any = WordModels()
    with metered(Meter()) as whole:
        asyncio.run(FullContext(FullContextConfig(), GEOMETRY).answer(None, QUESTION, alone))  # type: ignore[arg-type]
    first = reader.count_tokens(reader.prompts[0]) + reader.chat_overhead
    assert meter.new_tokens == whole.new_tokens + first
    assert DECLINED not in prediction.text


def test_a_ranker_that_is_none_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match="closed_book does not score chunks; expected a ranker"):
        SelfRoute(SelfRouteConfig(ranker="closed_book"), GEOMETRY)


def test_thresholds_decide_by_the_probability_and_passages_are_forwarded_once() -> None:
    geometry = resolve("tiny").geometry
    models = LoadedModels({"reader": resolve("tiny")})
    configs = [SelfRouteConfig(decline="p_yes", k=2, chunk_tokens=16, t=t) for t in (0, 1)]
    method = SelfRoute(configs[0], geometry)

    async def ask() -> Any:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    with metered(Meter()) as total:
        near, far = asyncio.run(ask())
    assert near.prediction.trace["read"] == "passages" and far.prediction.trace["read"] == "everything"
    assert 0 < near.prediction.trace["p_yes"] == far.prediction.trace["p_yes"] < 1
    assert len(near.prediction.context) == 2 and len(far.prediction.context) == 9
    forwarded = near.prediction.prompt_tokens + near.prediction.completion_tokens
    assert near.meter.new_tokens <= forwarded + 10  # the probe's closing of the turn is rolled back
    assert total.flops < near.meter.flops + far.meter.flops


def test_the_question_is_put_once_more_only_where_that_is_asked_for() -> None:
    geometry = resolve("tiny").geometry
    models = LoadedModels({"reader": resolve("tiny")})

    def prompt_tokens(**options: Any) -> int:
        method = SelfRoute(SelfRouteConfig(decline="p_yes", k=2, chunk_tokens=16, t=0, **options), geometry)

        async def ask() -> Prediction:
            return await method.answer(await method.index(PAGES, models), QUESTION, models)

        return asyncio.run(ask()).prompt_tokens

    again = models.lm().count_tokens(f"\n\nQuestion: {QUESTION.text}\nAnswer:")
    assert prompt_tokens(second_turn="restated") - prompt_tokens() == pytest.approx(again, abs=1)
    with pytest.raises(ValueError, match="second_turn=restated, or prompt=pecan"):
        SelfRouteConfig(decline="p_yes", prompt="longbench")
