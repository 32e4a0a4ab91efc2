"""Requests to a server, and what a fault means: try again, fail the question, or end the run.

Retried, with growing pauses: refused, dropped and timed-out connections, half a body, 408, 429 and 5xx. A
request that keeps failing while others succeed fails its question; if none succeeds for the address's
patience, the run ends with one message, and the same command continues. Everything else is at once what it
is: a wrong key, address or model ends the run, a request that the server refuses fails its question.

The key travels in a header and nowhere else: texts of the server are cleared of it before they are shown.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bench.errors import BenchError, QuestionError
from bench.models.served.address import ServerAddress
from bench.packages import require
from bench.schema import JsonValue

log = logging.getLogger(__name__)

IN_FLIGHT = 32
CONNECT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 20.0
MOST_STRIKES = 5
"""Failures of one request while the server answers others, or answers it with an error of its own."""
_SHOWN = 300
"""Characters of a server's own text in a message."""
_AGAIN = (408, 429)


class ServerError(BenchError):
    """A server that cannot be used as it is asked for; the run ends, and the message says what to do."""


class ServerGoneError(ServerError):
    """A server that has not answered for the address's patience; the same command continues."""


class RefusedRequestError(QuestionError):
    """A request that the server refuses or keeps failing, though it serves others."""


class WrongCountError(QuestionError):
    """A prompt of which the server counts other tokens than ours: it read another text."""


class _AgainError(Exception):
    """A fault that may pass."""

    def __init__(self, message: str, pause_s: float = 0.0, *, own: bool = False) -> None:
        """pause_s: what the server asks to wait; own: it is there, and the request may be at fault."""
        super().__init__(message)
        self.pause_s, self.own = pause_s, own


@dataclass
class _Loop:
    """What belongs to one event loop."""

    http: Any
    slots: asyncio.Semaphore
    returning: asyncio.Lock
    """Held while it is asked whether a server that was away is still the same."""
    holder: AsyncGenerator[Any, None]
    gone: ServerGoneError | None = None
    """Once it stayed away for too long; what runs in another loop tries again."""


@dataclass
class ServerClient:
    """JSON in, JSON out; at most ``in_flight`` requests at a time."""

    address: ServerAddress
    in_flight: int = IN_FLIGHT
    on_return: Callable[[], None] | None = None
    """Called once the server answers again after it did not; raises ServerError if it is another one."""
    _loops: dict[asyncio.AbstractEventLoop, _Loop] = field(default_factory=dict, repr=False)
    _answered: float = field(default=0.0, repr=False)
    """When the server last answered a request."""
    _away: bool = field(default=False, repr=False)

    def get(self, url: str) -> JsonValue:
        """The JSON at an URL, now and without an event loop; None where the server has no such route.

        Raises ServerError.
        """
        with _httpx().Client(**self._settings(CONNECT_S)) as http:
            try:
                with _transport():
                    response = http.get(url)
                return self._read(response, may_be_missing=True)
            except _AgainError as fault:
                raise self._gone_error(str(fault)) from None
            except RefusedRequestError as fault:
                raise ServerError(f"{self.address.url}: {fault}") from None

    async def post(self, url: str, body: dict[str, JsonValue]) -> JsonValue:
        """The server's JSON answer to ``body``.

        Raises RefusedRequestError, which fails a question, or ServerError, which ends the run.
        """
        began = failed = time.monotonic()
        tries = strikes = 0
        here = await self._here()
        while True:
            if here.gone is not None:
                raise here.gone
            try:
                return await self._posted(url, body)
            except _AgainError as fault:
                others, failed = self._answered > failed, time.monotonic()
                tries += 1
                strikes += fault.own or (others and tries > 1)
                began = max(began, self._answered) if tries > 1 else failed
                if strikes >= MOST_STRIKES:
                    raise RefusedRequestError(f"{fault}; given up after {tries} tries") from None
                if not fault.own:
                    self._away = True
                    if failed - began >= self.address.patience_s:
                        here.gone = here.gone or self._gone_error(str(fault))
                        raise here.gone from None
                if tries == 1:
                    log.warning("%s: %s; trying again", self.address.url, fault)
                longest = min(LONGEST_PAUSE_S, self.address.patience_s / 4)
                pause = min(FIRST_PAUSE_S * 2 ** (tries - 1), longest) * random.uniform(0.5, 1.0)
                await asyncio.sleep(max(pause, min(fault.pause_s, self.address.patience_s)))

    async def _posted(self, url: str, body: dict[str, JsonValue]) -> JsonValue:
        loop = await self._here()
        async with loop.slots:
            with _transport():
                response = await loop.http.post(url, json=body)
            answer = self._read(response)
        if self._away:
            async with loop.returning:
                await self._returned()
        self._answered = time.monotonic()
        return answer

    async def _returned(self) -> None:
        """Ask once whether the server that answers again is still the one that was described."""
        if not self._away:
            return
        try:
            if self.on_return is not None:
                await asyncio.to_thread(self.on_return)
        except ServerGoneError as error:
            raise _AgainError(str(error)) from None
        self._away = False
        log.warning("%s: answers again", self.address.url)

    async def _here(self) -> _Loop:
        """Connections of the running event loop.

        An asynchronous generator holds them open: :func:`asyncio.run` closes it with its loop.
        """
        running = asyncio.get_running_loop()
        if running not in self._loops:
            self._loops = {loop: own for loop, own in self._loops.items() if not loop.is_closed()}
            settings = self._settings(self.address.timeout_s)

            async def holding() -> AsyncGenerator[Any, None]:
                async with _httpx().AsyncClient(**settings) as http:
                    yield http

            holder = holding()
            self._loops[running] = _Loop(
                await anext(holder), asyncio.Semaphore(self.in_flight), asyncio.Lock(), holder
            )
        return self._loops[running]

    def _settings(self, timeout_s: float) -> dict[str, Any]:
        httpx = _httpx()
        key = self.address.secret()
        return {
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            "limits": httpx.Limits(max_connections=self.in_flight, max_keepalive_connections=self.in_flight),
            "verify": _certificates(),
            "trust_env": not self.address.is_local,  # no proxy between this machine and itself
        }

    def _read(self, response: Any, *, may_be_missing: bool = False) -> JsonValue:
        """The JSON of a response; None for a route that the server does not have, where it may be missing.

        Raises _AgainError, RefusedRequestError, ServerError.
        """
        status, text = int(response.status_code), str(response.text)
        kind = str(response.headers.get("content-type", "")).partition(";")[0]
        where = f"{response.request.method} {response.request.url.path}"
        if status in _AGAIN or status >= 500:
            raise _AgainError(
                f"{where} gave {status} {self._excerpt(text)}", _seconds(response), own=status == 500
            )
        if 300 <= status < 400:
            raise ServerError(
                f"{self.address.url}: {where} redirects to"
                f" {response.headers.get('location', 'another place')}. Give"
                " the address that it redirects to."
            )
        if status in (401, 403):
            variable = self.address.key
            state = "is not set" if not self.address.secret() else "is set, and was refused"
            raise ServerError(
                f"{self.address.url}: the server wants a key ({status}); {variable} {state}. Put the key"
                f" into the environment variable {variable}, or name another variable with #key=NAME."
            )
        if status in (404, 405) and may_be_missing:
            return None
        if status == 404:
            raise ServerError(
                f"{self.address.url}: {where} gave 404 {self._excerpt(text)}. Check the URL (it ends in /v1"
                f" for most servers), the name after '#' ({self.address.model!r}), and #kind=..."
            )
        if status >= 400:
            raise RefusedRequestError(f"the server refused {where} with {status}: {self._excerpt(text)}")
        try:
            return json.loads(text)
        except ValueError:
            pass
        if "json" in kind:
            raise _AgainError(f"{where} gave JSON that breaks off after {len(text)} characters", own=True)
        raise ServerError(
            f"{self.address.url}: {where} gave {kind or 'no type'} instead of JSON ({self._excerpt(text)})."
            " Is it a model server, and is the path right? It ends in /v1 for most."
        )

    def _excerpt(self, text: str) -> str:
        """The beginning of a server's text, for a message."""
        try:
            error = json.loads(text)
            error = error.get("error", error.get("message", error)) if isinstance(error, dict) else error
            text = str(error.get("message", error) if isinstance(error, dict) else error)
        except ValueError:
            pass
        key = self.address.secret()
        text = " ".join((text.replace(key, "***") if key else text).split())
        return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")

    def _gone_error(self, last: str) -> ServerGoneError:
        return ServerGoneError(
            f"The server at {self.address.url} does not answer: {last}. Every finished question is recorded."
            " Start the server again, or correct the address, then give the same command; #patience=SECONDS"
            f" waits longer (now {self.address.patience_s:g})."
        )


@cache
def _certificates() -> Any:
    """The authorities that this machine trusts, which take a while to read."""
    return _httpx().create_ssl_context()


def _httpx() -> Any:
    """The HTTP client's package; raises ConfigError if it is missing."""
    require("A model behind a server", "httpx2")
    return importlib.import_module("httpx2")


@contextmanager
def _transport() -> Iterator[None]:
    """Inside the block, a fault of the transport is raised as what it means.

    The text of a fault names addresses and reasons, never a header.
    """
    httpx = _httpx()
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        kind, message = type(error).__name__, str(error)
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, ssl.SSLError):
                raise ServerError(
                    f"TLS: {reason.reason or reason}. Check the address (http or https); for a certificate of"
                    " your own set SSL_CERT_FILE."
                ) from None
            reason = reason.__cause__ or reason.__context__
        if isinstance(error, httpx.LocalProtocolError) or not isinstance(error, httpx.TransportError):
            raise ServerError(f"the request cannot be sent ({kind}); check address and key.") from None
        raise _AgainError(f"{kind}: {message}" if message else kind) from None


def _seconds(response: Any) -> float:
    """How long a server asks to wait, in seconds; 0: it does not say."""
    try:
        return max(0.0, float(response.headers.get("retry-after", 0)))
    except ValueError:
        return 0.0
