from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.models import processor
from bench.models.spec import resolve


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in the place of the system's description of the processor, and an empty cache."""
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPU_INFO", place)
    processor.faster_dtype.cache_clear()
    yield place
    processor.faster_dtype.cache_clear()


@pytest.mark.parametrize("text", ["model name : Old\nflags : sse avx2 avx512f\n", None])
def test_a_processor_without_bfloat16_computes_in_float32_unmeasured(
    described: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        described.write_text(text)

    def measured() -> float:
        raise AssertionError("measured")

    monkeypatch.setattr(processor, "_measured_gain", measured)
    assert resolve("qwen2.5-coder-1.5b", device="cpu").actual_dtype == "float32"


@pytest.mark.parametrize(("gain", "expected"), [(2.1, "bfloat16"), (1.1, "float32")])
def test_one_with_it_is_measured_once_and_remembered(
    described: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gain: float,
    expected: str,
) -> None:
    described.write_text("model name : New 9\nflags : avx2 amx_bf16\n")
    caplog.set_level("INFO")
    gains = iter([gain])
    monkeypatch.setattr(processor, "_measured_gain", lambda: next(gains))
    large = resolve("qwen2.5-coder-0.5b", device="cpu")
    assert large.identity()["dtype"] == expected
    assert f"run in {expected} here: New 9 multiplies bfloat16 {gain} times as fast" in caplog.text
    processor.faster_dtype.cache_clear()  # as another process
    assert large.actual_dtype == expected
    assert resolve("tiny", device="cpu").actual_dtype == "float32"  # small: the same everywhere
    assert resolve("qwen2.5-coder-0.5b", device="cpu", dtype="float32").actual_dtype == "float32"


def test_a_damaged_note_is_measured_again(described: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described.write_text("model name : New 9\nflags : avx512_bf16\n")
    note = described.parent / "cache" / "processor.json"
    note.parent.mkdir()
    note.write_text("[half")
    monkeypatch.setattr(processor, "_measured_gain", lambda: 1.5)
    assert processor.faster_dtype() == "bfloat16"
    assert list(json.loads(note.read_text()).values()) == [1.5]
