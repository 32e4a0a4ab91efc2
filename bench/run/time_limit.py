"""A time limit for one call of a method, so that a method that waits forever costs one question, not the run.

A call that takes too long is cancelled. Time in which the event loop is blocked counts for no call, so none
fails because of another; and a call that computes forever without awaiting is not ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
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
                raise TimeLimitError(f"no {what} within {self.seconds:g} s") from None
            raise
        finally:
            self._started.pop(task, None)
            self._expired.discard(task)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """The limit is enforced inside the block."""
        if self.seconds is None:
            yield
            return
        self._looked = time.monotonic()
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticker.cancel()

    async def _tick(self) -> None:
        assert self.seconds is not None
        while True:
            await asyncio.sleep(self._turn_s)
            now = time.monotonic()
            self._clock += min(now - self._looked, 2 * self._turn_s)
            self._looked = now
            for task, started in self._started.items():
                if self._clock - started > self.seconds:
                    self._expired.add(task)
                    task.cancel()


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
