"""A time limit for one call of a method: one that waits forever costs one question, not the run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from bench.errors import QuestionError

T = TypeVar("T")


class TimeLimitError(QuestionError):
    """A call of a method that exceeded its time limit."""


async def within(seconds: float | None, call: Coroutine[Any, Any, T], what: str) -> T:
    """The call's result; raises TimeLimitError ("no ``what`` within ...") if it takes too long.

    seconds: by the clock; None: unlimited. A call that never awaits is not ended. ``SystemExit`` and
    self-cancellation become QuestionError; interrupts from outside propagate.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeLimitError(f"no {what} within {seconds:g} s") from None
    except SystemExit as error:
        raise QuestionError(f"the method tried to end the program (exit code {error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            raise
        raise QuestionError("the method cancelled its own work") from None
