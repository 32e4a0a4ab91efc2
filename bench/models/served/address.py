"""The address of a served model, as ``--model`` and any role take it: ``server:URL#MODEL#key=value...``."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from bench.errors import ConfigError
from bench.schema import JsonValue

ServerKind = Literal["vllm", "llamacpp"]
KINDS: tuple[ServerKind, ...] = get_args(ServerKind)

SCHEME = "server:"
DEFAULT_KEY = "BENCH_API_KEY"
"""The environment variable that holds the key, if an address names no other."""
PATIENCE_S = 120.0
"""Seconds without any answer after which a server counts as gone; a restart must fit.  # our choice"""
TIMEOUT_S = 600.0
"""Seconds after which one request is sent again; a long answer on a slow processor must fit.  # our choice"""
FORM = "server:http://127.0.0.1:8000/v1#MODEL"

_OPTIONS = ("kind", "tokenizer", "key", "patience", "timeout")


@dataclass(frozen=True)
class ServerAddress:
    """Where a model is served, under which name, and what the server does not say about it."""

    url: str
    """As given, without a slash at its end; no user, password or query."""
    model: str
    """The server's name for it."""
    kind: ServerKind | None = None
    """None: recognised from what the server says."""
    tokenizer: str | None = None
    """The same model as a preset, hub id or folder: its tokenizer, chat template, architecture. None: by
    name."""
    key: str = DEFAULT_KEY
    """Environment variable that holds the key."""
    patience_s: float = PATIENCE_S
    timeout_s: float = TIMEOUT_S

    def __str__(self) -> str:
        return "server"

    @property
    def name(self) -> str:
        """The model in ledgers and records: without the place, be it a URL or a path on the server."""
        return f"{SCHEME}{public_name(self.model)}"

    @property
    def api(self) -> str:
        """Where the OpenAI-compatible routes lie."""
        return self.url if re.search(r"/v\d", urlsplit(self.url).path) else f"{self.url}/v1"

    @property
    def root(self) -> str:
        """Where a server's own routes lie."""
        return self.api.removesuffix("/v1")

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine, so that no proxy lies between."""
        return (urlsplit(self.url).hostname or "") in ("127.0.0.1", "::1", "localhost")

    def secret(self) -> str:
        """The key from its environment variable; empty: none is set.

        Raises ConfigError, without the value, for one that cannot stand in a header.
        """
        value = os.environ.get(self.key, "").strip()
        if re.search(r"[^\x21-\x7e]", value):
            raise ConfigError(
                f"{self.key}: the key holds white space or characters beyond ASCII, which no server takes."
                " Set the variable to the key alone."
            )
        return value


def is_address(text: object) -> bool:
    """Whether a model's name, or an option's value, is the address of a served model."""
    return isinstance(text, str) and text.startswith(SCHEME)


def parse_address(text: str) -> ServerAddress:
    """The address that ``text`` writes; raises ConfigError, naming the part that is wrong."""
    url, *rest = text.removeprefix(SCHEME).split("#")
    key = _variable(next((part[4:] for part in rest[1:] if part.startswith("key=")), DEFAULT_KEY))
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"--model server:...: {error}. Expected an address such as {FORM}.") from None
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "--model server:URL#MODEL: the URL holds a user, a password or a query, which would end up in"
            " records."
            f" Put the key into the environment variable {DEFAULT_KEY}, or name another one with #key=NAME."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--model {text}: expected an address such as {FORM}.")
    if not rest or not rest[0]:
        raise ConfigError(
            f"--model {text}: which model? Expected {FORM}; {url}/models lists the names that the server"
            " knows."
        )
    options: dict[str, str] = {}
    for part in rest[1:]:
        name, equals, value = part.partition("=")
        if name not in _OPTIONS or not equals or not value:
            raise ConfigError(
                f"--model {text}: {part!r} is none of {', '.join(f'{o}=...' for o in _OPTIONS)}."
            )
        options[name] = value
    kind = options.get("kind")
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--model {text}: kind={kind} is none of {', '.join(KINDS)}.")
    return ServerAddress(
        url=url,
        model=rest[0],
        kind=kind,
        tokenizer=options.get("tokenizer"),
        key=key,
        patience_s=_seconds(text, "patience", options, PATIENCE_S),
        timeout_s=_seconds(text, "timeout", options, TIMEOUT_S),
    )


def without_url(value: JsonValue) -> JsonValue:
    """A model's name or an option's value for a record: of an address in it, only the model."""
    if isinstance(value, Mapping):
        return {key: without_url(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_url(inner) for inner in value]
    if not is_address(value):
        return value
    return parse_address(value).name


def public_name(model: str) -> str:
    """A model's name as it is; of a path, the last part, which says nothing of a machine."""
    is_path = model.startswith(("/", ".", "~")) or ":\\" in model
    return posixpath.basename(model.replace("\\", "/").rstrip("/")) if is_path else model


def _variable(name: str) -> str:
    """The name of an environment variable; a key itself, put there by mistake, is not repeated."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ConfigError(
            "--model server:...#key=NAME: expected the name of an environment variable (capitals, digits and"
            " _) that holds the key, not the key itself."
        )
    return name


def _seconds(text: str, name: str, options: Mapping[str, str], default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"--model {text}: {name}={options[name]}: expected seconds, more than 0.")
    return seconds
