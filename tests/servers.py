"""Servers on 127.0.0.1 for the tests: ours, and the same model speaking as the servers of others do."""

from __future__ import annotations

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

from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.serve import Offered, RequestError, Service, build_app

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


def tiny() -> Service:
    """The shipped model as ``bench serve`` has it."""
    spec = resolve("tiny")
    return Service({"tiny": Offered(load_language_model(spec), spec.revision)})


def bench_app(*names: str) -> Any:
    """``bench serve`` with the shipped models of these names."""
    from bench.models.model_set import load_embedder

    offered = {}
    for name in names:
        spec = resolve(name)
        model = load_language_model(spec) if spec.kind == "causal" else load_embedder(spec)
        offered[name] = Offered(model, spec.revision)
    return build_app(offered)


Post = Callable[[Body], Awaitable[Body]]
Around = Callable[[Body, Post], Awaitable[Any]]
"""Request, and what would answer it -> the answer, or a whole response: for faults."""


async def plainly(body: Body, post: Post) -> Any:
    """No fault."""
    return await post(body)


def dialect_app(kind: str, around: Around = plainly, **entry: Any) -> Starlette:
    """``tiny`` behind the routes of one kind of server; entry: fields of its list of models."""
    service = tiny()
    routes = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp, "openai": _openai}[kind](service)
    owner = {"openai": "someone"}.get(kind, kind)
    listing = {"data": [{"id": "tiny", "object": "model", "owned_by": owner, **entry}]}

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


def _vllm(service: Service) -> Body:
    return {"/version": {"version": "0.33.0"}, "/v1/completions": service.complete}


def _sglang(service: Service) -> Body:
    async def generate(body: Body) -> Body:
        parameters = body["sampling_params"]
        asked = {
            "model": "tiny",
            "prompt": body["input_ids"],
            "max_tokens": parameters["max_new_tokens"],
            "temperature": parameters["temperature"],
            "seed": parameters.get("sampling_seed"),
            "return_token_ids": True,
            "logprob_token_ids": body.get("token_ids_logprob"),
        }
        answer = await service.complete(asked)
        (choice,), usage = answer["choices"], answer["usage"]
        meta = {
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "finish_reason": {"type": choice["finish_reason"], "matched": 2},
        }
        if choice["logprobs"]:
            (listed,) = choice["logprobs"]["top_logprobs"]
            meta["output_token_ids_logprobs"] = [
                [[value, int(token.removeprefix("token_id:")), None] for token, value in listed.items()]
            ]
        return {"text": choice["text"], "output_ids": choice["token_ids"], "meta_info": meta}

    return {
        "/server_info": {"version": "0.5.23", "context_length": 8192},
        "/get_model_info": {"model_path": "/models/tiny", "weight_version": "default"},
        "/generate": generate,
    }


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


def _openai(service: Service) -> Body:
    return {"/v1/chat/completions": service.chat}
