"""Checkpoints of a training run: safetensors and JSON, written so that a kill leaves the last whole one.

A checkpoint is one file, or that file and further parts beside it which it names, none larger than
``MOST_BYTES``: small enough for what moves files of limited size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MOST_BYTES = 15 * 2**20
"""Of the tensors of one part; with its header a part stays below 16 MiB."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on as if it had not stopped."""

    model: dict[str, Tensor]
    average: dict[str, Tensor]
    """Exponential moving average of the weights; this is what is exported."""
    optimizer: dict[str, Tensor]
    meta: dict[str, Any]
    """step (of the next batch), tokens, seconds, seed, model configuration; from: the exported weights
    that it began with, if any."""


PARTS = ("model", "average", "optimizer")


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes the file and its further parts; what was there is replaced only when all parts are whole.

    Raises:
        ValueError: if a single tensor is larger than a part may be.
    """
    from safetensors.torch import save_file

    tensors = {f"{part}/{k}": v for part in PARTS for k, v in getattr(checkpoint, part).items()}
    packs = _packed({name: tensor.contiguous().cpu() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    step = checkpoint.meta.get("step", 0)
    names = [f"{path.stem}.{step}.{i}{path.suffix}" for i in range(2, len(packs) + 1)]
    for name, pack in zip(names, packs[1:], strict=True):
        save_file(pack, path.with_name(name))
    draft = path.with_suffix(".part")
    save_file(packs[0], draft, metadata={"meta": json.dumps(checkpoint.meta), "parts": json.dumps(names)})
    draft.replace(path)
    for old in path.parent.glob(f"{path.stem}.*.*{path.suffix}"):
        if old.name not in names:
            old.unlink()


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint, its average in float32 even where it was stored compact.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if a file is damaged, missing or something else.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no checkpoint there; python -m training.train writes one")
    try:
        with safe_open(path, framework="pt") as file:
            written = file.metadata() or {}
            meta = json.loads(written["meta"])
        tensors: dict[str, Tensor] = {}
        for name in (path.name, *json.loads(written.get("parts", "[]"))):
            tensors |= load_file(path.with_name(name))
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
        for key, tensor in tensors.items():
            part, name = key.split("/", 1)
            parts[part][name] = tensor
    except (SafetensorError, KeyError, ValueError, FileNotFoundError) as error:
        raise ValueError(f"{path}: not a whole training checkpoint ({error}); use an earlier one") from error
    average = restored_average(parts["average"], parts["model"])
    return Checkpoint(parts["model"], average, parts["optimizer"], meta)


def compact_average(average: dict[str, Tensor], model: dict[str, Tensor]) -> dict[str, Tensor]:
    """The average as float16 differences from the weights: half the size, exact to a thousandth of them."""
    return {name: (value - model[name]).half() for name, value in average.items()}


@torch.no_grad()
def restored_average(average: dict[str, Tensor], model: dict[str, Tensor]) -> dict[str, Tensor]:
    """The average in float32, whether it was stored as it is or compact."""
    return {
        name: model[name] + value.float() if value.dtype == torch.float16 else value
        for name, value in average.items()
    }


def _packed(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The tensors in order, in packs of at most ``MOST_BYTES``."""
    packs: list[dict[str, Tensor]] = [{}]
    room = MOST_BYTES
    for name, tensor in tensors.items():
        size = tensor.nbytes
        if size > MOST_BYTES:
            raise ValueError(f"{name} has {size} bytes, a part of a checkpoint at most {MOST_BYTES}")
        if size > room:
            packs.append({})
            room = MOST_BYTES
        packs[-1][name] = tensor
        room -= size
    return packs
