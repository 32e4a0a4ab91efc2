"""A causal language model for methods: tokens, prompts, and conversations served by the engine.

Every token of a conversation goes through the model exactly once: text is queued by ``extend`` and forwarded
together with the closing of the turn at the next probe or generation; a probe then rolls its closing back.

Costs are credited per request to the meter that is current when it is submitted: n tokens at once
on m cached ones count n*(m+n) attended pairs, even if a long prompt is forwarded in pieces, so that a
cost depends only on the request, not on what shared the pass. Phases: ``prefill`` (the text, and the
closing before an answer), ``probe`` (a probe's closing), ``decode`` (each further token). If text and
closing share a forward, each is credited with its own rows and the sums are exactly the forward's;
the call itself counts as a ``probe``.
"""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bench.engine.engine import Engine, Limits, Request, RequestResult
from bench.engine.prefixes import Slot
from bench.engine.sampling import Sampling
from bench.errors import ConfigError, WindowExceededError
from bench.flops.architecture import Architecture
from bench.flops.formulas import priced
from bench.flops.meter import Meter, Usage, current_meter
from bench.models.api import Generation, Geometry, Probe, Span, Tokenization
from bench.models.chat import ChatFormat, chat_format, stop_tokens
from bench.models.tokenizer import TextTokenizer, token_span


class CausalLanguageModel:
    """A transformers causal model behind :class:`bench.models.api.LanguageModel`."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: TextTokenizer,
        *,
        geometry: Geometry,
        architecture: Architecture,
        chat_style: str = "template",
        limits: Limits | None = None,
    ) -> None:
        """model: a ``PreTrainedModel`` in eval mode; chat_style: see :func:`chat_format`.

        limits: the size of one forward pass; default: by device.
        """
        self._name, self._model, self._tokenizer = name, model, tokenizer
        self._geometry, self.architecture, self._limits = geometry, architecture, limits
        self.chat: ChatFormat = chat_format(tokenizer, chat_style)
        self.stops = stop_tokens(
            tokenizer, self.chat, model.config, getattr(model, "generation_config", None)
        )

    @property
    def name(self) -> str:
        """Preset name or identifier; the key under which its FLOPs are credited."""
        return self._name

    @property
    def geometry(self) -> Geometry:
        """The lengths this model is used at."""
        return self._geometry

    @property
    def hf_model(self) -> Any:
        """The transformers model, for libraries that call it directly (a hook must meter them)."""
        return self._model

    @property
    def hf_tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self._tokenizer.hf

    @property
    def max_positions(self) -> int:
        """The longest context that the model itself takes, in tokens."""
        return self.architecture.max_positions

    @cached_property
    def engine(self) -> Engine:
        """The engine that serves the contexts, set up on first use.

        Raises RefusedModelError for a model that it would serve incorrectly.
        """
        from bench.engine.setup import build_engine

        longest = min(self.max_positions, max(self.geometry.window, self.geometry.input_limit))
        engine = build_engine(self.name, self._model, max_context=longest)
        if self._limits is not None:
            engine.limits = self._limits
        return engine

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

    async def open(self, max_tokens: int | None = None) -> EngineContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window).

        Waits while other contexts use the memory. Raises WindowExceededError if the model, or the
        memory reserved for its contexts, cannot hold that many tokens.
        """
        room = min(self.geometry.window, self.max_positions) if max_tokens is None else max_tokens
        if room > self.max_positions:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was requested; the model takes at most"
                f" {self.max_positions}. Shorten the context or choose a model with a longer window."
            )
        if room > self.engine.kv_cache.tokens:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was requested; the memory for keys and values holds"
                f" {self.engine.kv_cache.tokens}. Use a device with more memory."
            )
        return EngineContext(self, await self.engine.reserve(room), room)

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


class EngineContext:
    """A conversation in the engine's memory; see :class:`bench.models.api.ReadingContext`.

    All layers keep their full past (no eviction, also for sliding-window models, whose window is a mask),
    so that it can always be rolled back.
    """

    def __init__(self, lm: CausalLanguageModel, slot: Slot, capacity: int) -> None:
        """A context with the chat template's opening queued; nothing is forwarded yet."""
        self._lm, self._slot, self._capacity = lm, slot, capacity
        self._queue: list[int] = list(lm.chat.opening)
        self._watched: list[Span] = []
        self._watched_since: list[int] = []
        self._recorded: list[NDArray[np.float32]] = []
        """Rows for the positions from ``_watched_since[0]`` on, one array per forward."""
        self._answered = False
        self._busy = False
        self._unusable = ""

    @property
    def length(self) -> int:
        """Tokens in the context so far, template included."""
        return self._slot.length + len(self._queue)

    async def extend(self, text: str, *, focus: tuple[int, int] | None = None) -> Span:
        """Append text to the open user turn (after an answer: to a new one); nothing is forwarded yet.

        Returns the token span of ``text[focus[0]:focus[1]]``, by default of the whole text.
        Raises WindowExceededError, with nothing appended, if the text and the turn's closing do not fit.
        """
        start, end = (0, len(text)) if focus is None else focus
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"focus {focus} is not a range within the text's {len(text)} characters")
        with self._exclusive():
            chat = self._lm.chat
            tokens = self._lm.tokenize(text)
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
        ids = self._lm.choice_ids(choices)
        closing = self._lm.chat.closing
        with self._exclusive(asking=True):
            meter, text = current_meter(), len(self._queue)
            result = await self._run(Request(self._slot, self._queue, closing, tuple(ids)))
            after = self._slot.length + len(closing)
            self._lm.credit(meter, "prefill", Usage(new_tokens=text, attended=text * after))
            self._lm.credit(
                meter,
                "probe",
                Usage(calls=1, new_tokens=len(closing), attended=len(closing) * after, logit_rows=1),
            )
        most = max(result.logits)
        weights = [math.exp(logit - most) for logit in result.logits]
        mass = math.fsum(math.exp(logit - result.log_mass) for logit in result.logits)
        return Probe(
            probabilities={c: w / math.fsum(weights) for c, w in zip(choices, weights, strict=True)},
            logits=dict(zip(choices, result.logits, strict=True)),
            mass=min(1.0, mass),
        )

    async def generate(self, max_new_tokens: int, sampling: Sampling | None = None) -> Generation:
        """Close the user turn and answer, greedily or by drawing; the answer stays in the context.

        The end-of-turn token belongs to the template and is in neither ``text`` nor ``token_ids``.
        """
        require_positive(max_new_tokens)
        lm = self._lm
        with self._exclusive(asking=True):
            meter = current_meter()
            prompt = [*self._queue, *lm.chat.closing]
            request = Request(
                self._slot,
                prompt,
                decode=max_new_tokens,
                stops=lm.stops,
                limit=self._capacity,
                sampling=sampling,
            )
            prompt_tokens = self._slot.length + len(prompt)
            result = await self._run(request)
            answer = result.answer
            decoded = len(answer) if result.finish == "stop" else len(answer) - 1
            self._queue = list(answer[decoded:])  # the last token was never forwarded
            self._answered = True
            lm.credit_answer(meter, len(prompt), prompt_tokens, decoded)
        text, offsets = lm.decode(answer)
        return Generation(text, answer, result.finish, prompt_tokens, offsets)

    async def say(self, reply: str) -> None:
        """Close the user turn, put ``reply`` in the assistant's mouth and open the next user turn.

        Nothing is forwarded yet. Raises WindowExceededError, with nothing appended, if it does not fit.
        """
        with self._exclusive(asking=True):
            chat = self._lm.chat
            ids = self._lm.tokenize(chat.answer_prefix + reply).ids
            turn = [*chat.reply_opening, *ids, *chat.next_turn]
            self._require_room(len(turn) + len(chat.closing))
            self._queue += turn

    async def settle(self) -> None:
        """Forward the queued tokens without reading logits; credited as ``prefill``."""
        with self._exclusive():
            new = len(self._queue)
            if new:
                meter = current_meter()
                await self._run(Request(self._slot, self._queue))
                self._lm.credit(
                    meter, "prefill", Usage(calls=1, new_tokens=new, attended=new * self._slot.length)
                )

    def watch(self, span: Span) -> int:
        """Record the attention of every later token to ``span``; returns its column in :meth:`recorded`."""
        with self._exclusive():
            if not 0 <= span.start < span.end <= self.length:
                raise ValueError(f"{span} is not a range of tokens within the context's {self.length}")
            self._watched.append(span)
            self._watched_since.append(self.length)
            return len(self._watched) - 1

    def recorded(self, span: Span) -> NDArray[np.float32]:
        """Attention of the tokens of ``span`` to the watched spans, shape (tokens, watched spans).

        Mean over layers, heads and the tokens of the watched span. Tokens at the end that are still
        queued are missing. Raises ValueError if the span starts before anything was watched.
        """
        if not self._watched or span.start < self._watched_since[0]:
            raise ValueError(f"{span} starts before the context recorded any attention")
        first = self._watched_since[0]
        out = np.zeros(
            (max(0, min(span.end, self._slot.length) - span.start), len(self._watched)), np.float32
        )
        at = first
        for rows in self._recorded:
            low, high = max(at, span.start), min(at + len(rows), span.end)
            if low < high:
                out[low - span.start : high - span.start, : rows.shape[1]] = rows[low - at : high - at]
            at += len(rows)
        for column, since in enumerate(self._watched_since):
            out[: max(0, since - span.start), column] = 0
        return out

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
            self._queue = self._queue[: max(0, mark - self._slot.length)]
            self._lm.engine.rewind(self._slot, mark)
            still_watched = sum(since <= mark for since in self._watched_since)
            del self._watched[still_watched:], self._watched_since[still_watched:]
            self._trim_recorded()
            self._answered = False

    def close(self) -> None:
        """Free the context's memory; closing twice is harmless."""
        if self._unusable != _CLOSED:
            self._lm.engine.release(self._slot, retain=not self._unusable)
        self._queue = []
        self._unusable = _CLOSED

    def __del__(self) -> None:
        """Free the memory of a context that was never closed."""
        if getattr(self, "_unusable", _CLOSED) != _CLOSED:
            self.close()

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

    async def _run(self, request: Request) -> RequestResult:
        """Run ``request``, which includes the queue, on the engine; keep the recorded attention."""
        if self._watched:
            request.watched = [(span.start, span.end) for span in self._watched]
            request.watch_from = self._watched_since[0]
        try:
            result = await self._lm.engine.run(request)
        except BaseException:
            self._unusable = self._unusable or "a forward of it failed"  # the cache may hold part of it
            raise
        self._queue = []
        current_meter().reused_tokens += result.reused
        if len(result.attention):
            self._recorded.append(result.attention)
            self._trim_recorded()
        return result

    def _trim_recorded(self) -> None:
        """Drop rows of tokens that were rolled back."""
        if not self._watched:
            self._recorded = []
            return
        left = max(0, self._slot.length - self._watched_since[0])
        trimmed: list[NDArray[np.float32]] = []
        for rows in self._recorded:
            if left > 0:
                trimmed.append(rows[:left])
            left -= len(rows)
        self._recorded = trimmed

    def _require_room(self, tokens: int) -> None:
        if self.length + tokens > self._capacity:
            raise WindowExceededError(
                f"{self._lm.name}: {tokens} more tokens do not fit: the context has {self.length} and was"
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


_CLOSED = "it is closed"
