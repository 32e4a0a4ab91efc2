"""The training schedule: a committed YAML file that says what is trained at which step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from training.tasks import Options

DEFAULT_SCHEDULE = Path(__file__).with_name("schedule.yaml")


@dataclass(frozen=True)
class Stage:
    """A run of steps with one mix of data; learning rates go linearly from the first value to the second."""

    steps: int
    lengths: dict[int, float]
    """Row lengths in tokens and how often each is drawn."""
    mix: dict[str, float]
    """Tasks and how often each is drawn."""
    options: Options
    muon_lr: tuple[float, float]
    adam_lr: tuple[float, float]
    context_weight: float
    """Loss weight of the tokens that are not replies."""
    reply_weights: dict[str, float] = field(default_factory=dict)
    """Loss weight of the tokens of a reply by its kind; 1 where none is given."""


@dataclass(frozen=True)
class Rates:
    """What the optimiser and the stream use at one step."""

    stage: Stage
    muon_lr: float
    adam_lr: float
    momentum: float


@dataclass(frozen=True)
class Schedule:
    """All stages in order."""

    batch_tokens: int
    warmup: int
    """Steps over which the learning rates rise from 0 at the very start."""
    stages: tuple[Stage, ...]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return sum(stage.steps for stage in self.stages)

    def at(self, step: int) -> Rates:
        """Stage and rates of a step, counted from 0.

        Raises:
            ValueError: if the schedule has ended before.
        """
        begin = 0
        for stage in self.stages:
            if step < begin + stage.steps:
                part = (step - begin) / stage.steps
                warm = min(1.0, (step + 1) / self.warmup)
                momentum = min(0.95, 0.85 + 0.001 * step)
                return Rates(
                    stage,
                    warm * _between(stage.muon_lr, part),
                    warm * _between(stage.adam_lr, part),
                    momentum,
                )
            begin += stage.steps
        raise ValueError(f"step {step} lies beyond the end of the schedule ({self.steps} steps)")


def load_schedule(path: Path = DEFAULT_SCHEDULE) -> Schedule:
    """Reads and checks a schedule.

    Raises:
        ValueError: if a key is unknown or missing, or a value out of range.
    """
    raw = YAML(typ="safe", pure=True).load(path)
    return Schedule(
        batch_tokens=int(raw["batch_tokens"]),
        warmup=int(raw["warmup"]),
        stages=tuple(_stage(entry, f"{path.name}, stage {i}") for i, entry in enumerate(raw["stages"])),
    )


def _stage(entry: dict[str, Any], where: str) -> Stage:
    wanted = {f.name for f in fields(Stage)}
    if set(entry) | {"reply_weights"} != wanted:  # these may be left out
        odd = sorted((set(entry) | {"reply_weights"}) ^ wanted)
        raise ValueError(f"{where}: keys {odd} are unknown or missing; expected {sorted(wanted)}")
    unknown = set(entry["options"]) - {f.name for f in fields(Options)}
    if unknown:
        raise ValueError(f"{where}: unknown options {sorted(unknown)}")
    if entry["steps"] < 1 or not entry["lengths"] or not entry["mix"]:
        raise ValueError(f"{where}: needs at least one step, one length and one task")
    return Stage(
        steps=int(entry["steps"]),
        lengths={int(k): float(v) for k, v in entry["lengths"].items()},
        mix={str(k): float(v) for k, v in entry["mix"].items()},
        options=Options(**entry["options"]),
        muon_lr=_pair(entry["muon_lr"]),
        adam_lr=_pair(entry["adam_lr"]),
        context_weight=float(entry["context_weight"]),
        reply_weights={str(k): float(v) for k, v in entry.get("reply_weights", {}).items()},
    )


def _pair(value: float | list[float]) -> tuple[float, float]:
    return (float(value[0]), float(value[1])) if isinstance(value, list) else (float(value), float(value))


def _between(pair: tuple[float, float], part: float) -> float:
    return pair[0] + (pair[1] - pair[0]) * part
