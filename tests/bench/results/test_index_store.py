from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.flops.meter import Meter, Usage
from bench.results.index_store import IndexStore, index_key
from bench.schema import Index


def stored(tmp_path: Path) -> tuple[IndexStore, Index, Meter]:
    meter = Meter()
    meter.credit("m", "prefill", Usage(1, 2, 4, 1, 99))
    index = Index(
        {"spans": [[0, 1]], "text": "é\U0001f9c1"}, {"e": np.eye(2, dtype=np.float32), "n": np.zeros((0, 3))}
    )
    store = IndexStore(tmp_path)
    store.save("bm25", "k", index, meter)
    return store, index, meter


def test_an_index_comes_back_with_its_cost(tmp_path: Path) -> None:
    store, index, meter = stored(tmp_path)
    stored_index = store.load("bm25", "k")
    assert stored_index.index.data == index.data
    back, kept = ({n: a.tolist() for n, a in i.arrays.items()} for i in (stored_index.index, index))
    assert back == kept
    assert stored_index.meter.to_json() == meter.to_json()
    assert store.load("bm25", "other") is None


@pytest.mark.parametrize("name", ["index.json", "arrays.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_index_is_built_again(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, _, _ = stored(tmp_path)
    path = tmp_path / "bm25" / "k" / name
    body = path.read_bytes()
    if damage == "cut":
        path.write_bytes(body[: len(body) // 2])
    elif damage == "flip":
        path.write_bytes(body[:-3] + bytes([body[-3] ^ 0xFF]) + body[-2:])
    else:
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert store.load("bm25", "k") is None
    assert "damaged" in caplog.text
    assert not (tmp_path / "bm25" / "k").exists()


def test_saving_twice_keeps_one_and_leaves_no_drafts(tmp_path: Path) -> None:
    store, index, meter = stored(tmp_path)
    store.save("bm25", "k", index, meter)
    assert [p.name for p in (tmp_path / "bm25").iterdir()] == ["k"]


def test_the_key_depends_on_every_part() -> None:
    base = {"method": "a", "version": "1", "options": {"k": 1}}
    assert index_key(base) == index_key(dict(reversed(list(base.items()))))
    changes: list[dict[str, Any]] = [{}, {"version": "2"}, {"options": {"k": 2}}]
    assert len({index_key({**base, **change}) for change in changes}) == 3


def test_one_builds_an_index_and_the_other_goes_on_with_something_else(tmp_path: Path) -> None:
    """Each has a store of its own, as two processes have."""
    events: list[str] = []
    built = asyncio.Event()

    async def first() -> None:
        async with IndexStore(tmp_path).building("bm25", "k"):
            events.append("first builds")
            await built.wait()
            stored(tmp_path)

    async def second() -> None:
        store = IndexStore(tmp_path)
        async with store.building("bm25", "k"):
            events.append("second finds it" if store.has("bm25", "k") else "second builds it again")

    async def other_work() -> None:
        async with IndexStore(tmp_path).building("bm25", "other"):
            events.append("another index")
        await asyncio.sleep(0.15)
        built.set()

    async def all_of_them() -> None:
        await asyncio.gather(first(), second(), other_work())

    asyncio.run(all_of_them())
    assert events == ["first builds", "another index", "second finds it"]
    assert [path.name for path in (tmp_path / "bm25").iterdir()] == ["k"], "locks are removed"


def test_without_locks_an_index_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*arguments: object, **options: object) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr("bench.results.index_store.FileLock.acquire", no_locks)

    async def enter() -> bool:
        async with IndexStore(tmp_path).building("bm25", "k"):
            return True

    assert asyncio.run(enter())
