"""Which requests share the next forward pass, and what becomes of them: no tensor is touched here.

A context submits one :class:`Request` at a time: forward some tokens and keep them, forward a suffix, read
logits there, roll the suffix back, or continue decoding. Long prompts are forwarded in pieces, so that one
does not hold up the others; a finished request makes room at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.engine.heads import Heads
from bench.engine.kv_cache import PAGE, Pages, Reservation
from bench.engine.prefixes import BLOCK, WORTH_WAITING, PrefixIndex, Slot, block_hashes
from bench.engine.sampling import Sampling

AGEING = 4
"""A prompt that was passed over so many times goes as if a pass of tokens fewer were left of it."""


@dataclass(eq=False)
class Request:
    """A context's pending forward, with the result it waits for."""

    slot: Slot
    tokens: Sequence[int]
    """Forwarded and kept."""
    suffix: Sequence[int] = ()
    """Forwarded after them and rolled back once the logits are read."""
    choices: Sequence[int] = ()
    """Token ids whose logits are read at the last position."""
    decode: int = 0
    """Most tokens to generate after ``tokens``; 0: none."""
    stops: frozenset[int] = frozenset()
    limit: int = 0
    """Most positions the context may have while decoding."""
    sampling: Sampling | None = None
    """How tokens are drawn; None: the likeliest is taken."""
    watched: Sequence[tuple[int, int]] = ()
    """Spans of the context to which tokens from position ``watch_from`` on record their attention."""
    watch_from: int = 0
    heads: Heads | None = None
    """The heads whose attention is recorded, all of them the model's; None: every head of every layer."""

    forwarded: int = field(default=0, init=False)
    """Of tokens and suffix, those in the KV cache: forwarded, or reused from another context."""
    reused: int = field(default=0, init=False)
    """Of these, those reused."""
    passed_over: int = field(default=0, init=False)
    """Passes in which its prompt found no place."""
    blocks: list[int] = field(default_factory=list, init=False)
    """Hashes of the blocks that the tokens begin with; only of a request that begins a context."""
    answer: list[int] = field(default_factory=list, init=False)
    finish: Literal["stop", "length", "window"] = field(default="length", init=False)
    attention: list[Any] = field(default_factory=list, init=False)
    """One array (new tokens, spans) per forward that recorded any, on the model's device."""
    future: asyncio.Future[RequestResult] = field(init=False)

    @property
    def shareable(self) -> int:
        """Most tokens that may be reused: the last token is forwarded, and so are tokens that record."""
        most = len(self.tokens) - (0 if self.suffix else 1)
        return min(most, self.watch_from) if self.watched else most

    @property
    def prompt(self) -> int:
        """Tokens to forward before the first logits."""
        return len(self.tokens) + len(self.suffix)

    @property
    def decodes(self) -> bool:
        """Whether its prompt is forwarded."""
        return self.forwarded >= self.prompt

    def following(self, most: int) -> list[int]:
        """The tokens to forward next, at most so many."""
        if self.decodes:
            return self.answer[-1:]
        return [*self.tokens, *self.suffix][self.forwarded : self.forwarded + most]


@dataclass(frozen=True)
class RequestResult:
    """The outcome of a request."""

    logits: tuple[float, ...] = ()
    """Of ``choices``, fp32; behind a server log-probabilities."""
    log_mass: float = 0.0
    """Log of the sum of exp over all logits at that position."""
    answer: tuple[int, ...] = ()
    finish: Literal["stop", "length", "window"] = "length"
    attention: Any = None
    """(tokens, spans): mean over the heads that count, fp32 numpy, of its tokens from ``watch_from`` on."""
    reused: int = 0
    """Tokens whose keys and values were reused from another context."""


@dataclass(frozen=True)
class Limits:
    """How much goes into one forward pass."""

    tokens: int
    """Most new tokens; saturates the device, bounds activations."""
    rows: int
    """Most contexts."""


@dataclass(frozen=True)
class Step:
    """The tokens of a request in one pass."""

    request: Request
    tokens: list[int]

    @property
    def asks(self) -> bool:
        """Whether it wants logits: at the end of its prompt, or while it decodes."""
        request = self.request
        ends = request.forwarded + len(self.tokens) >= request.prompt
        return ends and bool(request.choices or request.decode)


@dataclass
class Outcome:
    """What a pass gave a step."""

    token: int = -1
    """The next one."""
    logits: tuple[float, ...] = ()
    """Of the request's choices."""
    log_mass: float = 0.0
    valid: bool = True
    """Whether the logits are numbers."""
    attention: Any = None
    """(tokens that recorded, spans), or None."""


class Scheduler:
    """The requests of all contexts of one model, and the pages that these hold."""

    def __init__(self, pages: Pages, limits: Limits, retained_tokens: int = 0) -> None:
        """retained_tokens: most tokens of closed contexts whose keys and values are kept for others."""
        self.pages, self.limits = pages, limits
        self.share_prefixes = True
        """Whether a context reuses the prefix that another context has forwarded."""
        self.prefixes = PrefixIndex(retained_tokens)
        self.requests: list[Request] = []

    def allocate(self, tokens: int) -> Reservation | None:
        """A free range; evicts closed contexts where there is none."""
        while (free := self.pages.reserve(tokens)) is None:
            evicted = self.prefixes.evict()
            if evicted is None:
                return None
            self.pages.release(evicted.range)
        return free

    def free(self, slot: Slot, *, retain: bool) -> None:
        """Give back a context's pages; retain: keep its tokens for others until the memory is needed."""
        if retain and self.share_prefixes and slot.blocks:
            self._free_tail(slot)
            freed = self.prefixes.retain(slot)
        else:
            self.prefixes.drop(slot)
            freed = [slot]
        for freed_slot in freed:
            self.pages.release(freed_slot.range)

    def forget(self) -> None:
        """Drop the keys and values that closed contexts left for others."""
        while (slot := self.prefixes.evict()) is not None:
            self.pages.release(slot.range)

    def add(self, request: Request) -> None:
        """Take a request up."""
        if self.share_prefixes and not request.slot.length:
            request.blocks = block_hashes(request.tokens)
        self.requests.append(request)

    def next(self) -> list[Step]:
        """The next batch: decoding rows first, then the prompts of which least is left.

        So a short prompt does not wait for a long one, and what has begun ends before another of its length
        begins: few contexts hold keys and values at a time. A prompt that is passed over comes nearer each
        time, so that no stream of short ones holds up a long one for ever.
        """
        left, steps = self.limits.tokens, list[Step]()
        decoding = [request for request in self.requests if request.decodes]
        prompts = [request for request in self.requests if not request.decodes]
        nearer = -(-self.limits.tokens // AGEING)
        prompts.sort(key=lambda request: request.prompt - request.forwarded - nearer * request.passed_over)
        under_way = {block for request in prompts if request.forwarded for block in request.blocks}
        for request in [*decoding, *prompts]:
            if left <= 0 or len(steps) == self.limits.rows:
                break
            if request.blocks and not request.forwarded:
                if self._waits_for(request, under_way):
                    continue
                self._reuse_prefix(request)
                under_way.update(request.blocks)
            steps.append(Step(request, request.following(left)))
            left -= len(steps[-1].tokens)
        # Decoding rows that found no place come first the next time.
        chosen = {id(step.request) for step in steps}
        waiting = [request for request in self.requests if id(request) not in chosen]
        for request in waiting:
            request.passed_over += 1
        self.requests = waiting + [step.request for step in steps]
        return steps

    def advance(self, step: Step, outcome: Outcome) -> bool:
        """Take in what a pass gave; whether the request is finished."""
        request, slot = step.request, step.request.slot
        if outcome.attention is not None:
            request.attention.append(outcome.attention)
        request.forwarded += len(step.tokens)
        slot.tokens += step.tokens
        if not request.decodes or not outcome.valid:
            return not outcome.valid
        if request.suffix:
            del slot.tokens[-len(request.suffix) :]
        if self.share_prefixes and not request.answer:
            self.prefixes.add(slot)
        if not request.decode:
            return True
        if outcome.token in request.stops:
            request.finish = "stop"
            return True
        request.answer.append(outcome.token)
        if len(request.answer) == request.decode:
            return True
        if slot.length + 1 >= request.limit:
            request.finish = "window"
            return True
        return False  # the token is forwarded in the next batch

    def _free_tail(self, slot: Slot) -> None:
        """Free the pages of a context after its last token."""
        kept = -(-slot.length // PAGE) * PAGE
        if kept < slot.range.tokens:
            self.pages.release(Reservation(slot.range.start + kept, slot.range.tokens - kept))
            slot.range = Reservation(slot.range.start, kept)

    def _waits_for(self, request: Request, under_way: set[int]) -> bool:
        """Whether other requests are forwarding a longer prefix of it than it could reuse now."""
        coming = next((at for at, b in enumerate(request.blocks) if b not in under_way), len(request.blocks))
        if coming * BLOCK < WORTH_WAITING:
            return False
        _, cached = self.prefixes.longest(request.tokens, request.blocks, request.shareable)
        return min(coming * BLOCK, request.shareable) >= cached + WORTH_WAITING

    def _reuse_prefix(self, request: Request) -> None:
        """Copy the keys and values of the longest prefix that another context holds."""
        holder, shared = self.prefixes.longest(request.tokens, request.blocks, request.shareable)
        if holder is None:
            return
        self.pages.copy(holder.range.start, request.slot.range.start, shared)
        request.slot.tokens = list(request.tokens[:shared])
        request.forwarded = request.reused = shared
