"""A causal model and a conversation with it, as methods see them: no devices, batches or caches.

Text that a method passes in is always *text*: nothing in it can become a control token.
:class:`LanguageModel` has the tokenizer, the chat template and the closed form of the cost; a
:class:`ReadingContext` grows, is asked and rolls back, and every token in it is forwarded exactly once. A
subclass of it only runs a forward (:mod:`bench.models.language_model` in the engine of this process,
:mod:`bench.models.served.language_model` behind a server).

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
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bench.engine.eviction import Eviction
from bench.engine.heads import Heads
from bench.engine.sampling import Sampling
from bench.engine.scheduler import RequestResult
from bench.errors import ConfigError, NoAttentionError, WindowExceededError
from bench.flops.formulas import priced
from bench.flops.meter import Meter, Usage, current_meter
from bench.models.api import Generation, ModelFacts, Probe, Span, Tokenization
from bench.models.chat import ChatFormat, chat_format, stop_tokens
from bench.models.embedder import Embedder
from bench.models.pair_scorer import PairScorer
from bench.models.tokenizer import TextTokenizer, token_span


class LanguageModel(ABC):
    """A causal language model with its tokenizer and chat template."""

    def __init__(self, facts: ModelFacts, tokenizer: TextTokenizer, configs: Sequence[Any]) -> None:
        """configs: configuration and generation configuration, for the tokens that end an answer."""
        self.name, self.geometry, self.architecture = facts.name, facts.geometry, facts.architecture
        self._tokenizer = tokenizer
        self.chat: ChatFormat = chat_format(tokenizer, facts.chat)
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
        return len(self.chat.opening) + len(self.chat.closing)

    @abstractmethod
    async def open(self, max_tokens: int | None = None) -> ReadingContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window).

        Waits while other contexts hold the memory, so a question must not hold two of one model at a time.
        Raises WindowExceededError when the model cannot take so many tokens.
        """

    async def generate(
        self, prompt: str, max_new_tokens: int, sampling: Sampling | None = None
    ) -> Generation:
        """One user turn, one answer, greedy unless ``sampling`` is given.

        Raises WindowExceededError if prompt, template and answer do not fit the model.
        """
        needed = self.chat_overhead + self.count_tokens(prompt) + max_new_tokens
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
            raise ConfigError(f"{self.name}: a probe needs 2 or more non-empty choices, got {list(choices)}.")
        ids = [first[0] for first in firsts]
        if len(set(ids)) < len(ids):
            raise ConfigError(
                f"{self.name}: choices {list(choices)} share a first token (ids {ids}) with this tokenizer."
                " Choose words that start differently."
            )
        return ids

    def credit(self, meter: Meter, phase: str, usage: Usage) -> None:
        """Credit the usage, priced, to the meter; also a cost that is not that of the forwards that were run.

        Does nothing if no token was forwarded.
        """
        if usage.new_tokens:
            meter.credit(self.name, phase, priced(self.architecture, usage))

    def credit_answer(self, meter: Meter, new: int, prompt: int, decoded: int) -> None:
        """Credit ``new`` prompt tokens of a context that then has ``prompt``, and ``decoded`` after them."""
        prefill = Usage(calls=1, new_tokens=new, attended=new * prompt, logit_rows=1, cached=prompt - new)
        pairs = decoded * prompt + decoded * (decoded + 1) // 2
        held = pairs - decoded
        decode = Usage(calls=decoded, new_tokens=decoded, attended=pairs, logit_rows=decoded, cached=held)
        self.credit(meter, "prefill", prefill)
        self.credit(meter, "decode", decode)

    def decode(self, ids: Sequence[int]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Text of generated ids, without control tokens and outer white space; each token's range."""
        return self._tokenizer.decode_with_offsets(ids)


class ReadingContext(ABC):
    """A conversation in the model's KV cache: it grows, is asked, and rolls back; one call at a time."""

    def __init__(self, lm: LanguageModel, capacity: int) -> None:
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

        Returns the token span of ``text[focus[0]:focus[1]]``, by default of the whole text. The tokens stay
        queued until the next probe or generation, so that extend and probe are one forward.
        Raises WindowExceededError, with nothing appended, if the text and the turn's closing do not fit.
        """
        start, end = (0, len(text)) if focus is None else focus
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"focus {focus} is not a range within the text's {len(text)} characters")
        with self._exclusive():
            chat, tokens = self._model.chat, self._model.tokenize(text)
            header = chat.next_turn if self._answered else ()
            self._require_room(len(header) + len(tokens.ids) + len(chat.closing))
            at = self.length + len(header)
            self._queue += [*header, *tokens.ids]
            self._answered = False
            inner = Span(0, len(tokens.ids)) if focus is None else token_span(tokens, start, end)
            return Span(at + inner.start, at + inner.end)

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
            new, held = len(closing), after - text - len(closing)
            usage = Usage(calls=1, new_tokens=new, attended=new * after, logit_rows=1, cached=held)
            self._model.credit(meter, "probe", usage)
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
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be 1 or more, got {max_new_tokens}")
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
        """Forward the queued tokens without reading logits, so that :meth:`recorded` covers them."""
        with self._exclusive():
            new = len(self._queue)
            self._require_room(0)  # an answer's last token may lie behind the last position
            if new:
                meter = current_meter()
                await self._forward()
                after = self._kept - self._dropped
                usage = Usage(calls=1, new_tokens=new, attended=new * after, cached=after - new)
                self._model.credit(meter, "prefill", usage)

    @abstractmethod
    def watch(self, span: Span, heads: Heads | None = None) -> int:
        """From now on, record the attention of every appended or generated token to ``span``.

        heads: those that count, the same for all spans of a context; None: all.
        Returns the span's column in :meth:`recorded`. Costs memory tokens x spans, never tokens x tokens.
        Raises ValueError for a span that is empty or reaches past the context, and for heads that the model
        does not have or that differ from those of the spans before.
        """

    @abstractmethod
    def recorded(self, span: Span) -> NDArray[np.float32]:
        """Attention of the tokens of ``span`` to the watched spans, shape (tokens, watched spans).

        Mean over the heads that count and the tokens of the watched span; causal, not normalised. Tokens that
        were appended before a span was watched have 0 in its column. The last tokens may be missing
        while they are still queued, as the last generated token is; settle, probe or generate forwards them.
        Raises ValueError if the span starts before anything was watched.
        """

    async def importance(self, rule: Eviction) -> NDArray[np.float32]:
        """How much each key of the settled context matters, shape (layers, key heads, length), 0 or more.

        Infinite where it must stay. What the rule forwards beyond the context is credited as ``prefill``.
        Raises ValueError while tokens are queued, NoAttentionError for a model that does not tell.
        """
        raise NoAttentionError(f"{self._model.name} does not tell which keys and values matter. {IN_PROCESS}")

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """From now on attend to these of the first keys alone; shape (layers, key heads, first tokens).

        Positions stay, and costs are those of the keys that are left. Raises ValueError for another shape,
        for more than the settled tokens, and where spans are watched; NoAttentionError where all keys stay.
        """
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

    async def __aexit__(self, *error: object) -> None:
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
            raise RuntimeError("another call on this context is still running; await one after the other")
        if asking and self._answered:
            raise RuntimeError("the model has answered; extend the context with the next user turn first")
        self._busy = True
        try:
            yield
        except CancelledError:
            self._unusable = CLOSED if self._unusable == CLOSED else "a call on it was cancelled"
            raise
        finally:
            self._busy = False


IN_PROCESS = "Use a preset, hub id or folder of a model that packed passes serve, or ratio=0."
"""What to do where keys and values cannot be dropped."""
CLOSED = "it is closed"
"""Why a closed context cannot be used."""


class ModelSet(Protocol):
    """The models of one run by role (``reader``, ``embedder``, ...); loaded on first use."""

    def lm(self, role: str = "reader") -> LanguageModel:
        """The causal model in this role."""

    def embedder(self, role: str = "embedder", *, pooling: Literal["mean", "cls"] | None = None) -> Embedder:
        """The text encoder in this role.

        pooling: how its token vectors become one; needed if a plain encoder folder does not state it.
        """

    def pair_scorer(self, role: str = "scorer") -> PairScorer:
        """The cross-encoder in this role."""
