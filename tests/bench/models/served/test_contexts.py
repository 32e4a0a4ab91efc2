"""Conversations with a server that answers from a script: what is sent, kept, credited and flagged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from bench.flops.meter import Meter, metered
from bench.models.loader import load_stop_configs, load_tokenizer
from bench.models.served.address import parse_address
from bench.models.served.client import ServerClient, WrongCountError
from bench.models.served.dialects import DIALECTS, Answer, Question, ServerInfo
from bench.models.served.embedder import ServedEmbedder
from bench.models.served.language_model import ServedLanguageModel
from bench.models.spec import resolve
from tests.servers import Service

ADDRESS = "server:http://127.0.0.1:9/v1#tiny"


class Scripted(ServedLanguageModel):
    """``tiny`` behind a server that is a function."""

    def __init__(self, kind: Any, answer: Callable[[Question], Answer]) -> None:
        spec = resolve("tiny")
        super().__init__(
            "server:tiny",
            load_tokenizer(spec),
            client=ServerClient(parse_address(ADDRESS)),
            described=ServerInfo(kind, "1", "", "", None),
            geometry=spec.geometry,
            architecture=spec.architecture,
            configs=load_stop_configs(spec),
        )
        self._checked = True
        self.script, self.asked = answer, list[Question]()

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.script(question)


def says(text: str, **more: Any) -> Callable[[Question], Answer]:
    return lambda question: Answer(text, None, "stop", len(question.ids), **more)


def test_an_open_turn_is_tokenised_as_the_server_tokenises_it() -> None:
    """Two pieces whose seam is no seam of the whole text count as the whole text."""

    async def talk() -> None:
        lm = Scripted("openai", says("fine"))
        first, second = "The weather in New Yo", "rk is sunny today."
        whole = lm.count_tokens(first + second)
        assert whole < lm.count_tokens(first) + lm.count_tokens(second), "the seam matters"
        context = await lm.open()
        with metered(Meter()) as meter:
            await context.extend(first)
            await context.settle()
            mark = context.mark()
            await context.extend(second)
            assert context.length == len(lm.chat.opening) + whole
            answer = await context.generate(5)
            assert answer.prompt_tokens == whole + lm.chat_overhead == len(lm.asked[0].ids)
            assert lm.asked[0].messages == [("user", first + second)]
            context.rewind(mark)
            assert context.length == mark
            await context.say("Yes")
            await context.extend("And then?")
            await context.generate(5)
        assert lm.asked[1].messages == [("user", first), ("assistant", "Yes"), ("user", "And then?")]
        ids = [
            *lm.chat.opening, *lm.tokenize(first).ids, *lm.chat.reply_opening, *lm.tokenize("Yes").ids,
            *lm.chat.next_turn, *lm.tokenize("And then?").ids, *lm.chat.closing,
        ]  # fmt: skip
        assert list(lm.asked[1].ids) == ids
        assert meter.events == {"prompt_as_text"} and not meter.reuse_known

    asyncio.run(talk())


def test_a_choice_that_the_list_lacks_is_flagged_and_mass_is_a_lower_bound() -> None:
    async def talk() -> None:
        lm = Scripted(
            "openai", says("Yes", likely={" Yes": math.log(0.3), "Yes": math.log(0.2), "Well": -2.0})
        )
        context = await lm.open()
        await context.extend("Is it so?")
        with metered(Meter()) as meter:
            probe = await context.probe(["Yes", "No"])
        assert probe.probabilities["Yes"] == pytest.approx(1)
        assert probe.mass == pytest.approx(0.3)
        assert "probe_from_top_list" in meter.events

    asyncio.run(talk())


def test_llamacpp_is_asked_for_the_whole_vocabulary_where_its_list_lacks_a_choice() -> None:
    dialect = DIALECTS["llamacpp"](parse_address(ADDRESS))
    question = Question([1, 2], [], 1, choices=[5, 6], vocabulary=2048)
    (_, first), full = dialect.request(question), dialect.full_request(question)
    assert first["n_probs"] < 2048 and full is not None and full[1]["n_probs"] == 2048


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_ids_beyond_the_limit_and_the_end_of_turn_are_no_answer(kind: str) -> None:
    async def talk() -> None:
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

    asyncio.run(talk())


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp", "openai"])
def test_every_parameter_that_could_sample_is_set(kind: Any) -> None:
    body = DIALECTS[kind](parse_address(ADDRESS)).request(Question([1], [("user", "x")], 3, [2]))[1]
    sent = {**body, **body.get("sampling_params", {})}
    assert sent["temperature"] == 0.0
    assert sent["presence_penalty"] == sent["frequency_penalty"] == 0.0
    if kind == "llamacpp":  # temperature alone, so that top-k, top-p and min-p take no part
        assert sent["samplers"] == ["temperature"] and sent["repeat_penalty"] == 1.0
    else:
        assert sent["top_p"] == 1.0
    if kind in ("vllm", "sglang"):
        assert sent["repetition_penalty"] == 1.0 and sent["min_p"] == 0.0 and sent["top_k"] in (0, -1)


def test_a_served_encoder_cuts_counts_and_credits_as_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service("minilm")
    local = service.model
    client = ServerClient(parse_address("server:http://127.0.0.1:9/v1#minilm"))
    wrong = 0

    async def post(self: ServerClient, url: str, body: Any) -> Any:
        with metered(Meter()):
            answer = await service.embed(body)
        answer["usage"]["prompt_tokens"] += wrong
        return answer

    monkeypatch.setattr(ServerClient, "post", post)
    served = ServedEmbedder(
        "server:minilm",
        load_tokenizer(resolve("minilm")).hf,
        client=client,
        architecture=local.architecture,
        max_tokens=local.max_tokens,
        dim=local.dim,
    )
    texts = ["short", "", "[SEP] is text", "supercalifragilistic " * 200]
    with metered(Meter()) as here:
        one = asyncio.run(local.embed(texts))
    with metered(Meter()) as there:
        other = asyncio.run(served.embed(texts))
    assert other == pytest.approx(one, abs=1e-5)
    assert there.flops == here.flops and there.new_tokens == here.new_tokens
    assert served.truncated(texts) == local.truncated(texts) == 1
    wrong = 1
    with pytest.raises(WrongCountError, match="by our count"):
        asyncio.run(served.embed(texts))
