"""Continuous batching: each batch packs the requests of all contexts into one forward pass.

A context submits one :class:`Request` at a time: forward some tokens and keep them, forward a suffix, read
logits there, roll the suffix back, or continue decoding. Requests of many contexts share each forward; a
finished request makes room at once. Long prompts are forwarded in pieces, so that one does not hold up the
others. A row depends on its neighbours only in the rounding of sums.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.engine.heads import Heads
from bench.engine.kv_cache import PAGE, KVCache, Reservation
from bench.engine.output_head import OutputHead
from bench.engine.prefixes import BLOCK, WORTH_WAITING, PrefixIndex, Slot, block_hashes
from bench.engine.sampling import Sampling
from bench.errors import InvalidLogitsError

log = logging.getLogger(__name__)

GATHER_TURNS = 8
"""Turns of the event loop that a batch waits, so that questions that just resumed can join it."""


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
    blocks: list[int] = field(default_factory=list, init=False)
    """Hashes of the blocks that the tokens begin with; only of a request that begins a context."""
    answer: list[int] = field(default_factory=list, init=False)
    finish: Literal["stop", "length", "window"] = field(default="length", init=False)
    attention: list[Any] = field(default_factory=list, init=False)
    """One array (new tokens, spans) per forward that recorded any, on the model's device."""
    attention_start: int | None = field(default=None, init=False)
    future: asyncio.Future[RequestResult] = field(init=False)

    @property
    def shareable(self) -> int:
        """Most tokens that may be reused: the last token is forwarded, and so are tokens that record."""
        most = len(self.tokens) - (0 if self.suffix else 1)
        return min(most, self.watch_from) if self.watched else most

    @property
    def reads(self) -> bool:
        """Whether it wants logits at the end of its prompt."""
        return bool(self.choices or self.decode)

    @property
    def prompt(self) -> int:
        """Tokens to forward before the first logits."""
        return len(self.tokens) + len(self.suffix)


@dataclass(frozen=True)
class RequestResult:
    """The outcome of a request."""

    logits: tuple[float, ...]
    """Of ``choices``, fp32."""
    log_mass: float
    """Log of the sum of exp over all logits at that position."""
    answer: tuple[int, ...]
    finish: Literal["stop", "length", "window"]
    attention: Any
    """(tokens, spans): mean over the heads that count, fp32 numpy, for positions from ``attention_start``."""
    attention_start: int
    reused: int = 0
    """Tokens whose keys and values were reused from another context."""


@dataclass(frozen=True)
class Limits:
    """How much goes into one forward pass."""

    tokens: int
    """Most new tokens; saturates the device, bounds activations."""
    rows: int
    """Most contexts."""

    def halved(self) -> Limits:
        """Half of both, at least 1."""
        return Limits(max(1, self.tokens // 2), max(1, self.rows // 2))


class Engine:
    """Serves the requests of all contexts of one model; used from one event loop at a time."""

    def __init__(
        self, name: str, model: Any, kv_cache: KVCache, limits: Limits, retained_tokens: int = 0
    ) -> None:
        """model: a transformers causal model set up by :func:`bench.engine.setup.build_engine`.

        retained_tokens: most tokens of closed contexts whose keys and values are kept for others.
        """
        self.name, self.model, self.kv_cache, self.limits = name, model, kv_cache, limits
        self.share_prefixes = True
        """Whether a context reuses the prefix that another context has forwarded."""
        self.prefixes = PrefixIndex(retained_tokens)
        self.head: OutputHead | None = None
        """Reads the logits of choices; None: they are read as the model gives them."""
        self.varlen = varlen_serves(model)
        self.passes = 0
        """Forward passes so far."""
        self.tokens = 0
        """New tokens forwarded so far."""
        self._requests: list[Request] = []
        self._waiting: deque[tuple[int, asyncio.Future[Reservation]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    async def reserve(self, tokens: int) -> Slot:
        """A slot for a context of at most ``tokens`` positions; waits first come, first served.

        Raises ValueError if the KV cache could never hold it.
        """
        if tokens > self.kv_cache.tokens:
            raise ValueError(
                f"a context of {tokens} tokens does not fit the KV cache of {self.kv_cache.tokens}"
            )
        self._attach()
        if not self._waiting:
            free = self._allocate(tokens)
            if free is not None:
                return Slot(free)
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, future))
        try:
            return Slot(await future)
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(Slot(future.result()))
            raise

    def release(self, slot: Slot, *, retain: bool = False) -> None:
        """Free a context's slot and serve the contexts that wait for one.

        retain: cache its tokens for contexts with the same prefix until the memory is needed.
        """
        if retain and self.share_prefixes and slot.blocks:
            self._free_tail(slot)
            freed = self.prefixes.retain(slot)
        else:
            self.prefixes.drop(slot)
            freed = [slot]
        for freed_slot in freed:
            self.kv_cache.release(freed_slot.range)
        while self._waiting:
            tokens, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            free = self._allocate(tokens)
            if free is None:
                break
            self._waiting.popleft()
            future.set_result(free)

    def rewind(self, slot: Slot, length: int) -> None:
        """Drop a context's tokens after its first ``length``."""
        self.prefixes.cut(slot, min(length, slot.length))

    def _allocate(self, tokens: int) -> Reservation | None:
        """A free range; evicts closed contexts where there is none."""
        while (free := self.kv_cache.reserve(tokens)) is None:
            evicted = self.prefixes.evict()
            if evicted is None:
                return None
            self.kv_cache.release(evicted.range)
        return free

    def _free_tail(self, slot: Slot) -> None:
        """Free the pages of a context after its last token."""
        kept = -(-slot.length // PAGE) * PAGE
        if kept < slot.range.tokens:
            self.kv_cache.release(Reservation(slot.range.start + kept, slot.range.tokens - kept))
            slot.range = Reservation(slot.range.start, kept)

    async def run(self, request: Request) -> RequestResult:
        """Serve a request together with all others.

        Raises InvalidLogitsError, or the error of a forward of this request alone.
        """
        if not request.prompt:
            raise ValueError("a request needs tokens to forward")
        self._attach()
        request.future = asyncio.get_running_loop().create_future()
        if self.share_prefixes and not request.slot.length:
            request.blocks = block_hashes(request.tokens)
        self._requests.append(request)
        self._schedule()
        return await request.future

    def _attach(self) -> None:
        """Attach to the running event loop; discard requests of an earlier, closed loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._scheduled = loop, False
            self._requests.clear()
            self._waiting.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wait, GATHER_TURNS)

    def _wait(self, turns: int) -> None:
        loop = asyncio.get_running_loop()
        if turns > 0:
            loop.call_soon(self._wait, turns - 1)
            return
        self._scheduled = False
        # Without the requests that were cancelled.
        self._requests = [request for request in self._requests if not request.future.done()]
        if self._requests:
            self._step()
        if self._requests:
            self._schedule()

    def _step(self) -> None:
        """One forward pass; out of memory, retry a smaller one; on any other error, retry each row alone."""
        try:
            scheduled = self._choose()
        except Exception as error:  # a fault of the scheduler itself: nobody waits for ever
            for request in self._requests:
                self._fail(request, error)
            self._requests.clear()
            return
        try:
            self._forward(scheduled)
        except Exception as error:
            if _is_out_of_memory(error):
                self._shrink(scheduled, error)
            elif len(scheduled) == 1:
                self._fail(scheduled[0][0], error)
            else:
                log.debug("a forward of %d rows failed; trying each alone", len(scheduled), exc_info=True)
                for request, tokens in scheduled:
                    try:
                        self._forward([(request, tokens)])
                    except Exception as alone:
                        self._fail(request, alone)
        self._requests = [request for request in self._requests if not request.future.done()]

    def _choose(self) -> list[tuple[Request, list[int]]]:
        """The next batch: requests with the tokens to forward, decoding rows first, then prompts in order."""
        left, scheduled = self.limits.tokens, list[tuple[Request, list[int]]]()
        decoding = [request for request in self._requests if request.forwarded >= request.prompt]
        prompts = [request for request in self._requests if request.forwarded < request.prompt]
        under_way = {block for request in prompts if request.forwarded for block in request.blocks}
        for request in [*decoding, *prompts]:
            if left <= 0 or len(scheduled) == self.limits.rows:
                break
            if request.blocks and not request.forwarded:
                if self._waits_for(request, under_way):
                    continue
                self._reuse_prefix(request)
                under_way.update(request.blocks)
            if request.forwarded >= request.prompt:
                tokens = request.answer[-1:]
            else:
                prompt = [*request.tokens, *request.suffix]
                tokens = prompt[request.forwarded : request.forwarded + left]
            left -= len(tokens)
            scheduled.append((request, tokens))
        # Served in order of arrival next time, so that long prompts do not starve behind decoding rows.
        chosen = {id(request) for request, _ in scheduled}
        waiting = [request for request in self._requests if id(request) not in chosen]
        self._requests = waiting + [request for request, _ in scheduled]
        return scheduled

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
        self.kv_cache.copy(holder.range.start, request.slot.range.start, shared)
        request.slot.tokens = list(request.tokens[:shared])
        request.forwarded = request.reused = shared

    def _forward(self, scheduled: Sequence[tuple[Request, list[int]]]) -> None:
        """Forward the scheduled requests and distribute the results; a failed forward changes no request."""
        import torch

        from bench.engine.attention import Batch, Row, Watch, serving
        from bench.engine.placement import index_device

        device = self.model.device
        rows, first = [], 0
        for request, tokens in scheduled:
            cached = request.slot.length
            row = Row(first, len(tokens), cached, request.slot.range.start)
            begin = max(0, request.watch_from - cached)
            if request.watched and begin < len(tokens):
                row.watch = Watch(request.watched, slice(begin, len(tokens)), request.heads)
            rows.append(row)
            first += len(tokens)
        ending = [request.forwarded + len(tokens) >= request.prompt for request, tokens in scheduled]
        asking = [at for at, (request, _) in enumerate(scheduled) if ending[at] and request.reads]
        last = [rows[at].first + rows[at].new - 1 for at in asking]
        with torch.inference_mode():
            batch = Batch(rows, self.kv_cache, device, varlen=self.varlen)
            ids = torch.tensor([[token for _, tokens in scheduled for token in tokens]], device=device)
            listening = nullcontext() if self.head is None else self.head.listening()
            with serving(batch, self.model), listening:
                out = self.model(
                    input_ids=ids,
                    position_ids=batch.positions[None],
                    use_cache=False,
                    logits_to_keep=torch.tensor(last, dtype=torch.long, device=index_device(self.model)),
                )
            logits = out.logits[0].float()
            # Three small transfers for the whole batch, however many rows it has.
            sane = (~(torch.isnan(logits) | torch.isposinf(logits)).any(-1)).tolist()
            chosen_tokens = logits.argmax(-1).tolist()
            for i, at in enumerate(asking):
                request = scheduled[at][0]
                if request.sampling is not None and sane[i]:
                    chosen_tokens[i] = _drawn(logits[i], request.sampling, len(request.answer))
            read = [(i, c) for i, at in enumerate(asking) for c in scheduled[at][0].choices]
            chosen: Iterator[float] = iter(())
            masses: list[float] = []
            if read:
                places = [i for i, _ in read], [c for _, c in read]
                if self.head is not None:
                    logits[places] = self.head.logits(*places).to(logits.device)
                picked = logits[places]
                chosen = iter(picked.tolist())
                masses = torch.logsumexp(logits.double(), -1).tolist()
        self.passes += 1
        self.tokens += first
        answers = {at: i for i, at in enumerate(asking)}
        for at, (request, tokens) in enumerate(scheduled):
            watch = rows[at].watch
            if watch is not None:
                if request.attention_start is None:
                    request.attention_start = rows[at].cached + watch.rows.indices(len(tokens))[0]
                request.attention.append(watch.total / layers_averaged(self.model, watch.heads))
            request.forwarded += len(tokens)
            request.slot.tokens += tokens
            if at not in answers:
                if ending[at]:
                    self._advance(request, -1, (), 0.0)
                continue
            i = answers[at]
            values = tuple(next(chosen) for _ in request.choices)
            if not sane[i]:
                self._fail(request, _invalid(self.name, self.model.dtype))
                continue
            self._advance(request, chosen_tokens[i], values, masses[i] if masses else 0.0)

    def _advance(self, request: Request, token: int, values: tuple[float, ...], log_mass: float) -> None:
        """Finish a request whose logits were read, or decode one more token."""
        if request.suffix:
            del request.slot.tokens[-len(request.suffix) :]
        if self.share_prefixes and not request.answer:
            self.prefixes.add(request.slot)
        if request.decode:
            if token in request.stops:
                request.finish = "stop"
            else:
                request.answer.append(token)
                if len(request.answer) < request.decode:
                    if request.slot.length + 1 < request.limit:
                        return  # the token is forwarded in the next batch
                    request.finish = "window"
        if not request.future.done():
            request.future.set_result(_result(request, values, log_mass))

    def _fail(self, request: Request, error: Exception) -> None:
        self.prefixes.drop(request.slot)
        if not request.future.done():
            request.future.set_exception(error)

    def forget(self) -> bool:
        """Drop the keys and values that closed contexts left for others; whether there were any."""
        forgotten = False
        while (slot := self.prefixes.evict()) is not None:
            self.kv_cache.release(slot.range)
            forgotten = True
        return forgotten

    def _shrink(self, scheduled: Sequence[tuple[Request, list[int]]], error: Exception) -> None:
        """Reduce the batch size after running out of memory; only a request that does not fit alone fails."""
        import torch

        if self.forget():
            return  # retry the same pass with the freed memory
        tokens = sum(len(tokens) for _, tokens in scheduled)
        if tokens == 1:
            self._fail(scheduled[0][0], error)
            return
        self.limits = Limits(tokens, len(scheduled)).halved()
        log.warning(
            "%s: out of memory with %d tokens of %d questions in one pass; continuing with at most %d of %d",
            self.name,
            tokens,
            len(scheduled),
            self.limits.tokens,
            self.limits.rows,
        )
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()


def layers_averaged(model: Any, heads: Heads | None) -> float:
    """Number of layers over which attention is averaged; of chosen heads, as many as they would fill."""
    if heads is not None:
        return len(heads) / int(model.config.num_attention_heads)
    return int(model.config.num_hidden_layers)


def _result(request: Request, values: tuple[float, ...], log_mass: float) -> RequestResult:
    import numpy as np
    import torch

    attention = (
        torch.cat(request.attention).cpu().numpy()
        if request.attention
        else np.zeros((0, len(request.watched)), np.float32)
    )
    start = request.attention_start if request.attention_start is not None else request.slot.length
    return RequestResult(
        values, log_mass, tuple(request.answer), request.finish, attention, start, request.reused
    )


def _drawn(logits: Any, sampling: Sampling, position: int) -> int:
    """A token drawn from softmax(logits / temperature), shape (vocabulary,), by inverting its cumulative sum.

    The deciding number depends on the seed and position alone, never on other rows of the pass.
    """
    import torch

    cumulative = torch.cumsum(torch.softmax(logits.double() / sampling.temperature, -1), -1)
    token = torch.searchsorted(cumulative, sampling.uniform(position) * cumulative[-1:], right=True)
    return min(int(token), len(logits) - 1)


def _invalid(name: str, dtype: Any) -> InvalidLogitsError:
    return InvalidLogitsError(
        f"{name}: the logits are not numbers (dtype {dtype}), so there is no answer; "
        "try --dtype float32, and check the weights."
    )


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def varlen_serves(model: Any) -> bool:
    """Whether torch's variable-length attention runs this model: CUDA, half precision, a torch with pages."""
    import torch

    if model.device.type != "cuda" or model.dtype not in (torch.bfloat16, torch.float16):
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    used = {"return_aux", "enable_gqa", "seqused_k", "block_table", "num_splits"}
    return used <= inspect.signature(varlen_attn).parameters.keys()
