"""Faults of a server and of its address: what each does to the question, the run and the next one."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from bench.errors import BenchError, ConfigError
from bench.models.served.address import parse_address
from bench.models.served.client import ServerClient, ServerError, ServerGoneError
from bench.results.records import Record, read_records
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from tests.servers import Body, Post, free_port, serving, vllm_app

pytestmark = pytest.mark.usefixtures("cache")
CHECKS = 6  # requests at the start of a run
PATIENCE = "#patience=2"
KEY = "open-sesame-4711"


def request(url: str, *, method: str = "closed_book", limit: int = 4, **options: Any) -> CellRequest:
    model = f"server:{url}#tiny{PATIENCE}"
    return CellRequest(method, "musique", model=model, options=options, limit=limit)


def answered(results: Path, request: CellRequest, in_flight: int = 2) -> list[Record]:
    result = Session(results, in_flight=in_flight).run(plan_cell(request))
    return list(read_records(result.folder / "records.jsonl"))


def kept(results: Path) -> list[dict[str, Any]]:
    """The records of the only cell, whether it is finished or not."""
    (file,) = results.glob("cells/*/records.jsonl")
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


class Counted:
    """Notes every request, and lets ``fault`` answer the one it is meant for."""

    def __init__(self, fault: Any = None) -> None:
        self.fault = fault
        self.bodies: list[Body] = []

    async def __call__(self, body: Body, post: Post) -> Any:
        self.bodies.append(body)
        effect = self.fault(len(self.bodies) - CHECKS, body) if self.fault else None
        if isinstance(effect, Response):
            return effect
        answer = await post(body)
        return answer if effect is None else effect(answer)


@contextmanager
def raw(reply: bytes) -> Iterator[str]:
    """A server that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


# What is noticed before anything runs.


def test_a_wrong_url_is_one_message() -> None:
    with pytest.raises(ServerGoneError, match=r"127\.0\.0\.1:\d+/v1 does not answer: ConnectError.*patience"):
        plan_cell(request(f"http://127.0.0.1:{free_port()}/v1"))


def test_a_model_that_the_server_does_not_have_is_named_with_those_it_has() -> None:
    with serving(vllm_app()) as url, pytest.raises(ServerError, match="no model 'giant'. It has: tiny"):
        plan_cell(CellRequest("closed_book", "musique", model=f"server:{url}#giant"))


def test_https_to_a_server_without_tls_says_so() -> None:
    with serving(vllm_app()) as url, pytest.raises(ServerError, match="TLS: .*http or https"):
        plan_cell(request(url.replace("http:", "https:")))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("server:127.0.0.1:8000#tiny", "expected an address such as"),
        ("server:http://127.0.0.1:8000/v1", "which model"),
        ("server:http://me:secret-word@127.0.0.1/v1#tiny", "BENCH_API_KEY"),
        ("server:http://127.0.0.1/v1#tiny#key=sk-secret-word", "name of an environment variable"),
        ("server:localhost:8000/v1#tiny#key=sk-secret-word", "name of an environment variable"),
        ("server:http://127.0.0.1/v1#tiny#speed=9", "none of kind="),
        ("server:http://[bad/v1#tiny", "Invalid IPv6 URL"),
        ("server:http://127.0.0.1:99999/v1#tiny", "Port out of range"),
    ],
)
def test_a_malformed_address_says_what_is_wrong_and_repeats_no_secret(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        plan_cell(CellRequest("closed_book", "musique", model=address))
    assert "secret-word" not in str(error.value)


def test_a_model_without_a_known_tokenizer_asks_for_one() -> None:
    with serving(vllm_app(id="mystery")) as url:
        with pytest.raises(ConfigError, match="tokenizer=NAME"):
            plan_cell(CellRequest("closed_book", "musique", model=f"server:{url}#mystery"))
        cell = plan_cell(CellRequest("closed_book", "musique", model=f"server:{url}#mystery#tokenizer=tiny"))
    assert cell.reader.architecture.layers == 5


def test_a_server_of_text_and_a_served_encoder_are_refused_with_the_way_out() -> None:
    with serving(vllm_app(owned_by="library")) as url:
        with pytest.raises(ServerError, match="library.* neither vLLM nor llama.cpp.*#kind=vllm"):
            plan_cell(request(url))
        plan_cell(CellRequest("closed_book", "musique", model=f"server:{url}#tiny#kind=vllm"))
        encoder = f"server:{url}#tiny#kind=vllm#tokenizer=minilm"
        with pytest.raises(ConfigError, match="minilm is a text encoder.*name minilm itself"):
            plan_cell(CellRequest("sbert", "musique", options={"encoder": encoder}))


def test_a_server_with_less_room_than_the_window_is_refused() -> None:
    with serving(vllm_app(max_model_len=1024)) as url:
        with pytest.raises(ConfigError, match="takes 1024 tokens.*window of 2048"):
            plan_cell(request(url))


def test_attention_refuses_a_served_searcher_and_names_both_ways_out() -> None:
    with serving(vllm_app()) as url:
        with pytest.raises(ConfigError, match="searcher server:tiny.*attention=off.*search_model=NAME"):
            plan_cell(request(url, method="pecan"))
        plan_cell(request(url, method="pecan", search_model="tiny", graph_model="tiny"))
        with pytest.raises(ConfigError, match="compressor server:tiny.*--set compressor=NAME"):
            plan_cell(request(url, method="longllmlingua", compressor="reader"))


# What the check at the start notices.


def choosing(**choice: Any) -> Any:
    return lambda at, body: lambda answer: {**answer, "choices": [{**answer["choices"][0], **choice}]}


def ignoring_greedy(at: int, body: Body) -> Any:
    return choosing(token_ids=[7, 8, at + CHECKS])(at, body)


def cutting_prompts(at: int, body: Body) -> Any:
    return lambda answer: {**answer, "usage": {**answer["usage"], "prompt_tokens": 16}}


def replying(*response: Any) -> Any:
    return lambda at, body: Response(*response)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ignoring_greedy, "two texts for one prompt at temperature 0"),
        (cutting_prompts, "tokens by our count and 16 by the server's"),
        (choosing(token_ids=[7, 2, 9, 9]), "goes on after the end of turn"),
        (choosing(token_ids=[7], finish_reason="length"), "broke off after 1 of 12"),
        (lambda at, body: lambda answer: {**answer, "usage": None}, "does not say how many tokens"),
        (lambda at, body: lambda answer: {**answer, "model": "other"}, "asked and 'other' has answered"),
        (lambda at, body: lambda answer: {"error": "?"}, "not of the form that vllm gives"),
        (replying('{"error": {"message": "no such parameter"}}', 400), "no such parameter"),
        (replying("<p>sign in</p>", 200, {"content-type": "text/html"}), "text/html instead of JSON"),
        (replying("", 302, {"location": "https://elsewhere"}), "redirects to https://elsewhere"),
    ],
)
def test_a_server_that_answers_wrongly_is_noticed_first(fault: Any, message: str, tmp_path: Path) -> None:
    with serving(vllm_app(Counted(fault))) as url, pytest.raises(ServerError) as error:
        answered(tmp_path, request(url))
    assert message in str(error.value)
    assert kept(tmp_path) == []


def test_log_probabilities_refused_end_the_run_with_the_reason(tmp_path: Path) -> None:
    def refusing(at: int, body: Body) -> Any:
        return JSONResponse({"message": "logprobs are off"}, 400) if "logprobs" in body else None

    def ignoring(at: int, body: Body) -> Any:
        return lambda answer: {**answer, "choices": [{**answer["choices"][0], "logprobs": None}]}

    for fault, message in ((refusing, "logprobs are off"), (ignoring, "gives no log-probabilities")):
        counted, results = Counted(fault), tmp_path / message
        with serving(vllm_app(counted)) as url, pytest.raises(BenchError) as error:
            answered(results, request(url, method="pecan", limit=1, attention="off"))
        assert message in str(error.value) and "search_model=NAME" in str(error.value)
        assert len(counted.bodies) == CHECKS + 1, "refused before a graph is built"
        assert not list(results.glob("indexes/**/*.*"))


def test_only_methods_that_probe_ask_for_log_probabilities(tmp_path: Path) -> None:
    for method, probes in (("closed_book", False), ("self_route", False), ("rerank", True)):
        counted = Counted()
        with serving(vllm_app(counted)) as url:
            answered(tmp_path / method, request(url, method=method, limit=1))
        asked = ["logprobs" in body for body in counted.bodies]
        assert asked[:CHECKS] == [False] * CHECKS and asked[CHECKS] == probes, method


# What happens to a question, or to the run, in the middle of it.


def test_a_question_of_which_the_server_counts_other_tokens_fails_with_both_numbers(tmp_path: Path) -> None:
    def one_more(at: int, body: Body) -> Any:
        more = {"prompt_tokens": len(body["prompt"]) + 1}
        return (lambda answer: {**answer, "usage": {**answer["usage"], **more}}) if at == 2 else None

    counted = Counted(one_more)
    with serving(vllm_app(counted)) as url:
        records = answered(tmp_path, request(url), in_flight=1)
    ours = len(counted.bodies[CHECKS + 1]["prompt"])
    assert [record.error is None for record in records] == [True, False, True, True]
    assert f"{ours} tokens by our count and {ours + 1} by the server's" in (records[1].error or "")
    assert (records[1].error or "").startswith("WrongCountError")


def test_an_answer_of_another_model_ends_the_run_and_keeps_what_was_answered(tmp_path: Path) -> None:
    def other(at: int, body: Body) -> Any:
        return (lambda answer: {**answer, "model": "tiny-s"}) if at == 3 else None

    with serving(vllm_app(Counted(other))) as url:
        with pytest.raises(ServerError, match="'tiny-s' has answered, and 'tiny' before"):
            answered(tmp_path, request(url), in_flight=1)
        assert len(kept(tmp_path)) == 2
        assert all(record.error is None for record in answered(tmp_path, request(url)))


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    def busy(at: int, body: Body) -> Any:
        return Response("busy", {1: 429, 2: 503}[at], {"retry-after": "0.1"}) if at in (1, 2) else None

    counted = Counted(busy)
    with serving(vllm_app(counted)) as url:
        records = answered(tmp_path, request(url), in_flight=1)
    assert [record.error for record in records] == [None] * 4
    assert len(counted.bodies) == CHECKS + 4 + 2


def test_a_request_that_hangs_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(Counted):
        async def __call__(self, body: Body, post: Post) -> Any:
            answer = await super().__call__(body, post)
            if len(self.bodies) == CHECKS + 2:
                await asyncio.sleep(4)
            return answer

    counted = Hanging()
    with serving(vllm_app(counted)) as url, caplog.at_level(logging.WARNING):
        model = f"server:{url}#tiny{PATIENCE}#timeout=2"
        records = answered(tmp_path, CellRequest("closed_book", "musique", model=model, limit=4), in_flight=1)
    assert [record.error for record in records] == [None] * 4
    assert counted.bodies[CHECKS + 1] == counted.bodies[CHECKS + 2], "the same request once more"
    assert "ReadTimeout" in caplog.text and "trying again" in caplog.text


def test_a_request_breaking_the_server_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.models.served.client.FIRST_PAUSE_S", 0.01)
    poisoned: list[list[int]] = []

    def broken(at: int, body: Body) -> Any:
        if at == 2:
            poisoned.append(body["prompt"])
        return Response("oops", 500) if body["prompt"] in poisoned else None

    with serving(vllm_app(Counted(broken))) as url:
        records = answered(tmp_path, request(url), in_flight=1)
    assert [record.error is None for record in records] == [True, False, True, True]
    assert "gave 500 'oops'; given up after 5 tries" in (records[1].error or "")


def test_half_a_body_is_asked_for_again(tmp_path: Path) -> None:
    def half(at: int, body: Body) -> Any:
        return Response('{"choices": [{"te', media_type="application/json") if at == 1 else None

    with serving(vllm_app(Counted(half))) as url:
        assert [record.error for record in answered(tmp_path, request(url))] == [None] * 4
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
    with raw(cut) as url, pytest.raises(ServerGoneError, match="RemoteProtocolError"):
        plan_cell(request(url))


def test_a_server_started_again_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(vllm_app()) as url:
        undisturbed = answered(tmp_path / "undisturbed", request(url))
    port, up, first, over = free_port(), *(threading.Event() for _ in range(3))

    def fall(at: int, body: Body) -> Any:
        first.set()

    def servers() -> None:
        with serving(vllm_app(Counted(fall)), port):
            up.set()
            first.wait()
        time.sleep(0.7)
        with serving(vllm_app(), port):
            over.wait()

    thread = threading.Thread(target=servers)
    thread.start()
    up.wait()
    try:
        with caplog.at_level(logging.WARNING):
            disturbed = answered(tmp_path / "disturbed", request(f"http://127.0.0.1:{port}/v1"))
    finally:
        first.set()
        over.set()
        thread.join()
    assert [r.prediction for r in disturbed] == [r.prediction for r in undisturbed]
    assert [r.flops.query for r in disturbed] == [r.flops.query for r in undisturbed]
    assert "answers again" in caplog.text


def test_a_server_that_comes_back_as_another_ends_the_run(tmp_path: Path) -> None:
    with serving(vllm_app(max_model_len=8192)) as url:
        cell = plan_cell(request(url))
        assert cell.identity.models["reader"]["max_tokens"] == 8192
    port = int(url.rpartition(":")[2].split("/")[0])

    def away(at: int, body: Body) -> Any:
        return Response("starting", 503) if at + CHECKS == 1 else None

    with serving(vllm_app(Counted(away), max_model_len=4096), port):
        with pytest.raises(ServerError, match="planned with: max_tokens 4096 instead of 8192"):
            Session(tmp_path).run(cell)


def test_a_server_that_is_gone_ends_the_run_once_and_the_same_command_continues(tmp_path: Path) -> None:
    third = threading.Event()

    def fall(at: int, body: Body) -> Any:
        if at == 3:
            third.set()
        return Response("gone", 503) if at >= 3 else None

    first, second = Counted(fall), Counted()
    with serving(vllm_app(first)) as url:
        with pytest.raises(ServerGoneError, match="gave 503 'gone'.*give the same command"):
            answered(tmp_path, request(url), in_flight=1)
    before = kept(tmp_path)
    assert len(before) == 2 and all(record["error"] is None for record in before)
    with serving(vllm_app(second)) as url:
        records = answered(tmp_path, request(url))
    assert [record.error for record in records] == [None] * 4
    assert len(second.bodies) == CHECKS + 2, "the two that had an answer are not asked again"


def test_a_finished_cell_needs_no_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(vllm_app()) as url:
        first = answered(tmp_path / "results", request(url))
    assert answered(tmp_path / "results", request(url)) == first
    assert "planned with what it said last" in caplog.text
    with pytest.raises(ServerGoneError):
        answered(tmp_path / "results", request(url, limit=3))


def test_a_server_that_came_back_is_asked_by_the_next_run() -> None:
    port, body = free_port(), {"model": "tiny", "prompt": [1], "max_tokens": 1}
    client = ServerClient(parse_address(f"server:http://127.0.0.1:{port}/v1#tiny#patience=0.1"))
    with pytest.raises(ServerGoneError):
        asyncio.run(client.post(f"{client.address.api}/completions", body))
    with serving(vllm_app(), port):
        assert asyncio.run(client.post(f"{client.address.api}/completions", body))


# Secrets.


def test_the_key_goes_into_the_header_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leaking(at: int, body: Body) -> Any:
        message = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
        return JSONResponse(message, 400) if at == 1 else None

    app, seen = vllm_app(Counted(leaking)), list[str]()

    async def locked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            authorization = dict(scope["headers"]).get(b"authorization", b"").decode()
            seen.append(authorization)
            if authorization != f"Bearer {KEY}":
                await JSONResponse({"error": f"who are you? {authorization}"}, 401)(scope, receive, send)
                return
        await app(scope, receive, send)

    with serving(locked) as url, caplog.at_level(logging.DEBUG):
        with pytest.raises(ServerError, match="MY_SERVER is not set") as error:
            plan_cell(CellRequest("closed_book", "musique", model=f"server:{url}#tiny#key=MY_SERVER"))
        monkeypatch.setenv("BENCH_API_KEY", KEY[::-1])
        with pytest.raises(ServerError, match="BENCH_API_KEY is set, and was refused") as refused:
            plan_cell(request(url))
        monkeypatch.setenv("MY_SERVER", f"{KEY}\n")
        named = CellRequest("closed_book", "musique", model=f"server:{url}#tiny#key=MY_SERVER", limit=3)
        records = answered(tmp_path / "results", named, in_flight=1)
    assert [record.error is None for record in records] == [False, True, True]
    assert "Incorrect API key provided: ***" in (records[0].error or "")
    written, cached = (
        b"".join(file.read_bytes() for file in (tmp_path / place).rglob("*") if file.is_file()).decode()
        for place in ("results", "cache")
    )
    everything = written + cached + caplog.text + str(error.value) + str(refused.value)
    assert KEY not in everything and KEY[::-1] not in everything
    assert url not in written, "a record names the model, not the place"
    assert f"Bearer {KEY}" in seen


def test_a_key_that_no_header_takes_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_API_KEY", "two words")
    with pytest.raises(ConfigError, match="BENCH_API_KEY: the key holds white space") as error:
        plan_cell(request("http://127.0.0.1:9/v1"))
    assert "two words" not in str(error.value)


def test_the_url_is_no_part_of_a_cell(tmp_path: Path) -> None:
    """Two addresses of one model, also as an option of a method, are one cell and one index."""
    cells = []
    for _ in range(2):
        with serving(vllm_app()) as url:
            served = f"server:{url}#tiny"
            options = {"attention": "off", "search_model": served}
            cells.append(plan_cell(CellRequest("pecan", "musique", model=served, options=options)))
    assert cells[0].identity == cells[1].identity
    assert cells[0].index_key_parts() == cells[1].index_key_parts()
