from __future__ import annotations

import random

import pytest
import torch

from bench.engine.kv_cache import PAGE, KVCache, Reservation


def kv_cache(pages: int) -> KVCache:
    shape = {"layers": 1, "tokens": pages * PAGE + 7, "kv_heads": 1, "head_dim": 4}
    return KVCache(**shape, dtype=torch.float32, device="cpu")


def test_released_neighbours_become_one_gap() -> None:
    store = kv_cache(4)
    a, b, c = (store.reserve(PAGE) for _ in range(3))
    assert a and b and c
    for range_ in (a, c, b):
        store.release(range_)
    assert store.reserve(4 * PAGE) == Reservation(0, 4 * PAGE)


def test_a_range_released_twice_is_an_error() -> None:
    store = kv_cache(2)
    range_ = store.reserve(PAGE)
    assert range_
    store.release(range_)
    with pytest.raises(ValueError, match="released twice"):
        store.release(range_)


def test_random_use_never_overlaps_and_never_leaks() -> None:
    store, rng = kv_cache(32), random.Random(3)
    held: list[Reservation] = []
    for _ in range(2000):
        if held and rng.random() < 0.5:
            store.release(held.pop(rng.randrange(len(held))))
        else:
            range_ = store.reserve(rng.randrange(1, 5 * PAGE))
            if range_ is not None:
                held.append(range_)
        taken = sorted((r.start, r.start + r.tokens) for r in held)
        assert all(a[1] <= b[0] for a, b in zip(taken, taken[1:], strict=False))
        assert sum(r.tokens for r in held) + store.free_tokens == store.tokens
