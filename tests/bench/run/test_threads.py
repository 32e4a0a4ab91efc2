"""One thread and as many processes as there are idle cores, unless something else pays or is asked for."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import ConfigError
from bench.run import threads
from bench.run.threads import ONE_COPY, WORTH_THREADS, Threads, processes


def machine(
    monkeypatch: pytest.MonkeyPatch,
    *,
    own: int = 8,
    all_: int = 8,
    load: float = 0.0,
    busy: float = 0.0,
    free: int = 64,
) -> None:
    """A machine with so many cores, of which ``busy`` are at work now, and gigabytes of free memory."""
    monkeypatch.delenv("BENCH_WORKERS")
    monkeypatch.setattr(threads, "cores", lambda: own)
    monkeypatch.setattr(os, "cpu_count", lambda: all_)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 100 * busy / all_)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free * 10**9))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, 8),
        ({"own": 2, "all_": 64, "load": 40, "busy": 40}, 2),  # a share of a large, busy machine
        ({"load": 5, "busy": 5}, 3),
        ({"load": 8, "busy": 0.3}, 8),  # what ran a minute ago is over
        ({"free": 3}, 3),
    ],
)
def test_a_process_for_each_idle_core_that_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], expected: int
) -> None:
    machine(monkeypatch, **state)
    assert processes() == expected


def test_a_large_reader_has_one_copy_unless_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert processes(ONE_COPY) == 1
    monkeypatch.setenv("BENCH_WORKERS", "3")
    assert processes(ONE_COPY) == 3
    monkeypatch.setenv("BENCH_WORKERS", "many")
    with pytest.raises(ConfigError, match="BENCH_WORKERS=many: expected a positive integer"):
        processes()


def test_what_a_first_beginning_set_is_no_wish_to_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads._POOLS:
        monkeypatch.delenv(name, raising=False)
    assert [Threads.begin().wanted for _ in range(2)] == [None, None]


def reader(parameters: int) -> Any:
    return SimpleNamespace(actual_device="cpu", architecture=SimpleNamespace(parameters=parameters))


@pytest.mark.parametrize(
    ("parameters", "alone", "load", "expected"),
    [
        (WORTH_THREADS - 1, True, 0, 1),
        (WORTH_THREADS, True, 0, 8),
        (WORTH_THREADS, True, 8, 1),
        (WORTH_THREADS, False, 0, 1),
    ],
)
def test_a_large_reader_that_is_alone_has_a_thread_for_each_idle_core(
    monkeypatch: pytest.MonkeyPatch, parameters: int, alone: bool, load: float, expected: int
) -> None:
    machine(monkeypatch, load=load, busy=load)
    models = [reader(100), reader(parameters)]
    assert Threads().choose(models, alone=alone) == expected
    assert Threads(5).choose(models, alone=alone) == 5
