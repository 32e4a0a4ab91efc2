"""The number format that this processor multiplies faster, by its instruction sets.

Processors with bfloat16 units (AMX, AVX512-BF16, Arm's BF16) multiply it up to several times as fast as
float32; all others emulate it, many times slower. The result is part of a cell's identity, so it is read
from the processor's description and not measured, which would vary with the machine's load.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

FAST_FROM = 300_000_000
"""Parameters of a model from which its default format is chosen by speed; our choice: below it a question
takes seconds in either, and results stay the same on every processor."""
_UNITS = {"amx_bf16", "avx512_bf16", "bf16"}
_CPU_INFO = Path("/proc/cpuinfo")


@lru_cache(maxsize=1)
def faster_dtype() -> Literal["float32", "bfloat16"]:
    """The faster number format on this processor; float32 if the system lists no instruction sets."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "float32"
    fields = {key.strip(): value for key, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags") or fields.get("Features") or ""
    return "bfloat16" if _UNITS & set(flags.split()) else "float32"
