"""Who is charged for time in which the event loop stood still: no call."""

from __future__ import annotations

import asyncio
import time

from bench.run.time_limit import TimeLimit


def test_a_call_is_not_charged_for_time_in_which_the_event_loop_stood_still() -> None:
    async def waiting() -> str:
        await asyncio.sleep(0.05)
        return "done"

    async def beside() -> str:
        limit = TimeLimit(0.4)
        async with limit.watching():
            asyncio.get_running_loop().call_soon(time.sleep, 1.0)
            return await limit.run(waiting(), "answer")

    assert asyncio.run(beside()) == "done"
