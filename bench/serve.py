"""``bench serve``: our own engine behind an OpenAI-compatible address, on this machine.

Completions take token ids and return them, with log-probabilities of chosen ids, as vLLM's do; chat
completions have text on both sides; embeddings are those of a text encoder. Requests share forward passes
and prefixes as questions of a run do. It is the counterpart of :mod:`bench.models.served` in tests, and
puts a shipped or local model behind other tools. No streaming, no key: it listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from bench import __version__
from bench.engine.sampling import Sampling
from bench.engine.scheduler import Request as Forward
from bench.engine.scheduler import RequestResult
from bench.errors import BenchError, QuestionError
from bench.models.embedder import SentenceEncoder
from bench.models.language_model import CausalLanguageModel
from bench.schema import JsonValue

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
OWNER = "longdoc-bench"
DEFAULT_MOST = 16
"""Tokens of a completion if a request does not say, as in OpenAI's API."""

Body = dict[str, JsonValue]
T = TypeVar("T")


@dataclass(frozen=True)
class Offered:
    """A model that is served."""

    model: CausalLanguageModel | SentenceEncoder
    revision: str
    """What pins its files."""


class RequestError(Exception):
    """A request that cannot be answered; its text says why."""


def build_app(offered: Mapping[str, Offered]) -> Any:
    """The ASGI application that serves the models under their names."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    service = Service(offered)

    def posted(answer: Callable[[Body], Awaitable[Body]]) -> Callable[[Request], Awaitable[JSONResponse]]:
        async def respond(request: Request) -> JSONResponse:
            try:
                body = await request.json()
            except ValueError as error:
                return _refusal(f"the body is not JSON: {error}")
            if not isinstance(body, dict):
                return _refusal(f"the body is a {type(body).__name__}, expected an object")
            try:
                return JSONResponse(await answer(body))
            except (RequestError, QuestionError, BenchError) as error:
                return _refusal(str(error))

        return respond

    def _refusal(message: str) -> JSONResponse:
        return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, 400)

    async def models(request: Request) -> JSONResponse:
        return JSONResponse(service.models())

    async def version(request: Request) -> JSONResponse:
        return JSONResponse({"version": __version__})

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/version", version),
            Route("/v1/completions", posted(service.complete), methods=["POST"]),
            Route("/v1/chat/completions", posted(service.chat), methods=["POST"]),
            Route("/v1/embeddings", posted(service.embed), methods=["POST"]),
        ]
    )


class Service:
    """The routes' answers, as JSON objects."""

    def __init__(self, offered: Mapping[str, Offered]) -> None:
        """offered: name -> model."""
        self._offered = dict(offered)
        self._started, self._number = int(time.time()), count(1)

    def models(self) -> Body:
        """The models, with the revision and the longest context of each."""
        entries: list[Body] = []
        for name, one in self._offered.items():
            longest = (
                one.model.max_tokens if isinstance(one.model, SentenceEncoder) else one.model.max_positions
            )
            entries.append(
                {
                    "id": name,
                    "object": "model",
                    "created": self._started,
                    "owned_by": OWNER,
                    "root": name,
                    "revision": one.revision,
                    "max_model_len": longest,
                }
            )
        return {"object": "list", "data": entries}

    async def complete(self, body: Body) -> Body:
        """A completion of token ids or of a text; ``logprob_token_ids`` needs ``max_tokens`` 1."""
        lm = self._language_model(body)
        prompt = body.get("prompt")
        ids = list(lm.tokenize(prompt).ids) if isinstance(prompt, str) else _ids(prompt, lm, "prompt")
        choices = _ids(body.get("logprob_token_ids") or [], lm, "logprob_token_ids")
        if body.get("logprobs") and not choices:
            raise RequestError("logprobs: only those of logprob_token_ids are available here.")
        result = await self._run(lm, ids, body, choices)
        choice: Body = {
            "index": 0,
            "text": _text(lm, result),
            "logprobs": None,
            "finish_reason": _end(result),
        }
        if body.get("return_token_ids"):
            choice["token_ids"] = list(result.answer)
        if choices:
            listed = {f"token_id:{id_}": value for id_, value in _log_probabilities(result, choices)}
            choice["logprobs"] = {"top_logprobs": [listed]}
        return self._reply("cmpl", "text_completion", body, choice, len(ids), result)

    async def chat(self, body: Body) -> Body:
        """The answer to a conversation of user and assistant turns in the model's own template.

        A system message is put before the first user's text.
        """
        lm = self._language_model(body)
        ids = _conversation(lm, body.get("messages"))
        most = _integer(body, "top_logprobs", 0, 0)
        vocabulary = range(lm.architecture.vocab) if most and body.get("logprobs") else ()
        result = await self._run(lm, ids, body, vocabulary)
        choice: Body = {
            "index": 0,
            "message": {"role": "assistant", "content": _text(lm, result)},
            "logprobs": None,
            "finish_reason": _end(result),
        }
        if vocabulary:
            best = sorted(_log_probabilities(result, vocabulary), key=lambda pair: -pair[1])[:most]
            likely = [{"token": lm.hf_tokenizer.decode([id_]), "logprob": value} for id_, value in best]
            choice["logprobs"] = {"content": [{**likely[0], "top_logprobs": likely}]}
        return self._reply("chatcmpl", "chat.completion", body, choice, len(ids), result)

    async def embed(self, body: Body) -> Body:
        """The embeddings of one text or several, cut at the encoder's length."""
        encoder = self._named(body, SentenceEncoder, "a text encoder")
        value = body.get("input")
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RequestError("input: expected a text or a list of texts.")
        vectors = await encoder.embed(texts)
        tokens = sum(min(length, encoder.max_tokens) for length in encoder.token_lengths(texts))
        data = [
            {"object": "embedding", "index": at, "embedding": row.tolist()} for at, row in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    async def _run(
        self, lm: CausalLanguageModel, ids: Sequence[int], body: Body, choices: Sequence[int]
    ) -> RequestResult:
        """Generate after the ids; the context is kept for requests with the same beginning."""
        most = _integer(body, "max_tokens", DEFAULT_MOST, 1)
        if body.get("stream") or body.get("n") not in (None, 1):
            raise RequestError("stream and n: one whole answer to a request.")
        if choices and most != 1:
            raise RequestError("log-probabilities are those of the first token: max_tokens must be 1.")
        temperature = body.get("temperature", 0.0)
        if not isinstance(temperature, int | float) or temperature < 0:
            raise RequestError(f"temperature: expected 0 or more, got {temperature!r}.")
        seed = _integer(body, "seed", 0, 0)
        stops = lm.stops | set(_ids(body.get("stop_token_ids") or [], lm, "stop_token_ids"))
        room = len(ids) + most
        longest = min(lm.max_positions, lm.engine.runner.kv_cache.tokens)
        if not ids or room > longest:
            raise RequestError(f"{len(ids)} tokens and {most} to come: expected some, and at most {longest}.")
        engine = lm.engine
        slot = await engine.reserve(room)
        done = False
        try:
            result = await engine.run(
                Forward(
                    slot,
                    ids,
                    choices=tuple(choices),
                    decode=most,
                    stops=stops,
                    limit=room,
                    sampling=Sampling(float(temperature), seed) if temperature else None,
                )
            )
            done = True
        finally:
            engine.release(slot, retain=done)
        return result

    def _reply(
        self, prefix: str, object_: str, body: Body, choice: Body, prompt: int, result: RequestResult
    ) -> Body:
        completion = len(result.answer) + (result.finish == "stop")
        return {
            "id": f"{prefix}-{next(self._number)}",
            "object": object_,
            "created": int(time.time()),
            "model": body["model"],
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
                "prompt_tokens_details": {"cached_tokens": result.reused},
            },
        }

    def _language_model(self, body: Body) -> CausalLanguageModel:
        return self._named(body, CausalLanguageModel, "a causal language model")

    def _named(self, body: Body, kind: type[T], what: str) -> T:
        one = self._offered.get(str(body.get("model")))
        if one is None:
            raise RequestError(f"model {body.get('model')!r}: here are {', '.join(self._offered)}.")
        if not isinstance(one.model, kind):
            raise RequestError(f"model {body['model']!r} is not {what}.")
        return one.model


def _conversation(lm: CausalLanguageModel, messages: JsonValue) -> list[int]:
    """The ids of a conversation that ends with a user turn, up to the header of the answer."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise RequestError("messages: expected a list of objects with role and content.")
    turns = [(str(m.get("role")), m.get("content")) for m in messages]
    if any(not isinstance(text, str) for _, text in turns):
        raise RequestError("messages: every content must be a text.")
    system = "".join(f"{text}\n\n" for role, text in turns if role == "system")
    dialogue = [(role, str(text)) for role, text in turns if role != "system"]
    if [role for role, _ in dialogue] != ["user", "assistant"] * (len(dialogue) // 2) + ["user"]:
        raise RequestError("messages: user and assistant take turns, and the user begins and ends.")
    ids = list(lm.chat.opening)
    for at, (role, text) in enumerate(dialogue):
        if role == "user":
            ids += lm.tokenize(system + text if at == 0 else text).ids
        else:
            reply = lm.tokenize(lm.chat.answer_prefix + text).ids
            ids += [*lm.chat.reply_opening, *reply, *lm.chat.next_turn]
    return [*ids, *lm.chat.closing]


def _log_probabilities(result: RequestResult, ids: Sequence[int]) -> list[tuple[int, float]]:
    return [(id_, logit - result.log_mass) for id_, logit in zip(ids, result.logits, strict=True)]


def _text(lm: CausalLanguageModel, result: RequestResult) -> str:
    return str(lm.hf_tokenizer.decode(list(result.answer), skip_special_tokens=True))


def _end(result: RequestResult) -> str:
    return "stop" if result.finish == "stop" else "length"


def _ids(value: JsonValue, lm: CausalLanguageModel, name: str) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(id_, int) for id_ in value):
        raise RequestError(f"{name}: expected a list of token ids.")
    if any(not 0 <= id_ < lm.architecture.vocab for id_ in value):
        raise RequestError(f"{name}: token ids are 0 to {lm.architecture.vocab - 1}.")
    return value


def _integer(body: Body, name: str, default: int, least: int) -> int:
    value = body.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or value < least:
        raise RequestError(f"{name}: expected a whole number, {least} or more, got {value!r}.")
    return value
