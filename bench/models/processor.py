"""The number format that this processor multiplies faster: measured once and cached.

Processors with bfloat16 units (AMX, AVX512-BF16, Arm's BF16) multiply it up to several times as fast as
float32; all others emulate it, many times slower. The result is part of a cell's identity, so it must
not vary with the machine's load: it is cached per processor and torch version.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
from functools import lru_cache
from pathlib import Path
from typing import Literal

from bench.files.atomic import WriteError, read_notes, write_json
from bench.models.sources import model_cache

log = logging.getLogger(__name__)

MEASURED_FROM = 300_000_000
"""Parameters of a model from which its default format is chosen by speed; our choice: below it a question
takes seconds in either, and results stay the same on every processor."""
_UNITS = {"amx_bf16", "avx512_bf16", "bf16"}
_WORTH = 1.3
"""Minimum speed-up for bfloat16 to be chosen, since it rounds."""
_CPU_INFO = Path("/proc/cpuinfo")


@lru_cache(maxsize=1)
def faster_dtype() -> Literal["float32", "bfloat16"]:
    """The faster number format on this processor; float32, without measuring, if it has no bfloat16."""
    name, flags = _processor()
    if not _UNITS & flags:
        return "float32"
    key = f"{name}, torch {importlib.metadata.version('torch')}"
    cache_file = model_cache().parent / "processor.json"
    known = read_notes(cache_file)
    try:
        gain = float(known[key])
    except (ValueError, KeyError, TypeError):
        gain = _measured_gain()
        try:
            write_json(cache_file, {**known, key: round(gain, 2)})
        except WriteError as error:
            log.warning("%s The measurement is not cached; --dtype fixes the format.", error)
    chosen: Literal["float32", "bfloat16"] = "bfloat16" if gain >= _WORTH else "float32"
    log.info(
        "Models from %d million parameters run in %s here: %s multiplies bfloat16 %.1f times as fast as "
        "float32",
        MEASURED_FROM // 10**6,
        chosen,
        name,
        gain,
    )
    return chosen


def _processor() -> tuple[str, set[str]]:
    """Name and instruction sets; empty if the system lists none (then float32)."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "this processor", set()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name", "this processor"), set(flags.split())


def _measured_gain(rows: int = 512, columns: int = 2048) -> float:
    """Time of a matrix product in float32 over bfloat16: minima of several alternating runs."""
    import torch

    shapes = ((rows, columns), (columns, columns))
    least: dict[torch.dtype, float] = {}
    for _ in range(8):
        for dtype in (torch.float32, torch.bfloat16):
            a, b = (torch.ones(shape, dtype=dtype) for shape in shapes)
            start = time.perf_counter()
            torch.matmul(a, b)
            least[dtype] = min(least.get(dtype, float("inf")), time.perf_counter() - start)
    return least[torch.float32] / least[torch.bfloat16]
