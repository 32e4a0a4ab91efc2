"""Continuous batching: requests of many contexts share each forward pass.

The scheduler chooses what goes into a pass, the runner forwards it; here is the event loop between them, and
what happens when a pass fails. A row depends on its neighbours only in the rounding of sums.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from bench.engine.kv_cache import Reservation
from bench.engine.plain import PlainRunner
from bench.engine.prefixes import Slot
from bench.engine.runner import Runner
from bench.engine.scheduler import Limits, Request, RequestResult, Scheduler, Step
from bench.errors import InvalidLogitsError

log = logging.getLogger(__name__)

GATHER_TURNS = 8
"""Turns of the event loop that a batch waits, so that questions that just resumed can join it."""


class Engine:
    """Serves the requests of all contexts of one model; used from one event loop at a time."""

    def __init__(self, name: str, runner: Runner | PlainRunner, scheduler: Scheduler) -> None:
        """Both made by :func:`bench.engine.setup.build_engine`, over one KV cache."""
        self.name, self.runner, self.scheduler = name, runner, scheduler
        self._limits = scheduler.limits
        self._waiting: deque[tuple[int, asyncio.Future[Reservation]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    async def reserve(self, tokens: int) -> Slot:
        """A slot for a context of at most ``tokens`` positions, no more than the KV cache has.

        Waits first come, first served.
        """
        self._attach()
        if not self._waiting:
            free = self.scheduler.allocate(tokens)
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

        retain: cache its tokens for contexts with the same prefix until the memory is needed. Requests that
        still run are cancelled, or they would write into whatever gets the memory next.
        """
        running = [one for one in self.scheduler.requests if one.slot is slot and one.future.cancel()]
        self.scheduler.free(slot, retain=retain and not running)
        while self._waiting:
            tokens, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            free = self.scheduler.allocate(tokens)
            if free is None:
                break
            self._waiting.popleft()
            future.set_result(free)

    def rewind(self, slot: Slot, length: int) -> None:
        """Drop a context's tokens after its first ``length``."""
        self.scheduler.prefixes.cut(slot, min(length, slot.length))

    async def run(self, request: Request) -> RequestResult:
        """Serve a request together with all others.

        Raises InvalidLogitsError, or the error of a forward of this request alone.
        """
        if not request.prompt:
            raise ValueError("a request needs tokens to forward")
        self._attach()
        request.future = asyncio.get_running_loop().create_future()
        self.scheduler.add(request)
        self._schedule()
        return await request.future

    def _attach(self) -> None:
        """Attach to the running event loop; discard requests of an earlier, closed loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._scheduled = loop, False
            self.scheduler.requests.clear()
            self._waiting.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wait, GATHER_TURNS)

    def _wait(self, turns: int) -> None:
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._wait, turns - 1)
            return
        self._scheduled = False
        self._drop_finished()  # some were cancelled
        if self.scheduler.requests:
            self._step()
            self._drop_finished()
        if self.scheduler.requests:
            self._schedule()

    def _drop_finished(self) -> None:
        requests = self.scheduler.requests
        self.scheduler.requests = [request for request in requests if not request.future.done()]

    def _step(self) -> None:
        """One forward pass; out of memory, retry a smaller one; on any other error, retry each row alone."""
        try:
            steps = self.scheduler.next()
        except Exception as error:  # a fault of the scheduler itself: nobody waits for ever
            for request in self.scheduler.requests:
                self._fail(request, error)
            return
        try:
            self._forward(steps)
        except Exception as error:
            if _is_out_of_memory(error):
                self._shrink(steps, error)
            elif len(steps) == 1:
                self._fail(steps[0].request, error)
            else:
                log.debug("a forward of %d rows failed; trying each alone", len(steps), exc_info=True)
                for step in steps:
                    try:
                        self._forward([step])
                    except Exception as alone:
                        self._fail(step.request, alone)

    def _forward(self, steps: Sequence[Step]) -> None:
        """Forward the steps and hand out the results."""
        for step, outcome in zip(steps, self.runner.forward(steps), strict=True):
            finished = self.scheduler.advance(step, outcome)
            if not outcome.valid:
                dtype = self.runner.model.dtype
                error = f"{self.name}: the logits are not numbers (dtype {dtype}), so there is no answer; "
                error += "try --dtype float32, and check the weights."
                self._fail(step.request, InvalidLogitsError(error))
            elif finished and not step.request.future.done():
                step.request.future.set_result(_result(step.request, outcome.logits, outcome.log_mass))

    def _fail(self, request: Request, error: Exception) -> None:
        self.scheduler.prefixes.drop(request.slot)
        if not request.future.done():
            request.future.set_exception(error)

    def _shrink(self, steps: Sequence[Step], error: Exception) -> None:
        """Reduce the batch size after running out of memory; only a request that does not fit alone fails."""
        tokens = sum(len(step.tokens) for step in steps)
        if tokens == 1:
            self._fail(steps[0].request, error)
            self.scheduler.limits = self._limits  # what was too large is gone
            return
        limits = self.scheduler.limits = Limits(max(1, tokens // 2), max(1, len(steps) // 2))
        log.warning(
            "%s: out of memory with %d tokens of %d questions in one pass; continuing with at most %d of %d",
            self.name,
            tokens,
            len(steps),
            limits.tokens,
            limits.rows,
        )
        if self.runner.model.device.type == "cuda":
            torch.cuda.empty_cache()


def _result(request: Request, logits: tuple[float, ...], log_mass: float) -> RequestResult:
    attention = (
        torch.cat(request.attention).cpu().numpy()
        if request.attention
        else np.zeros((0, len(request.watched)), np.float32)
    )
    return RequestResult(logits, log_mass, tuple(request.answer), request.finish, attention, request.reused)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
