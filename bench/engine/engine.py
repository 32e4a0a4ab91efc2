"""Continuous batching: every tick packs what all contexts wait for into one forward pass.

A context asks for one thing at a time (a :class:`Job`): forward some tokens and keep them, forward a
suffix, read logits there, take the suffix back, or go on decoding. Jobs of many contexts share each
forward; a job that is done makes room at once. Long prompts are forwarded in pieces, so that one does
not hold up the others. Nothing about a row depends on its neighbours but the rounding of sums.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.engine.arena import KeyValueArena, Reservation
from bench.models.api import InvalidLogitsError, Sampling

log = logging.getLogger(__name__)

GATHER_TURNS = 8
"""Turns of the event loop that a tick waits, so that questions which just resumed can join it."""


@dataclass
class Slot:
    """A context's place in the arena."""

    range: Reservation
    length: int = 0
    """Tokens forwarded and kept."""


@dataclass
class Job:
    """What one context waits for."""

    slot: Slot
    tokens: Sequence[int]
    """Forwarded and kept."""
    suffix: Sequence[int] = ()
    """Forwarded after them and rolled back once the logits are read."""
    choices: Sequence[int] = ()
    """Token ids whose logits are wanted at the last position."""
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

    forwarded: int = field(default=0, init=False)
    answer: list[int] = field(default_factory=list, init=False)
    finish: Literal["stop", "length", "window"] = field(default="length", init=False)
    attention: list[Any] = field(default_factory=list, init=False)
    """One array (new tokens, spans) per forward that recorded any, on the model's device."""
    attention_start: int | None = field(default=None, init=False)
    future: asyncio.Future[JobResult] = field(init=False)

    @property
    def reads(self) -> bool:
        """Whether it wants logits at the end of its prompt."""
        return bool(self.choices or self.decode)

    @property
    def prompt(self) -> int:
        """Tokens to forward before the first logits."""
        return len(self.tokens) + len(self.suffix)


@dataclass(frozen=True)
class JobResult:
    """What a job came to."""

    logits: tuple[float, ...]
    """Of ``choices``, fp32."""
    log_mass: float
    """Log of the sum of exp over all logits at that position."""
    answer: tuple[int, ...]
    finish: Literal["stop", "length", "window"]
    attention: Any
    """(tokens, spans): mean over heads and layers, fp32 numpy, for positions from ``attention_start``."""
    attention_start: int


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
    """Serves the jobs of all contexts of one model; used from one event loop at a time."""

    def __init__(self, name: str, model: Any, arena: KeyValueArena, limits: Limits) -> None:
        """model: a transformers causal model set up by :func:`bench.engine.serving.prepare`."""
        self.name, self.model, self.arena, self.limits = name, model, arena, limits
        self.varlen = _varlen_serves(model)
        self.ticks = 0
        """Forward passes so far."""
        self.tokens = 0
        """New tokens forwarded so far."""
        self._jobs: list[Job] = []
        self._waiting: deque[tuple[int, asyncio.Future[Reservation]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    async def reserve(self, tokens: int) -> Slot:
        """A place for a context of at most ``tokens`` positions; waits for one in order of asking.

        Raises ValueError if the arena could never hold it.
        """
        if tokens > self.arena.tokens:
            raise ValueError(f"a context of {tokens} tokens does not fit the arena of {self.arena.tokens}")
        self._attach()
        if not self._waiting:
            found = self.arena.reserve(tokens)
            if found is not None:
                return Slot(found)
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, future))
        try:
            return Slot(await future)
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(Slot(future.result()))
            raise

    def release(self, slot: Slot) -> None:
        """Give a context's place back, and let those who wait have it."""
        self.arena.release(slot.range)
        while self._waiting:
            tokens, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            found = self.arena.reserve(tokens)
            if found is None:
                break
            self._waiting.popleft()
            future.set_result(found)

    async def run(self, job: Job) -> JobResult:
        """Serve a job among all others; raises InvalidLogitsError, or what a forward of it alone raised."""
        if not job.prompt:
            raise ValueError("a job needs tokens to forward")
        self._attach()
        job.future = asyncio.get_running_loop().create_future()
        self._jobs.append(job)
        self._schedule()
        return await job.future

    def _attach(self) -> None:
        """Belong to the running event loop; what an earlier, closed loop left behind is dropped."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._scheduled = loop, False
            self._jobs.clear()
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
        self._jobs = [job for job in self._jobs if not job.future.done()]  # cancelled ones are gone
        if self._jobs:
            self._tick()
        if self._jobs:
            self._schedule()

    def _tick(self) -> None:
        """One forward pass; on lack of memory a smaller one, on any other fault each row by itself."""
        batch = self._choose()
        try:
            self._forward(batch)
        except Exception as error:
            if _is_out_of_memory(error):
                self._shrink(batch, error)
            elif len(batch) == 1:
                self._fail(batch[0][0], error)
            else:
                log.debug("a forward of %d rows failed; trying each alone", len(batch), exc_info=True)
                for one in batch:
                    try:
                        self._forward([one])
                    except Exception as alone:
                        self._fail(one[0], alone)
        self._jobs = [job for job in self._jobs if not job.future.done()]

    def _choose(self) -> list[tuple[Job, list[int]]]:
        """Who goes next, with the tokens each forwards: decoding rows first, then prompts in order."""
        left, batch = self.limits.tokens, list[tuple[Job, list[int]]]()
        decoding = [job for job in self._jobs if job.forwarded >= job.prompt]
        prompts = [job for job in self._jobs if job.forwarded < job.prompt]
        for job in [*decoding, *prompts]:
            if left <= 0 or len(batch) == self.limits.rows:
                break
            if job.forwarded >= job.prompt:
                tokens = job.answer[-1:]
            else:
                whole = [*job.tokens, *job.suffix]
                tokens = whole[job.forwarded : job.forwarded + left]
            left -= len(tokens)
            batch.append((job, tokens))
        # Served in order of arrival next time, so that long prompts do not starve behind decoding rows.
        chosen = {id(job) for job, _ in batch}
        self._jobs = [j for j in self._jobs if id(j) not in chosen] + [job for job, _ in batch]
        return batch

    def _forward(self, batch: Sequence[tuple[Job, list[int]]]) -> None:
        """Forward the batch and hand out what it gives; changes no job unless the forward succeeds."""
        import torch

        from bench.engine.attention import Row, Tick, Watch, serving
        from bench.engine.placement import index_device

        device = self.model.device
        rows, first = [], 0
        for job, tokens in batch:
            cached = job.slot.length
            row = Row(first, len(tokens), cached, job.slot.range.start)
            begin = max(0, job.watch_from - cached)
            if job.watched and begin < len(tokens):
                row.watch = Watch(job.watched, slice(begin, len(tokens)))
            rows.append(row)
            first += len(tokens)
        ending = [job.forwarded + len(tokens) >= job.prompt for job, tokens in batch]
        asking = [at for at, (job, _) in enumerate(batch) if ending[at] and job.reads]
        last = [rows[at].first + rows[at].new - 1 for at in asking]
        with torch.inference_mode():
            tick = Tick(rows, self.arena, device, varlen=self.varlen)
            ids = torch.tensor([[token for _, tokens in batch for token in tokens]], device=device)
            with serving(tick, self.model):
                out = self.model(
                    input_ids=ids,
                    position_ids=tick.positions[None],
                    use_cache=False,
                    logits_to_keep=torch.tensor(last, dtype=torch.long, device=index_device(self.model)),
                )
            logits = out.logits[0].float()
            # Three small transfers for the whole tick, however many rows it has.
            sane = (~(torch.isnan(logits) | torch.isposinf(logits)).any(-1)).tolist()
            chosen_tokens = logits.argmax(-1).tolist()
            for i, at in enumerate(asking):
                job = batch[at][0]
                if job.sampling is not None and sane[i]:
                    chosen_tokens[i] = _drawn(logits[i], job.sampling, len(job.answer))
            wanted = [(i, c) for i, at in enumerate(asking) for c in batch[at][0].choices]
            chosen: Iterator[float] = iter(())
            masses: list[float] = []
            if wanted:
                picked = logits[[i for i, _ in wanted], [c for _, c in wanted]]
                chosen = iter(picked.tolist())
                masses = torch.logsumexp(logits.double(), -1).tolist()
        self.ticks += 1
        self.tokens += first
        answers = {at: i for i, at in enumerate(asking)}
        for at, (job, tokens) in enumerate(batch):
            watch = rows[at].watch
            if watch is not None:
                if job.attention_start is None:
                    job.attention_start = rows[at].cached + watch.rows.indices(len(tokens))[0]
                job.attention.append(watch.total / tick_layers(self.model))
            job.forwarded += len(tokens)
            job.slot.length += len(tokens)
            if at not in answers:
                if ending[at]:
                    self._advance(job, -1, (), 0.0)
                continue
            i = answers[at]
            values = tuple(next(chosen) for _ in job.choices)
            if not sane[i]:
                self._fail(job, _invalid(self.name, self.model.dtype))
                continue
            self._advance(job, chosen_tokens[i], values, masses[i] if masses else 0.0)

    def _advance(self, job: Job, token: int, values: tuple[float, ...], log_mass: float) -> None:
        """Logits of a job were read: finish it, or decode one more token."""
        if job.suffix:
            job.slot.length -= len(job.suffix)
        if job.decode:
            if token in job.stops:
                job.finish = "stop"
            else:
                job.answer.append(token)
                if len(job.answer) < job.decode:
                    if job.slot.length + 1 < job.limit:
                        return  # the token is forwarded in the next tick
                    job.finish = "window"
        if not job.future.done():
            job.future.set_result(_result(job, values, log_mass))

    def _fail(self, job: Job, error: Exception) -> None:
        if not job.future.done():
            job.future.set_exception(error)

    def _shrink(self, batch: Sequence[tuple[Job, list[int]]], error: Exception) -> None:
        """Make ticks smaller after a lack of memory; only a job that does not fit alone fails."""
        import torch

        tokens = sum(len(tokens) for _, tokens in batch)
        if tokens == 1:
            self._fail(batch[0][0], error)
            return
        self.limits = Limits(tokens, len(batch)).halved()
        log.warning(
            "%s: out of memory with %d tokens of %d questions in one pass; going on with at most %d of %d",
            self.name,
            tokens,
            len(batch),
            self.limits.tokens,
            self.limits.rows,
        )
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()


@contextmanager
def slot_of(engine: Engine, slot: Slot) -> Iterator[Slot]:
    """A slot that is released at the end of the block."""
    try:
        yield slot
    finally:
        engine.release(slot)


def tick_layers(model: Any) -> int:
    """Number of layers over which attention is averaged."""
    return int(model.config.num_hidden_layers)


def _result(job: Job, values: tuple[float, ...], log_mass: float) -> JobResult:
    import numpy as np
    import torch

    attention = (
        torch.cat(job.attention).cpu().numpy()
        if job.attention
        else np.zeros((0, len(job.watched)), np.float32)
    )
    start = job.attention_start if job.attention_start is not None else job.slot.length
    return JobResult(values, log_mass, tuple(job.answer), job.finish, attention, start)


def _drawn(logits: Any, sampling: Sampling, position: int) -> int:
    """A token drawn from softmax(logits / temperature), shape (vocabulary,), by inverting its cumulation.

    The number that decides is the seed's alone, so that what shares the pass has no part in the draw.
    """
    import torch

    reached = torch.cumsum(torch.softmax(logits.double() / sampling.temperature, -1), -1)
    found = torch.searchsorted(reached, sampling.uniform(position) * reached[-1:], right=True)
    return min(int(found), len(logits) - 1)


def _invalid(name: str, dtype: Any) -> InvalidLogitsError:
    return InvalidLogitsError(
        f"{name}: the logits are not numbers (dtype {dtype}). Nothing can be answered from them; "
        "try --dtype float32, and check the weights."
    )


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _varlen_serves(model: Any) -> bool:
    """Whether torch's variable-length attention runs this model: CUDA, half precision."""
    import torch

    return model.device.type == "cuda" and model.dtype in (torch.bfloat16, torch.float16)
