"""Self-Route: where a question ends, and what it costs there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bench.flops.meter import Meter, metered
from bench.method.contract import Replayed
from bench.schema import Document, DocumentSet, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from methods.self_route import PERMISSION, SelfRoute, SelfRouteConfig
from tests.methods.multi_hop import flag_rankings
from tests.stand_ins import GEOMETRY, Replying, WordModels

PAGES = DocumentSet(tuple(Document("", f"page{n} is about kite of Mara Feld number {n} .") for n in range(9)))
QUESTION = Question("Where is kite 3 ?", PAGES, 8)


def reader(reply: str) -> Replying:
    """Says ``reply`` to every prompt that permits to decline."""
    return Replying(lambda prompt: reply if PERMISSION in prompt else "whole")


def routed(
    reply: str, k: int = 2, of: Question = QUESTION, **more: Any
) -> tuple[Prediction, Replying, Meter]:
    """The answer where the reader says ``reply`` to the passages, and what it cost."""
    models: Any = WordModels(reader(reply))
    method = SelfRoute(SelfRouteConfig(k=k, **more), GEOMETRY)

    async def ask() -> Prediction:
        return await method.answer(await method.index(PAGES, models), of, models)

    with metered(Meter()) as meter:
        return asyncio.run(ask()), models.reader, meter


def test_an_answer_from_the_passages_ends_the_question() -> None:
    prediction, reader, _ = routed("in the mill")
    assert prediction.text == "in the mill" and len(reader.prompts) == 1
    assert len({part.chunk for part in prediction.context}) == 2
    assert "read_everything" not in prediction.flags


def test_a_template_without_a_question_permits_to_decline_too() -> None:
    report = replace(QUESTION, longbench_prompt="Report: {context} Summary:")
    prediction, _, _ = routed("unanswerable", of=report, prompt="longbench")
    assert "read_everything" in prediction.flags


@pytest.mark.parametrize("reply", ["unanswerable", "Unanswerable.", "It is unanswerable"])
def test_what_is_declined_is_asked_of_all_and_pays_twice(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flag_rankings(monkeypatch)
    prediction, reader, meter = routed(reply)
    assert prediction.text == "whole" and {*prediction.flags} >= {QUESTION.text, "read_everything"}
    assert len(prediction.context) == 9
    assert len(reader.prompts) == 2 and PERMISSION not in reader.prompts[1]
    alone: Any = WordModels()
    with metered(Meter()) as whole:
        asyncio.run(FullContext(FullContextConfig(), GEOMETRY).answer(None, QUESTION, alone))  # type: ignore[arg-type]
    first = reader.count_tokens(reader.prompts[0]) + reader.chat_overhead
    assert meter.new_tokens == whole.new_tokens + first


def test_everything_is_read_once_for_all_choices_of_passages_and_each_pays_for_it() -> None:
    models: Any = WordModels(reader("unanswerable"))
    configs = [SelfRouteConfig(k=k) for k in (1, 2)]
    method = SelfRoute(configs[0], GEOMETRY)

    async def ask() -> list[Replayed]:
        return await method.replay(await method.index(PAGES, models), QUESTION, models, configs)

    one, two = asyncio.run(ask())
    assert [PERMISSION in prompt for prompt in models.reader.prompts].count(False) == 1
    assert one.prediction.text == two.prediction.text == "whole"
    assert one.meter.new_tokens == routed("unanswerable", k=1)[2].new_tokens
    assert two.meter.new_tokens == routed("unanswerable", k=2)[2].new_tokens
