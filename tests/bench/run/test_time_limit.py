"""Who is charged for time in which the event loop stood still: the call that made it, and no neighbour."""

from __future__ import annotations

import asyncio
import time

import pytest

from bench.run.time_limit import TimeLimit, TimeLimitError

LIMIT_S = 0.4  # looked at every 0.1 s


async def computing(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)
    return "done"


def test_a_neighbour_of_a_call_that_was_ended_is_not_charged_for_it() -> None:
    async def both() -> list[str | BaseException]:
        limit = TimeLimit(LIMIT_S)
        async with limit.watching():
            calls = [limit.run(computing(s), "answer") for s in (10.0, 0.17)]
            return await asyncio.gather(*calls, return_exceptions=True)

    hog, neighbour = asyncio.run(both())
    assert isinstance(hog, TimeLimitError)
    assert neighbour == "done"


@pytest.mark.parametrize("kind", ["engine", "callback"])
def test_a_call_is_not_charged_for_the_engine_or_the_event_loop_itself(kind: str) -> None:
    async def beside() -> str:
        limit = TimeLimit(LIMIT_S)
        async with limit.watching():
            if kind == "callback":
                asyncio.get_running_loop().call_soon(time.sleep, 1.0)
                return await limit.run(computing(0.17), "answer")
            engine = asyncio.create_task(computing(1.0))
            done = await limit.run(computing(0.17), "answer")
            await engine
            return done

    assert asyncio.run(beside()) == "done"
