"""A time limit for one call of a method, so that a method that hangs costs one question, not the run.

Two kinds of hanging are ended: a call that awaits something that never comes is cancelled, and a call that
computes forever without awaiting is interrupted by a timer signal. Time in which the event loop is blocked
counts only for the call that blocks it, so no call fails because of another. Native code that never returns
cannot be ended from within the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from bench.errors import QuestionError

T = TypeVar("T")

TURN_S = 1.0
"""Seconds between checks, at most; a limit is exceeded by about twice this."""


class TimeLimitError(QuestionError):
    """A call of a method that exceeded its time limit."""


class TimeLimit:
    """Maximum seconds for one call; None: unlimited."""

    def __init__(self, seconds: float | None) -> None:
        """seconds: counted while the event loop runs, that is, while the call can make progress."""
        self.seconds = seconds
        self._turn_s = TURN_S if seconds is None else min(TURN_S, seconds / 4)
        self._clock = 0.0
        self._looked = time.monotonic()
        self._alarms = 0  # of the running task since the event loop last turned; a stopped process gets none
        self._running: asyncio.Task[Any] | None = None
        self._started: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T], what: str) -> T:
        """The call's result; raises TimeLimitError ("no ``what`` within ...") if it takes too long.

        ``SystemExit`` and self-cancellation become QuestionError; interrupts from outside propagate.
        """
        if self.seconds is None:
            return await _contained(call)
        task = asyncio.create_task(_contained(call))
        self._started[task] = self._clock
        try:
            return await task
        except asyncio.CancelledError:
            if task in self._expired and not _being_cancelled():
                raise self._error(what) from None
            raise
        except _TooLong:
            raise self._error(what) from None
        finally:
            self._started.pop(task, None)
            self._expired.discard(task)

    def holds(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task is a call under this limit."""
        return task in self._started

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """The limit is enforced inside the block."""
        if self.seconds is None:
            yield
            return
        self._looked, self._alarms = time.monotonic(), 0
        ticker = asyncio.create_task(self._tick())
        try:
            with self._alarm():
                yield
        finally:
            ticker.cancel()

    async def _tick(self) -> None:
        assert self.seconds is not None
        while True:
            await asyncio.sleep(self._turn_s)
            now = time.monotonic()
            self._clock += min(now - self._looked, 2 * self._turn_s)
            self._looked, self._alarms = now, 0
            for task, started in self._started.items():
                if self._clock - started > self.seconds:
                    self._expired.add(task)
                    task.cancel()

    @contextlib.contextmanager
    def _alarm(self) -> Iterator[None]:
        """The timer that ends a call which blocks the event loop; in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._check_running_call)
        signal.setitimer(signal.ITIMER_REAL, self._turn_s, self._turn_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _check_running_call(self, number: int, frame: FrameType | None) -> None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # the event loop is gone
            return
        if task is not self._running:
            self._running, self._alarms = task, 0
        self._alarms += 1
        if task is None or task not in self._started or self.seconds is None:
            return  # the engine or the runner is working
        blocked_s = self._alarms * self._turn_s
        if self._clock - self._started[task] + blocked_s > self.seconds + 2 * self._turn_s:
            raise _TooLong

    def _error(self, what: str) -> TimeLimitError:
        return TimeLimitError(f"no {what} within {self.seconds:g} s")


class _TooLong(BaseException):
    """Raised inside a call whose time is up; not an Exception, which the call might catch."""


async def _contained(call: Coroutine[Any, Any, T]) -> T:
    try:
        return await call
    except SystemExit as error:
        raise QuestionError(f"the method tried to end the program (exit code {error.code})") from error
    except asyncio.CancelledError:
        if _being_cancelled():
            raise
        raise QuestionError("the method cancelled its own work") from None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
