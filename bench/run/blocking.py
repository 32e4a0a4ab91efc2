"""Blocking code where an event loop may run already, as it does in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_blocking(work: Callable[[], T]) -> T:
    """The result of ``work``, which runs an event loop of its own; in another thread where one runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, "bench") as thread:
        return thread.submit(work).result()
