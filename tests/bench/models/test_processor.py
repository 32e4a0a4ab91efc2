from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.models import processor
from bench.models.spec import resolve


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in the place of the system's description of the processor."""
    place = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPU_INFO", place)
    processor.faster_dtype.cache_clear()
    yield place
    processor.faster_dtype.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model name : Old\nflags : sse avx2 avx512f\n", "float32"),
        (None, "float32"),
        ("model name : New 9\nflags : avx2 amx_bf16\n", "bfloat16"),
        ("CPU part : 0xd40\nFeatures : asimd bf16\n", "bfloat16"),
    ],
)
def test_a_large_model_runs_in_bfloat16_with_units(described: Path, text: str | None, expected: str) -> None:
    if text is not None:
        described.write_text(text)
    assert resolve("qwen2.5-coder-0.5b", device="cpu").identity()["dtype"] == expected
    assert resolve("tiny", device="cpu").actual_dtype == "float32"  # small: the same everywhere
    assert resolve("qwen2.5-coder-0.5b", device="cpu", dtype="float32").actual_dtype == "float32"
