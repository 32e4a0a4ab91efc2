"""What every causal model does alike, wherever its forwards run: tokens, turns, and who pays for them.

:class:`ChatModel` has the tokenizer, the chat format and the closed form of the cost; :class:`Conversation`
grows, is asked and rolls back. A subclass of it only runs a forward (:mod:`bench.models.language_model` in
the engine of this process, :mod:`bench.models.served.language_model` behind a server).

Text is queued by ``extend`` and forwarded together with the closing of the turn at the next probe or
generation; a probe then rolls its closing back. Costs are credited per request to the meter that is current
when it is submitted: n tokens at once on m kept ones count n*(m+n) attended pairs, even if a long prompt is
forwarded in pieces or a server computes a prefix again, so that a cost depends only on the request. Phases:
``prefill`` (the text, and the closing before an answer), ``probe`` (a probe's closing), ``decode`` (each
further token). If text and closing share a forward, each is credited with its own rows and the sums are
exactly the forward's; the call itself counts as a ``probe``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bench.engine.eviction import Eviction
from bench.engine.heads import Heads
from bench.engine.sampling import Sampling
from bench.engine.scheduler import RequestResult
from bench.errors import ConfigError, NoAttentionError, WindowExceededError
from bench.flops.architecture import Architecture
from bench.flops.formulas import priced
from bench.flops.meter import Meter, Usage, current_meter
from bench.models.api import Generation, Geometry, Probe, ReadingContext, Span, Tokenization
from bench.models.chat import ChatFormat, chat_format, stop_tokens
from bench.models.tokenizer import TextTokenizer, token_span


class ChatModel(ABC):
    """The half of a :class:`bench.models.api.LanguageModel` that needs no forward pass."""

    def __init__(
        self,
        name: str,
        tokenizer: TextTokenizer,
        *,
        geometry: Geometry,
        architecture: Architecture,
        configs: Sequence[Any],
        chat_style: str = "template",
    ) -> None:
        """configs: the model's configuration and generation configuration, for the tokens that end an answer.

        chat_style: see :func:`bench.models.chat.chat_format`.
        """
        self.name, self._tokenizer, self.geometry = name, tokenizer, geometry
        self.architecture = architecture
        self.chat: ChatFormat = chat_format(tokenizer, chat_style)
        self.stops = stop_tokens(tokenizer, self.chat, *configs)

    @property
    def max_positions(self) -> int:
        """The longest context that the model itself takes, in tokens."""
        return self.architecture.max_positions

    def tokenize(self, text: str) -> Tokenization:
        """Ids and character offsets of plain text: no BOS, no control tokens."""
        return self._tokenizer.encode(text)

    def count_tokens(self, text: str) -> int:
        """Number of tokens of plain text."""
        return len(self._tokenizer.encode(text).ids)

    @property
    def chat_overhead(self) -> int:
        """Tokens that the chat template adds around one user turn, BOS and assistant header included."""
        return self.chat.overhead

    @abstractmethod
    async def open(self, max_tokens: int | None = None) -> ReadingContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window)."""

    async def generate(
        self, prompt: str, max_new_tokens: int, sampling: Sampling | None = None
    ) -> Generation:
        """One user turn, one answer, greedy unless ``sampling`` is given.

        Raises WindowExceededError if prompt, template and answer do not fit the model.
        """
        require_positive(max_new_tokens)
        needed = self.chat_overhead + self.count_tokens(prompt) + max_new_tokens
        if needed > self.max_positions:
            raise WindowExceededError(
                f"{self.name}: prompt, template and answer need {needed} tokens; the model takes"
                f" {self.max_positions}. Shorten the context or choose a model with a longer window."
            )
        async with await self.open(needed) as context:
            await context.extend(prompt)
            return await context.generate(max_new_tokens, sampling)

    def room(self, max_tokens: int | None) -> int:
        """Tokens that a context gets when ``max_tokens`` are asked for; None: the window.

        Raises WindowExceededError if the model does not take that many.
        """
        room = min(self.geometry.window, self.max_positions) if max_tokens is None else max_tokens
        if room > self.max_positions:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was requested; the model takes at most"
                f" {self.max_positions}. Shorten the context or choose a model with a longer window."
            )
        return room

    def choice_ids(self, choices: Sequence[str]) -> list[int]:
        """The first token of an answer that starts with each choice.

        Raises ConfigError if there are fewer than two, one is empty, or two start with the same token.
        """
        firsts = [self.tokenize(self.chat.answer_prefix + choice).ids[:1] for choice in choices]
        if len(choices) < 2 or not all(firsts) or not all(choices):
            raise ConfigError(
                f"{self.name}: a probe needs two or more non-empty choices, got {list(choices)}."
            )
        ids = [first[0] for first in firsts]
        if len(set(ids)) < len(ids):
            raise ConfigError(
                f"{self.name}: choices {list(choices)} share a first token (ids {ids}) with this tokenizer."
                " Choose words that start differently."
            )
        return ids

    def credit(self, meter: Meter, phase: str, usage: Usage) -> None:
        """Credit the usage, priced, to the meter; does nothing if no token was forwarded."""
        if usage.new_tokens:
            meter.credit(self.name, phase, priced(self.architecture, usage))

    def credit_answer(self, meter: Meter, new: int, prompt: int, decoded: int) -> None:
        """Credit ``new`` prompt tokens of a context that then has ``prompt``, and ``decoded`` after them."""
        prefill = Usage(calls=1, new_tokens=new, attended=new * prompt, logit_rows=1)
        pairs = decoded * prompt + decoded * (decoded + 1) // 2
        decode = Usage(calls=decoded, new_tokens=decoded, attended=pairs, logit_rows=decoded)
        self.credit(meter, "prefill", prefill)
        self.credit(meter, "decode", decode)

    def decode(self, ids: Sequence[int]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Text of generated ids, without control tokens and outer white space; each token's range."""
        return self._tokenizer.decode_with_offsets(ids)


class Conversation(ABC):
    """A :class:`bench.models.api.ReadingContext` but for the forwards; one call at a time."""

    def __init__(self, lm: ChatModel, capacity: int) -> None:
        """A context with the chat template's opening queued; nothing is forwarded yet."""
        self._model, self._capacity = lm, capacity
        self._queue: list[int] = list(lm.chat.opening)
        self._dropped = 0
        """Keys that are not attended to any more, a mean over layers and key heads."""
        self._answered = False
        self._busy = False
        self._unusable = ""

    @property
    @abstractmethod
    def _kept(self) -> int:
        """Tokens forwarded and kept."""

    @abstractmethod
    async def _forward(
        self,
        suffix: Sequence[int] = (),
        choices: Sequence[int] = (),
        decode: int = 0,
        sampling: Sampling | None = None,
    ) -> RequestResult:
        """Forward the queue, which is then kept and empty, and ``suffix``.

        With choices, read their logits behind the suffix and forget the suffix; with ``decode``, keep it and
        generate up to that many tokens.
        """

    @property
    def length(self) -> int:
        """Tokens in the context so far, template included."""
        return self._kept + len(self._queue)

    async def extend(self, text: str, *, focus: tuple[int, int] | None = None) -> Span:
        """Append text to the open user turn (after an answer: to a new one); nothing is forwarded yet.

        Returns the token span of ``text[focus[0]:focus[1]]``, by default of the whole text.
        Raises WindowExceededError, with nothing appended, if the text and the turn's closing do not fit.
        """
        start, end = (0, len(text)) if focus is None else focus
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"focus {focus} is not a range within the text's {len(text)} characters")
        with self._exclusive():
            at, tokens = self._append(text)
            self._answered = False
            inner = Span(0, len(tokens.ids)) if focus is None else token_span(tokens, start, end)
            return Span(at + inner.start, at + inner.end)

    def _append(self, text: str) -> tuple[int, Tokenization]:
        """Queue the text; returns its position in the context and its tokens."""
        chat = self._model.chat
        tokens = self._model.tokenize(text)
        header = chat.next_turn if self._answered else ()
        self._require_room(len(header) + len(tokens.ids) + len(chat.closing))
        at = self.length + len(header)
        self._queue += [*header, *tokens.ids]
        return at, tokens

    async def probe(self, choices: Sequence[str]) -> Probe:
        """Close the user turn, read the next-token logits of the choices, and roll the closing back.

        Raises ConfigError if two choices share their first token.
        """
        ids = self._model.choice_ids(choices)
        closing = self._model.chat.closing
        with self._exclusive(asking=True):
            meter, text = current_meter(), len(self._queue)
            outcome = await self._forward(closing, ids)
            after = self._kept + len(closing) - self._dropped
            self._model.credit(meter, "prefill", Usage(new_tokens=text, attended=text * after))
            self._model.credit(
                meter,
                "probe",
                Usage(calls=1, new_tokens=len(closing), attended=len(closing) * after, logit_rows=1),
            )
        most = max(outcome.logits)
        weights = [math.exp(logit - most) for logit in outcome.logits]
        mass = math.fsum(math.exp(logit - outcome.log_mass) for logit in outcome.logits)
        return Probe(
            probabilities={c: w / math.fsum(weights) for c, w in zip(choices, weights, strict=True)},
            logits=dict(zip(choices, outcome.logits, strict=True)),
            mass=min(1.0, mass),
        )

    async def generate(self, max_new_tokens: int, sampling: Sampling | None = None) -> Generation:
        """Close the user turn and answer, greedily or by drawing; the answer stays in the context.

        The end-of-turn token belongs to the template and is in neither ``text`` nor ``token_ids``.
        """
        require_positive(max_new_tokens)
        lm = self._model
        with self._exclusive(asking=True):
            meter = current_meter()
            closing = lm.chat.closing
            new, prompt_tokens = len(self._queue) + len(closing), self.length + len(closing)
            outcome = await self._forward(closing, decode=max_new_tokens, sampling=sampling)
            answer = outcome.answer
            decoded = len(answer) if outcome.finish == "stop" else len(answer) - 1
            self._queue = list(answer[decoded:])  # the last token was never forwarded
            self._answered = True
            lm.credit_answer(meter, new, prompt_tokens - self._dropped, decoded)
        text, offsets = lm.decode(answer)
        return Generation(text, answer, outcome.finish, prompt_tokens, offsets)

    async def say(self, reply: str) -> None:
        """Close the user turn, put ``reply`` in the assistant's mouth and open the next user turn.

        Nothing is forwarded yet. Raises WindowExceededError, with nothing appended, if it does not fit.
        """
        with self._exclusive(asking=True):
            chat = self._model.chat
            ids = self._model.tokenize(chat.answer_prefix + reply).ids
            turn = [*chat.reply_opening, *ids, *chat.next_turn]
            self._require_room(len(turn) + len(chat.closing))
            self._queue += turn

    async def settle(self) -> None:
        """Forward the queued tokens without reading logits; credited as ``prefill``."""
        with self._exclusive():
            new = len(self._queue)
            if new:
                meter = current_meter()
                await self._forward()
                attended = new * (self._kept - self._dropped)
                self._model.credit(meter, "prefill", Usage(calls=1, new_tokens=new, attended=attended))

    @abstractmethod
    def watch(self, span: Span, heads: Heads | None = None) -> int:
        """See :meth:`bench.models.api.ReadingContext.watch`."""

    @abstractmethod
    def recorded(self, span: Span) -> NDArray[np.float32]:
        """See :meth:`bench.models.api.ReadingContext.recorded`."""

    async def importance(self, rule: Eviction) -> NDArray[np.float32]:
        """See :meth:`bench.models.api.ReadingContext.importance`."""
        raise NoAttentionError(f"{self._model.name} does not tell which keys and values matter. {IN_PROCESS}")

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """See :meth:`bench.models.api.ReadingContext.keep`."""
        raise NoAttentionError(f"{self._model.name} keeps all keys and values. {IN_PROCESS}")

    def mark(self) -> int:
        """The context's current length inside its open user turn, for :meth:`rewind`."""
        with self._exclusive(asking=True):
            return self.length

    def rewind(self, mark: int) -> None:
        """Forget everything after ``mark``, an answer and later turns included; costs nothing.

        Raises ValueError for a mark past the end of the context.
        """
        with self._exclusive():
            if not 0 <= mark <= self.length:
                raise ValueError(f"mark {mark} is not within the context's {self.length} tokens")
            self._queue = self._queue[: max(0, mark - self._kept)]
            self._cut(mark)
            self._answered = False

    @abstractmethod
    def _cut(self, mark: int) -> None:
        """Forget the kept tokens after the first ``mark``."""

    def close(self) -> None:
        """Free the context's memory; closing twice is harmless."""
        self._queue = []
        self._unusable = CLOSED

    async def __aenter__(self) -> Self:
        """The context itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _require_room(self, tokens: int) -> None:
        if self.length + tokens > self._capacity:
            raise WindowExceededError(
                f"{self._model.name}: {tokens} more tokens do not fit: the context has {self.length} and was"
                f" opened for {self._capacity}. Open it with more, or shorten the text."
            )

    @contextmanager
    def _exclusive(self, *, asking: bool = False) -> Iterator[None]:
        """Raise RuntimeError for a closed or broken context, or one with another call still running."""
        if self._unusable:
            raise RuntimeError(f"this context cannot be used: {self._unusable}")
        if self._busy:
            raise RuntimeError(
                "another call on this context is still running; await its calls one after the other"
            )
        if asking and self._answered:
            raise RuntimeError("the model has answered; extend the context with the next user turn first")
        self._busy = True
        try:
            yield
        except CancelledError:
            self._unusable = "a call on it was cancelled"
            raise
        finally:
            self._busy = False


def require_positive(max_new_tokens: int) -> None:
    """Raise ValueError unless there is room for at least one token of an answer."""
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be 1 or more, got {max_new_tokens}")


IN_PROCESS = "Use a preset, hub id or folder of a model that packed passes serve, or ratio=0."
"""What to do where keys and values cannot be dropped."""
CLOSED = "it is closed"
"""Why a closed context cannot be used."""
