"""The label of a cell, built from its options, and the trade-off curve that it belongs to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from bench.results.models import CellDescription
from bench.schema import JsonValue

ENVIRONMENT = ("versions", "python", "platform")
"""Fields of a cell's description that describe the machine and its software."""

NO_SETTINGS = {
    *ENVIRONMENT,
    *("cell_id", "created_at", "git_commit", "data_path", "choices", "non_defaults", "replayed"),
}
"""Fields that say when and where a cell ran, or follow from others."""

_MAX_OPTIONS = 4
"""Maximum number of options in a cell's label; its description has all of them."""


@dataclass(frozen=True)
class CurvePoint:
    """A cell's place on a curve; cells that differ in the step alone share a curve."""

    step: int
    """The value of the curve's option."""
    name: str
    """The curve's name, as in ``t_c=0.9 pecan over t_p``: charts cut names at the end."""
    key: str
    """Identifies the curve."""


def cell_label(cell: CellDescription) -> str:
    """The method with its non-default options, as in ``bm25 k=7``, those that it replays first."""
    return " ".join([cell.method, *_chosen(cell)])


def _chosen(cell: CellDescription, without: str = "") -> tuple[str, ...]:
    """The non-default options that a label shows, as in ``k=7``; without: one to leave out."""
    names = [name for name in cell.config if name in cell.non_defaults and name != without]
    names.sort(key=lambda name: name not in cell.replayed)  # of a sweep's cells the others are alike
    return tuple(f"{name}={cut(as_text(cell.config[name]), 20)}" for name in names[:_MAX_OPTIONS])


def curve_point(cell: CellDescription) -> CurvePoint | None:
    """The cell's place on a curve; the key hashes everything that it depends on except step and time.

    The step is the first replayed option whose value is an integer. None for a method without such an
    option.
    """
    for option, step in cell.config.items():
        if option in cell.replayed and isinstance(step, int) and not isinstance(step, bool):
            shared = {key: value for key, value in cell.to_json().items() if key not in NO_SETTINGS}
            shared["config"] = {key: value for key, value in cell.config.items() if key != option}
            key = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:16]
            name = " ".join([*_chosen(cell, without=option), cell.method, "over", option])
            return CurvePoint(step, name, key)
    return None


def as_text(value: JsonValue) -> str:
    """An option's value as printed."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, an ellipsis marking a cut; ``?`` for what UTF-8 cannot encode."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 1] + "…"
