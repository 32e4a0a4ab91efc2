"""Conversations with a server that answers from a script: what is sent, kept, credited and flagged."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from bench.flops.meter import Meter, metered
from bench.models.loader import load_stop_configs, load_tokenizer
from bench.models.served.address import parse_address
from bench.models.served.client import RefusedRequestError, ServerClient, WrongCountError
from bench.models.served.dialects import DIALECTS, Answer, Question, ServerInfo
from bench.models.served.language_model import ServedLanguageModel
from bench.models.spec import resolve
from tests.bench.models.test_language_model import awaited

ADDRESS = "server:http://127.0.0.1:9/v1#tiny"


class Scripted(ServedLanguageModel):
    """``tiny`` behind a server that is a function."""

    def __init__(self, kind: Any, answer: Callable[[Question], Answer]) -> None:
        spec = resolve("tiny")
        facts = replace(spec.facts, name="server:tiny")
        client, described = ServerClient(parse_address(ADDRESS)), ServerInfo(kind, "1", "", "", None)
        super().__init__(facts, load_tokenizer(spec), load_stop_configs(spec), client, described)
        self._checked = True
        self.script, self.asked = answer, list[Question]()

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.script(question)


@awaited
async def test_a_choice_that_the_list_lacks_is_flagged_and_mass_is_a_lower_bound() -> None:
    lm = Scripted("vllm", lambda q: Answer("Yes", (1,), "length", len(q.ids), log_probabilities=listed))
    listed = {lm.choice_ids(["Yes", "No"])[0]: math.log(0.3)}
    context = await lm.open()
    await context.extend("Is it so?")
    with metered(Meter()) as meter:
        probe = await context.probe(["Yes", "No"])
    assert probe.probabilities["Yes"] == pytest.approx(1)
    assert probe.mass == pytest.approx(0.3)
    assert "probe_from_top_list" in meter.events


def test_llamacpp_is_asked_for_the_whole_vocabulary_where_its_list_lacks_a_choice() -> None:
    dialect = DIALECTS["llamacpp"](parse_address(ADDRESS))
    question = Question([1, 2], 1, choices=[5, 6], vocabulary=2048)
    (_, first), full = dialect.request(question), dialect.full_request(question)
    assert first["n_probs"] < 2048 and full is not None and full[1]["n_probs"] == 2048


@awaited
async def test_an_answer_that_fills_the_context_of_llamacpp_has_not_cut_its_prompt() -> None:
    lm = Scripted("llamacpp", lambda q: Answer("", (7,), "length", len(q.ids)))
    sent = {"tokens": [7], "stop_type": "limit", "tokens_evaluated": 15, "truncated": True}
    lm.client.post = AsyncMock(return_value=sent)  # type: ignore[method-assign]
    for most, cut in ((16, False), (99, True)):
        lm.described = replace(lm.described, max_tokens=most)
        with pytest.raises(WrongCountError, match="has cut it") if cut else nullcontext():
            await ServedLanguageModel.ask(lm, Question([1] * 15, 1))


@awaited
async def test_ids_and_log_probabilities_that_mean_nothing_are_no_answer() -> None:
    for ids in ((-1,), (7, 99_999_999)):
        with pytest.raises(RefusedRequestError, match="missing, or unknown"):
            await Scripted("vllm", lambda q, ids=ids: Answer("", ids, "length", len(q.ids))).generate("Hi", 9)
    lm = Scripted(
        "vllm",
        lambda q: Answer("", (1,), "length", len(q.ids), log_probabilities=dict.fromkeys(choices, math.nan)),
    )
    choices, context = lm.choice_ids(["Yes", "No"]), await lm.open()
    await context.extend("Is it so?")
    with pytest.raises(RefusedRequestError, match="not a number"):
        await context.probe(["Yes", "No"])


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
@awaited
async def test_ids_beyond_the_limit_and_the_end_of_turn_are_no_answer(kind: str) -> None:
    lm = Scripted(kind, lambda q: Answer("", (7, 8, 9, 2), "stop", len(q.ids), cached_tokens=3))
    (stop,) = lm.stops
    assert stop == 2
    for most, ids, finish in ((2, (7, 8), "length"), (3, (7, 8, 9), "length"), (9, (7, 8, 9), "stop")):
        with metered(Meter()) as meter:
            answer = await lm.generate("Hello", most)
        assert (answer.token_ids, answer.finish) == (ids, finish)
        decode = meter.usage["server:tiny", "decode"].new_tokens
        assert decode == len(ids) - (finish == "length")
        assert meter.reused_tokens == 3


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_every_parameter_that_could_sample_is_set(kind: Any) -> None:
    sent = DIALECTS[kind](parse_address(ADDRESS)).request(Question([1], 3, [2]))[1]
    assert sent["temperature"] == 0.0
    assert sent["presence_penalty"] == sent["frequency_penalty"] == 0.0
    if kind == "llamacpp":  # temperature alone, so that top-k, top-p and min-p take no part
        assert sent["samplers"] == ["temperature"] and sent["repeat_penalty"] == 1.0
    else:
        assert sent["top_p"] == sent["repetition_penalty"] == 1.0 and sent["min_p"] == sent["top_k"] == 0
