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
    """The shipped reader, which answers as vLLM's route for completions does."""

    def __init__(self) -> None:
        self.model: Any = load_language_model(resolve("tiny"))

    async def complete(self, body: Body) -> Body:
        """A completion of token ids; ``logprob_token_ids`` are those of its first token."""
        ids, choices = list(body["prompt"]), tuple(body.get("logprob_token_ids") or ())
        result = await self._run(ids, body, choices)
        answer, stopped = list(result.answer), result.finish == "stop"
        choice: Body = {
            "text": self.model.hf_tokenizer.decode(answer, skip_special_tokens=True),
            "token_ids": answer,
            "logprobs": None,
            "finish_reason": "stop" if stopped else "length",
        }
        if choices:
            listed = {
                f"token_id:{id_}": logit - result.log_mass
                for id_, logit in zip(choices, result.logits, strict=True)
            }
            choice["logprobs"] = {"top_logprobs": [listed]}
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(answer) + stopped,
            "prompt_tokens_details": {"cached_tokens": result.reused},
        }
        return {"model": "tiny", "choices": [choice], "usage": usage}

    async def _run(self, ids: list[int], body: Body, choices: tuple[int, ...]) -> RequestResult:
        """Generate after the ids; the context is kept for requests with the same beginning."""
        lm, most = self.model, body["max_tokens"]
        room, longest = len(ids) + most, min(lm.max_positions, lm.engine.runner.kv_cache.tokens)
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


Post = Callable[[Body], Awaitable[Body]]
Around = Callable[[Body, Post], Awaitable[Any]]
"""Request, and what would answer it -> the answer, or a whole response: for faults."""


async def plainly(body: Body, post: Post) -> Any:
    """No fault."""
    return await post(body)


def vllm_app(around: Around = plainly, **entry: Any) -> Starlette:
    """The shipped reader behind vLLM's routes; entry: fields of its list of models."""
    service = Service()
    listing = {"data": [{"id": "tiny", "object": "model", "owned_by": "vllm", **entry}]}

    async def completions(request: Request) -> Any:
        try:
            reply = await around(await request.json(), service.complete)
        except RequestError as error:
            return JSONResponse({"error": {"message": str(error)}}, 400)
        return JSONResponse(reply) if isinstance(reply, dict) else reply

    return Starlette(
        routes=[
            Route("/v1/models", lambda request: JSONResponse(listing)),
            Route("/version", lambda request: JSONResponse({"version": "0.33.0"})),
            Route("/v1/completions", completions, methods=["POST"]),
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
