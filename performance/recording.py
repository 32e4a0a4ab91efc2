"""What real servers answer to our own requests, kept for the tests to replay.

``python -m performance.recording`` starts each server that ``make test-servers`` has installed, serves the
shipped model, asks it the questions of ``CELLS`` and writes every reply to ``REPLIES/KIND.json``. A prompt is
kept as its hash: a test that asks the same finds the reply, one that asks anything else does not. Left out
are prompts that a server sends back, and of a list of likely tokens all but the first ``LIKELY``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.files.hashing import stable_hash
from bench.models.served.client import ServerClient
from bench.models.spec import resolve
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from performance.measuring import REPOSITORY, wrapped
from performance.serve import SERVERS, serving

REPLIES = REPOSITORY / "tests" / "bench" / "models" / "served" / "replies"
MODEL = "tiny"
LIKELY = 192
CELLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bm25", "qasper", {}),
    ("memwalker", "musique", {}),
    ("pecan", "hotpotqa", {"attention": "off", "t_p": 2}),
)
"""Method, data set and options: a prompt, turns of a walk, and a graph with a search that asks Yes or No."""


def cell_request(method: str, dataset: str, options: dict[str, Any], model: str) -> CellRequest:
    """One question, in the number format in which the servers serve it."""
    return CellRequest(method, dataset, options=options, model=model, limit=1, dtype="float32")


def key(method: str, path: str, body: bytes) -> str:
    """What tells one request from another: route and body, whatever the order of its fields."""
    return f"{method} {path} {stable_hash(json.loads(body) if body else None)}"


@contextmanager
def recording(work: Path) -> Iterator[dict[str, Any]]:
    """Inside the block every reply that a client reads is put down, without the folders of this machine."""
    replies: dict[str, Any] = {}

    def around(read: Any) -> Any:
        def reading(client: ServerClient, response: Any, **default: Any) -> Any:
            request = response.request
            text = str(response.text).replace(str(work), "").replace(str(REPOSITORY), "")
            body = _short(json.loads(text)) if response.status_code == 200 else text
            reply = {"status": response.status_code, "body": body}
            replies.setdefault(key(request.method, request.url.path, request.content), reply)
            return read(client, response, **default)

        return reading

    with wrapped(ServerClient, "_read", around):
        yield replies


def _short(body: Any) -> Any:
    if isinstance(body, list):
        return [_short(one) for one in (body[:LIKELY] if body and "logprob" in str(body[0]) else body)]
    if isinstance(body, dict):
        return {name: _short(one) for name, one in body.items() if name not in ("prompt", "prompt_token_ids")}
    return body


def main() -> None:
    """Record each server that is installed."""
    torch.set_num_threads(1)
    for kind in ("vllm", "llamacpp"):
        if not (SERVERS / kind).is_dir():
            continue
        with tempfile.TemporaryDirectory() as work, recording(Path(work)) as replies:
            with serving(kind, resolve(MODEL).source.locate(MODEL), MODEL, Path(work)) as address:
                session = Session(Path(work, "results"), in_flight=8)
                for cell in CELLS:
                    session.run(plan_cell(cell_request(*cell, address)))
            lines = (f"{json.dumps(asked)}: {json.dumps(reply)}" for asked, reply in sorted(replies.items()))
            (REPLIES / f"{kind}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{kind}: {len(replies)} replies")


if __name__ == "__main__":
    main()
