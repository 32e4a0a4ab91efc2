"""Servers on 127.0.0.1 for the tests: a shipped model that speaks as the servers of others do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.engine.sampling import Sampling
from bench.engine.scheduler import Request as Forward, RequestResult
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from performance.recording import key

Body = dict[str, Any]


@contextmanager
def serving(app: Any, port: int = 0) -> Iterator[str]:
    """The application on a free port (or this one) until the end of the block; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RequestError(Exception):
    """A request that cannot be answered; its text says why."""


class Service:
    """A reader of this machine that answers as vLLM's routes do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model: Any = load_language_model(resolve(name))

    async def complete(self, body: Body) -> Body:
        """A completion of token ids; ``logprob_token_ids`` are those of its first token."""
        ids, choices = list(body["prompt"]), tuple(body.get("logprob_token_ids") or ())
        result = await self._run(ids, body, choices)
        choice = self._choice(result) | {"text": self._text(result), "token_ids": list(result.answer)}
        if choices:
            listed = {
                f"token_id:{id_}": logit - result.log_mass
                for id_, logit in zip(choices, result.logits, strict=True)
            }
            choice["logprobs"] = {"top_logprobs": [listed]}
        return self._reply(choice, len(ids), result)

    async def _run(self, ids: list[int], body: Body, choices: tuple[int, ...]) -> RequestResult:
        """Generate after the ids; the context is kept for requests with the same beginning."""
        lm, most = self.model, body["max_tokens"]
        room, longest = (
            len(ids) + most,
            min(self.model.max_positions, self.model.engine.runner.kv_cache.tokens),
        )
        if room > longest:
            raise RequestError(f"{len(ids)} tokens and {most} to come: expected at most {longest}.")
        temperature = body.get("temperature")
        slot, done = await lm.engine.reserve(room), False
        try:
            result: RequestResult = await lm.engine.run(
                Forward(
                    slot,
                    ids,
                    choices=choices,
                    decode=most,
                    stops=lm.stops | set(body.get("stop_token_ids") or ()),
                    limit=room,
                    sampling=Sampling(temperature, body["seed"]) if temperature else None,
                )
            )
            done = True
        finally:
            lm.engine.release(slot, retain=done)
        return result

    def _text(self, result: RequestResult) -> str:
        return str(self.model.hf_tokenizer.decode(list(result.answer), skip_special_tokens=True))

    def _choice(self, result: RequestResult) -> Body:
        return {"logprobs": None, "finish_reason": "stop" if result.finish == "stop" else "length"}

    def _reply(self, choice: Body, prompt: int, result: RequestResult) -> Body:
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": len(result.answer) + (result.finish == "stop"),
            "prompt_tokens_details": {"cached_tokens": result.reused},
        }
        return {"model": self.name, "choices": [choice], "usage": usage}


Post = Callable[[Body], Awaitable[Body]]
Around = Callable[[Body, Post], Awaitable[Any]]
"""Request, and what would answer it -> the answer, or a whole response: for faults."""


async def plainly(body: Body, post: Post) -> Any:
    """No fault."""
    return await post(body)


def dialect_app(kind: str, around: Around = plainly, *, model: str = "tiny", **entry: Any) -> Starlette:
    """A shipped model behind the routes of one kind of server; entry: fields of its list of models."""
    service = Service(model)
    routes = {"vllm": _vllm, "llamacpp": _llamacpp}[kind](service)
    listing = {"data": [{"id": model, "object": "model", "owned_by": kind, **entry}]}

    def handler(answer: Any) -> Callable[[Request], Awaitable[Any]]:
        async def get(request: Request) -> Any:
            return JSONResponse(answer)

        async def post(request: Request) -> Any:
            try:
                reply = await around(await request.json(), answer)
            except RequestError as error:
                return JSONResponse({"error": {"message": str(error)}}, 400)
            return JSONResponse(reply) if isinstance(reply, dict) else reply

        return post if callable(answer) else get

    return Starlette(
        routes=[
            Route(path, handler(answer), methods=["POST" if callable(answer) else "GET"])
            for path, answer in {"/v1/models": listing, **routes}.items()
        ]
    )


def replaying_app(replies: dict[str, Any]) -> Starlette:
    """What a real server has answered, to the very requests that it was asked; anything else is refused."""

    async def answer(request: Request) -> JSONResponse:
        asked = key(request.method, request.url.path, await request.body())
        unknown = {"error": {"message": f"{asked} is not recorded: python -m performance.recording"}}
        reply = replies.get(asked, {"status": 400, "body": unknown})
        return JSONResponse(reply["body"], reply["status"])

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])


def _vllm(service: Service) -> Body:
    return {"/version": {"version": "0.33.0"}, "/v1/completions": service.complete}


def _llamacpp(service: Service) -> Body:
    async def complete(body: Body) -> Body:
        most, n = body["n_predict"], body.get("n_probs", 0)
        asked: Body = {
            "model": "tiny",
            "prompt": body["prompt"],
            "max_tokens": most,
            "return_token_ids": True,
        }
        asked |= {"temperature": body["temperature"], "seed": body.get("seed")}
        if n:
            asked["logprob_token_ids"] = list(range(2048))
        answer = await service.complete(asked)
        (choice,), usage = answer["choices"], answer["usage"]
        stopped = choice["finish_reason"] == "stop"
        completion: Body = {
            "content": choice["text"],
            "tokens": [*choice["token_ids"], *([2] if stopped else [])],
            "stop_type": "eos" if stopped else "limit",
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_predicted": usage["completion_tokens"],
            "truncated": False,
            "timings": {"cache_n": usage["prompt_tokens_details"]["cached_tokens"]},
        }
        if n:
            (listed,) = choice["logprobs"]["top_logprobs"]
            best = sorted(listed.items(), key=lambda pair: -pair[1])[:n]
            completion["completion_probabilities"] = [
                {"top_logprobs": [{"id": int(t.removeprefix("token_id:")), "logprob": v} for t, v in best]}
            ]
        return completion

    return {
        "/props": {
            "build_info": "b9000",
            "model_path": "/models/tiny.gguf",
            "default_generation_settings": {"n_ctx": 8192},
        },
        "/completion": complete,
    }
