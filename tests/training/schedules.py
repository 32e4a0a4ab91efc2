"""A small schedule of training, written down for a test."""

from __future__ import annotations

import json
from pathlib import Path

STAGE: dict[str, object] = {
    "steps": 10,
    "lengths": {128: 1},
    "mix": {"simple": 1},
    "options": {"share": 0.2},
    "muon_lr": [0.01, 0.02],
    "adam_lr": 0.003,
    "context_weight": 0.1,
}


def written(folder: Path, *stages: dict[str, object], batch_tokens: int = 512, warmup: int = 1) -> Path:
    """The file of a schedule of these stages."""
    path = folder / "schedule.yaml"
    path.write_text(json.dumps({"batch_tokens": batch_tokens, "warmup": warmup, "stages": stages}))
    return path
