"""A causal language model behind a server, as a method sees it.

Prompts are made here, from the model's own tokenizer and chat template, and costs are the closed form of
our counts, each token credited once: a conversation that grows is sent again in full, and what the server
computes again or takes from its prefix cache changes no cost. What the server counts must be what we count,
or the question fails.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bench.engine.heads import Heads
from bench.engine.sampling import Sampling
from bench.engine.scheduler import RequestResult
from bench.errors import ConfigError, NoAttentionError
from bench.flops.meter import Meter, current_meter, metered
from bench.models.api import ModelFacts, Span
from bench.models.conversation import LanguageModel, ReadingContext
from bench.models.served.client import RefusedRequestError, ServerClient, ServerError, WrongCountError
from bench.models.served.dialects import DIALECTS, TITLES, Answer, Question, ServerInfo, describe
from bench.models.tokenizer import TextTokenizer

UNLISTED = -100.0
"""Log-probability of a choice that the server's list lacks: as good as none, and still a number."""
_PROMPTS = (
    "Reply with the one word: yes",
    "Repeat: naïve café, 12345, <|endoftext|> and </s> are text.",
    "Count these: " + ", ".join(f"item {n}" for n in range(1, 120)) + ". How many are there?",
)
"""What a server is asked at the start: something short, what looks like control tokens, something long."""
_MOST = 12
"""Most tokens of an answer to one of them."""
_SLACK = 4
"""Tokens by which llama.cpp may exceed a limit to complete a character; they are cut off here."""
_NO_PROBES = (
    "This method asks how likely a word is (a search's Yes or No). Let the server give log-probabilities, or"
    " use a method that only generates."
)


class ServedLanguageModel(LanguageModel):
    """A model whose forwards a server runs."""

    def __init__(
        self,
        facts: ModelFacts,
        tokenizer: TextTokenizer,
        configs: Sequence[Any],
        client: ServerClient,
        described: ServerInfo,
    ) -> None:
        """described: what the server reported when the run was planned; others: as for every model."""
        super().__init__(facts, tokenizer, configs)
        self.client, self.described = client, described
        self.dialect = DIALECTS[described.kind](client.address)
        client.on_return = self._require_same
        self._checking: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._checked = False
        self._answers_as: str | None = None
        self.has_probed = False
        """Whether the server has returned log-probabilities."""
        self.without_probes = _NO_PROBES
        """What to do if it returns none."""

    @property
    def max_positions(self) -> int:
        """The longest context: the model's, or the server's where that is shorter."""
        return min(filter(None, (self.architecture.max_positions, self.described.max_tokens)))

    @property
    def where(self) -> str:
        """Model and server, for messages."""
        return f"{self.name} ({TITLES[self.described.kind]} at {self.client.address.url})"

    async def open(self, max_tokens: int | None = None) -> ServedContext:
        """A fresh context; before the first, the server is checked.

        Raises WindowExceededError, ServerError.
        """
        room = self.room(max_tokens)
        await self.require()
        return ServedContext(self, room)

    async def require(self) -> None:
        """Check the server, once; raises ServerError for one that cannot be used."""
        async with self._checking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if not self._checked:
                await self._check()
                self._checked = True

    async def require_probes(self, ways_out: str) -> bool:
        """Whether the server says how likely any word is, not only the likeliest.

        ways_out: what to do where it says that of no word, for the message. Raises ServerError, ConfigError.
        """
        await self.require()
        self.without_probes = ways_out
        context = ServedContext(self, self.room(None))
        with metered(Meter()) as meter:
            await context.extend(_PROMPTS[0])
            await context.probe(("Yes", "No"))
        return "probe_from_top_list" not in meter.events

    async def ask(self, question: Question) -> Answer:
        """The server's answer, from the right model, of the right number of prompt tokens.

        Raises WrongCountError, RefusedRequestError, ServerError.
        """
        answer = await self._asked(*self.dialect.request(question))
        missing = [id_ for id_ in question.choices if id_ not in answer.log_probabilities]
        if missing and (full := self.dialect.full_request(question)) is not None:
            answer = replace(await self._asked(*full), cached_tokens=answer.cached_tokens)
        ours = len(question.ids)
        if answer.cut and ours + question.most + _SLACK > (self.described.max_tokens or math.inf):
            answer = replace(answer, cut=False)  # llama.cpp also says so of an answer that fills its context
        if answer.cut or (answer.prompt_tokens is not None and answer.prompt_tokens != ours):
            raise WrongCountError(
                f"{self.where}: the prompt has {ours} tokens by our count and {answer.prompt_tokens} by the"
                " server's"
                + (", which says that it has cut it. " if answer.cut else ". ")
                + "Is its context as long as the prompt?"
            )
        return answer

    async def _asked(self, url: str, body: dict[str, Any]) -> Answer:
        sent = await self.client.post(url, body)
        try:
            answer = self.dialect.answer(sent)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise RefusedRequestError(
                f"{self.where}: the answer is not of the form that {self.described.kind} gives"
                f" ({type(error).__name__}: {error}). Is #kind=... right?"
            ) from None
        if answer.model is not None:
            self._answers_as = self._answers_as or answer.model
            if answer.model != self._answers_as:
                raise ServerError(
                    f"{self.where}: {answer.model!r} has answered, and {self._answers_as!r} before. Every"
                    " finished question is recorded. Serve one model, or name the one that is meant."
                )
        return answer

    def _require_same(self) -> None:
        """Raise ServerError if the server that answers again is not the one that the run was planned with."""
        now = vars(describe(self.client.address, self.client.get))
        planned = vars(self.described)
        changed = [
            f"{name} {now[name]!r} instead of {was!r}" for name, was in planned.items() if now[name] != was
        ]
        if changed:
            raise ServerError(
                f"{self.where}: the server is another one than the run was planned with:"
                f" {', '.join(changed)}. Every finished question is recorded. Start the former one again, or"
                " give the command again for a new cell."
            )

    async def _check(self) -> None:
        """Raise ServerError for a server that samples, cuts prompts or answers, or does not stop.

        Three prompts, each asked twice: the same text, our number of tokens, an end at the end of turn.
        """
        await asyncio.to_thread(self._require_same)
        for prompt in _PROMPTS:
            ids = [*self.chat.opening, *self.tokenize(prompt).ids, *self.chat.closing]
            question = Question(ids, _MOST, sorted(self.stops))
            try:
                first, second = await self.ask(question), await self.ask(question)
            except (WrongCountError, RefusedRequestError) as error:
                raise ServerError(f"At the start of the run: {error}") from None
            wrong = self._faults(first, second)
            if wrong:
                raise ServerError(f"{self.where} cannot be used: {wrong}. (Asked: {prompt[:60]!r}.)")

    def _faults(self, first: Answer, second: Answer) -> str:
        """What is wrong with two answers to one prompt; empty: nothing."""
        asked_as = self.client.address.model
        if first.model is not None and asked_as.rpartition("/")[2] not in first.model:
            return f"{asked_as!r} was asked and {first.model!r} has answered"
        if first.prompt_tokens is None:
            return "it does not say how many tokens a prompt has, so that nothing would show that it was cut"
        if (first.ids, first.text) != (second.ids, second.text):
            return (
                f"it gave two texts for one prompt at temperature 0 ({first.text!r}, {second.text!r}), so"
                " that it ignores the sampling parameters"
            )
        if first.ids is None:
            return "it does not send the ids of what it generated"
        length = len(first.ids)
        if any(id_ in self.stops for id_ in first.ids[:-1]):
            return "it goes on after the end of turn"
        if length > _MOST + _SLACK:
            return f"it generated {length} tokens where at most {_MOST} were asked for"
        if first.finish == "length" and length < _MOST:
            return f"it broke off after {length} of {_MOST} tokens"
        return ""


class ServedContext(ReadingContext):
    """A conversation that is sent again in full whenever the model is asked."""

    def __init__(self, lm: ServedLanguageModel, capacity: int) -> None:
        """A context with the chat template's opening queued; nothing is sent yet."""
        super().__init__(lm, capacity)
        self._lm = lm
        self._ids: list[int] = []
        """What a model in this process would hold: everything that was credited."""

    @property
    def _kept(self) -> int:
        return len(self._ids)

    async def _forward(
        self,
        suffix: Sequence[int] = (),
        choices: Sequence[int] = (),
        decode: int = 0,
        sampling: Sampling | None = None,
    ) -> RequestResult:
        kept = [*self._ids, *self._queue]
        if not choices and not decode:  # nothing is read: the server forwards it with what follows
            self._keep(kept)
            return RequestResult()
        room = self._capacity - len(kept) - len(suffix)
        question = Question(
            ids=[*kept, *suffix],
            most=min(decode, max(1, room)) if decode else 1,
            stops=sorted(self._lm.stops),
            choices=choices,
            sampling=sampling,
            vocabulary=self._lm.architecture.vocab,
        )
        try:
            answer = await self._lm.ask(question)
        except BaseException as error:
            self._unusable = self._unusable or "a request of it failed"
            if choices and isinstance(error, RefusedRequestError) and not self._lm.has_probed:
                raise ServerError(f"Asked how likely a word is: {error}. {self._lm.without_probes}") from None
            raise
        meter = current_meter()
        if answer.cached_tokens is None:
            meter.reuse_known = False
        else:
            meter.reused_tokens += answer.cached_tokens - len(self._ids)
        if choices:
            self._lm.has_probed = True
            self._keep(kept)
            return RequestResult(logits=self._log_probabilities(choices, answer))
        ids, stopped = self._generated(answer, question.most)
        finish: Literal["stop", "length", "window"] = "length" if question.most == decode else "window"
        decoded = ids if stopped else ids[:-1]
        self._keep([*kept, *suffix, *decoded])
        return RequestResult(answer=tuple(ids), finish="stop" if stopped else finish)

    def _keep(self, ids: list[int]) -> None:
        self._ids, self._queue = ids, []

    def _generated(self, answer: Answer, most: int) -> tuple[list[int], bool]:
        """The generated ids without the end of turn, and whether that, or any other end, was met."""
        if answer.ids is None or not all(0 <= id_ < self._lm.architecture.vocab for id_ in answer.ids):
            raise RefusedRequestError(f"{self._lm.where}: ids of what was generated are missing, or unknown")
        generated = answer.ids[:most]
        end = next((at for at, id_ in enumerate(generated) if id_ in self._lm.stops), None)
        ids = list(generated[:end])
        stopped = end is not None or (answer.finish == "stop" and len(ids) < most)
        if not ids and not stopped:
            raise RefusedRequestError(f"{self._lm.where}: nothing was generated, and the turn was not ended")
        return ids, stopped

    def _log_probabilities(self, choices: Sequence[int], answer: Answer) -> tuple[float, ...]:
        """Of each choice; one that the server's list lacks has :data:`UNLISTED`, and the record a flag."""
        if not answer.log_probabilities:
            raise ConfigError(f"{self._lm.where}: it gives no log-probabilities. {self._lm.without_probes}")
        values = [answer.log_probabilities.get(id_) for id_ in choices]
        if any(value is not None and math.isnan(value) for value in values):
            raise RefusedRequestError(f"{self._lm.where}: a log-probability is not a number")
        if None in values:
            current_meter().events.add("probe_from_top_list")
        return tuple(UNLISTED if value is None else max(value, UNLISTED) for value in values)

    def watch(self, span: Span, heads: Heads | None = None) -> int:
        """Raise NoAttentionError: no server gives attention by span."""
        raise NoAttentionError(
            f"{self._lm.where}: no server gives the attention of tokens to spans of the context. Use a model"
            " that is loaded here for what needs it, or an option that does without."
        )

    def recorded(self, span: Span) -> NDArray[np.float32]:
        """Raise ValueError: nothing was watched."""
        raise ValueError(f"{span} starts before the context recorded any attention")

    def _cut(self, mark: int) -> None:
        del self._ids[mark:]
