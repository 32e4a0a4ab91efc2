"""How each kind of server is asked and read; pure functions of requests and responses.

A server takes a prompt as token ids and gives ids and their log-probabilities; none that takes text alone is
spoken to. Every sampling parameter that a server could set otherwise by default is set. Field names: vLLM's
``CompletionRequest``, llama.cpp's ``/completion`` (each project's own documentation, autumn 2026).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.engine.sampling import Sampling
from bench.models.served.address import ServerAddress, ServerKind, public_name
from bench.models.served.client import ServerError
from bench.schema import JsonValue

Body = dict[str, JsonValue]
Get = Callable[[str], JsonValue]
"""URL -> its JSON, or None where the server has no such route."""

TOP = 20
"""The longest list of likely tokens that vLLM gives unless it is started otherwise."""
_NO_PENALTIES: Body = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
_PLAIN: Body = {
    "n": 1,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    **_NO_PENALTIES,
    "skip_special_tokens": False,
}
"""One answer, from the model's own distribution, with its control tokens."""
MOST_PROBABILITIES = 512
"""llama.cpp's list in a first request; one that lacks a choice is asked for in full."""


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself and of a model."""

    kind: ServerKind
    version: str
    revision: str
    """What it says that pins the weights: a path's last part, a size, a revision. May be empty."""
    origin: str
    """Hub id or folder that the model was loaded from, if it says so."""
    max_tokens: int | None
    """Most tokens of prompt and answer together; None: it does not say."""


@dataclass(frozen=True)
class Question:
    """One thing that a server is asked."""

    ids: Sequence[int]
    """The whole prompt."""
    most: int
    """Most tokens to generate."""
    stops: Sequence[int] = ()
    """Ids that end an answer."""
    choices: Sequence[int] = ()
    """Ids whose log-probability at the first generated position is wanted."""
    sampling: Sampling | None = None
    vocabulary: int = 0


@dataclass(frozen=True)
class Answer:
    """The server's answer, before it is checked."""

    text: str
    ids: tuple[int, ...] | None
    """Generated ids as the server sent them, an end of turn included if it did; None: it sent none."""
    finish: Literal["stop", "length"]
    prompt_tokens: int | None
    cached_tokens: int | None = None
    """Of the prompt, tokens that the server did not compute."""
    model: str | None = None
    """Which model it says has answered."""
    cut: bool = False
    """Whether it says that it has cut the prompt."""
    log_probabilities: Mapping[int, float] = field(default_factory=dict)
    """Id -> log-probability at the first generated position."""


class Dialect(ABC):
    """One kind of server."""

    kind: ServerKind

    def __init__(self, address: ServerAddress) -> None:
        """address: the server and the name of the model."""
        self.address = address

    @abstractmethod
    def describe(self, entry: Body, get: Get) -> ServerInfo:
        """What the server says of itself; entry: the model in its list of models."""

    @abstractmethod
    def request(self, question: Question) -> tuple[str, Body]:
        """URL and body."""

    @abstractmethod
    def answer(self, body: Body) -> Answer:
        """The answer in a response; raises KeyError, IndexError, TypeError or ValueError for another form."""

    def full_request(self, question: Question) -> tuple[str, Body] | None:
        """The request for a probe that missed a choice, if a longer list can be had."""
        return None


class CompletionsDialect(Dialect):
    """vLLM's ``/v1/completions`` with token ids on both sides."""

    kind: ServerKind = "vllm"

    def describe(self, entry: Body, get: Get) -> ServerInfo:
        """Version from ``/version``; the model's entry has where it was loaded from and its length."""
        origin = str(entry.get("root") or "")
        version = _text(get(f"{self.address.root}/version"), "version")
        return ServerInfo(self.kind, version, public_name(origin), origin, _count(entry.get("max_model_len")))

    def request(self, question: Question) -> tuple[str, Body]:
        """Completion of ids."""
        body: Body = {
            "model": self.address.model,
            "prompt": list(question.ids),
            "max_tokens": question.most,
            "stop_token_ids": list(question.stops),
            "top_k": 0,
            "return_token_ids": True,
            **_PLAIN,
            **_drawn(question.sampling),
        }
        if question.choices:
            body |= {
                "logprobs": TOP,
                "logprob_token_ids": list(question.choices),
                "return_tokens_as_token_ids": True,
            }
        return f"{self.address.api}/completions", body

    def answer(self, body: Body) -> Answer:
        """The first choice."""
        choice, usage = body["choices"][0], body.get("usage") or {}
        listed = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
        log_probabilities = {
            int(token.removeprefix("token_id:")): float(value)
            for token, value in listed.items()
            if token.startswith("token_id:")
        }
        return Answer(
            text=str(choice.get("text") or ""),
            ids=_ids(choice.get("token_ids")),
            finish=_finish(choice.get("finish_reason")),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
            model=body.get("model"),
            log_probabilities=log_probabilities,
        )


class LlamaCppDialect(Dialect):
    """llama.cpp's native ``/completion``."""

    kind: ServerKind = "llamacpp"

    def describe(self, entry: Body, get: Get) -> ServerInfo:
        """Build and context length from ``/props``; the weights are pinned by file name and size."""
        props = get(f"{self.address.root}/props") or {}
        meta = entry.get("meta") or {}
        file = public_name(str(props.get("model_path") or ""))
        revision = ":".join(filter(None, (file, str(meta.get("size") or ""))))
        settings = props.get("default_generation_settings") or {}
        return ServerInfo("llamacpp", _text(props, "build_info"), revision, "", _count(settings.get("n_ctx")))

    def request(self, question: Question) -> tuple[str, Body]:
        """Completion of ids, with a list of likely tokens if choices are asked about."""
        return self._request(question, MOST_PROBABILITIES)

    def full_request(self, question: Question) -> tuple[str, Body] | None:
        """The same with the whole vocabulary."""
        return self._request(question, max(question.vocabulary, MOST_PROBABILITIES))

    def _request(self, question: Question, most_probabilities: int) -> tuple[str, Body]:
        drawn = _drawn(question.sampling)
        body: Body = {
            "model": self.address.model,
            "prompt": list(question.ids),
            "n_predict": question.most,
            "temperature": drawn["temperature"],
            "samplers": ["temperature"],
            "repeat_penalty": 1.0,
            **_NO_PENALTIES,
            "dry_multiplier": 0.0,
            "mirostat": 0,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": False,
        }
        if "seed" in drawn:
            body["seed"] = drawn["seed"] % 2**32
        if question.choices:
            body["n_probs"] = most_probabilities
        return f"{self.address.root}/completion", body

    def answer(self, body: Body) -> Answer:
        """Ids, and probabilities before sampling."""
        listed = body.get("completion_probabilities") or body.get("probs") or [{}]
        timings = body.get("timings") or {}
        return Answer(
            text=str(body.get("content") or ""),
            ids=_ids(body.get("tokens")),
            finish="length" if body.get("stop_type") == "limit" else "stop",
            prompt_tokens=_count(body.get("tokens_evaluated")),
            cached_tokens=_count(timings.get("cache_n")),
            cut=bool(body.get("truncated")),
            log_probabilities={
                int(entry["id"]): float(entry["logprob"]) for entry in listed[0].get("top_logprobs") or []
            },
        )


TITLES: Mapping[ServerKind, str] = {"vllm": "vLLM", "llamacpp": "llama.cpp"}
"""Kind of server -> its name in tables and messages."""
DIALECTS: Mapping[ServerKind, type[Dialect]] = {
    dialect.kind: dialect for dialect in (CompletionsDialect, LlamaCppDialect)
}
_OWNERS: Mapping[str, ServerKind] = {"vllm": "vllm", "llamacpp": "llamacpp", "llama.cpp": "llamacpp"}
"""``owned_by`` in a list of models -> kind of server."""


def describe(address: ServerAddress, get: Get) -> ServerInfo:
    """What the server says of itself and of the model; its kind is recognised unless the address names it.

    Raises ServerError for a server of another kind, or one that lists no such model, unless the address
    says its kind.
    """
    listing = get(f"{address.api}/models")
    entries = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ServerError(
            f"{address.url}: {address.api}/models is no list of models. Check the URL; for most servers it"
            " ends in /v1."
        )
    entry: Body | None = next((entry for entry in entries if entry.get("id") == address.model), None)
    if entry is None and address.kind is not None:
        entry = {}  # some serve more than they list; the check at the start asks the model itself
    if entry is None:
        known = ", ".join(str(entry.get("id")) for entry in entries[:8]) or "none"
        raise ServerError(
            f"{address.url}: the server has no model {address.model!r}. It has: {known}. Put one of these"
            " after '#', or say what it is with #kind=... if it serves more than it lists."
        )
    kind = address.kind or _OWNERS.get(str(entry.get("owned_by") or "").lower())
    if kind is None:
        raise ServerError(
            f"{address.url}: the server ({entry.get('owned_by') or 'unnamed'}) is neither"
            f" {' nor '.join(TITLES.values())}, so it may not take token ids. If it speaks like one of them,"
            f" say so: {' or '.join(f'#kind={kind}' for kind in TITLES)}."
        )
    return DIALECTS[kind](address).describe(entry, get)


def _drawn(sampling: Sampling | None) -> Body:
    """Temperature and seed: greedy, unless a method draws."""
    return {"temperature": 0.0} if sampling is None else vars(sampling)


def _finish(reason: JsonValue) -> Literal["stop", "length"]:
    """Raises ValueError for an answer that ended otherwise, such as one that was filtered."""
    if reason not in ("stop", "length"):
        raise ValueError(f"the answer ended by {reason!r}")
    return "stop" if reason == "stop" else "length"


def _ids(value: JsonValue) -> tuple[int, ...] | None:
    return None if value is None else tuple(map(int, value))


def _count(value: JsonValue) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(body: JsonValue, key: str) -> str:
    return str(body.get(key) or "") if isinstance(body, dict) else ""
