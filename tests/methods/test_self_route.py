"""Self-Route: where a question ends, and what it costs there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.flops.meter import Meter, metered
from bench.method.contract import Replayed
from bench.models.api import Geometry
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from methods.self_route import PERMISSION, SelfRoute, SelfRouteConfig
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
        text = self.reply if PERMISSION in prompt else "whole"
        return type(generation)(text, (1,), "stop", generation.prompt_tokens)


def replayed(
    models: Any, *configs: SelfRouteConfig, geometry: Geometry = GEOMETRY
) -> tuple[list[Replayed], Meter]:
    """The question asked once for all configs, and what that cost."""
    method = SelfRoute(configs[0], geometry)

    async def ask() -> list[Replayed]:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), meter


def routed(reply: str) -> tuple[Prediction, Reader, Meter]:
    models: Any = WordModels()
    models.reader = Reader(reply)
    (result,), meter = replayed(models, SelfRouteConfig(k=2))
    return result.prediction, models.reader, meter


TINY = resolve("tiny")


def asked_of_tiny(*thresholds: float, **options: Any) -> tuple[list[Replayed], Meter]:
    configs = [SelfRouteConfig(decline="p_yes", k=2, chunk_tokens=16, t=t, **options) for t in thresholds]
    return replayed(LoadedModels({"reader": TINY}), *configs, geometry=TINY.geometry)


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


def test_thresholds_decide_by_the_probability_and_passages_are_forwarded_once() -> None:
    (near, far), total = asked_of_tiny(0, 1)
    assert near.prediction.trace["read"] == "passages" and far.prediction.trace["read"] == "everything"
    assert 0 < near.prediction.trace["p_yes"] == far.prediction.trace["p_yes"] < 1
    assert len(near.prediction.context) == 2 and len(far.prediction.context) == 9
    forwarded = near.prediction.prompt_tokens + near.prediction.completion_tokens
    assert near.meter.new_tokens <= forwarded + 10  # the probe's closing of the turn is rolled back
    assert total.flops < near.meter.flops + far.meter.flops


def test_the_question_is_put_once_more_only_where_that_is_asked_for() -> None:
    ((plain,), _), ((restated,), _) = asked_of_tiny(0), asked_of_tiny(0, second_turn="restated")
    again = LoadedModels({"reader": TINY}).lm().count_tokens(f"\n\nQuestion: {QUESTION.text}\nAnswer:")
    longer = restated.prediction.prompt_tokens - plain.prediction.prompt_tokens
    assert longer == pytest.approx(again, abs=1)
    with pytest.raises(ValueError, match="second_turn=restated, or prompt=pecan"):
        SelfRouteConfig(decline="p_yes", prompt="longbench")
