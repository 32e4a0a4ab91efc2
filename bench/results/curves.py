"""The label of a cell, built from its options, and the trade-off curve that it belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bench.results.models import CellDescription
from bench.schema import JsonValue

ENVIRONMENT = ("versions", "python", "platform")
"""Fields of a cell's description that describe the machine and its software."""

_MAX_OPTIONS = 4
"""Maximum number of options in a cell's label; its description has all of them."""


@dataclass(frozen=True)
class CurvePoint:
    """A cell's place on a curve; cells that differ in the step alone share a curve."""

    option: str
    step: int
    label: str
    """The curve's label: the method with its other non-default options, as in ``pecan t_c=0.9``."""
    key: str
    """Identifies the curve."""
    method: str
    options: tuple[str, ...]
    """The other non-default options, as in ``t_c=0.9``, at most four."""

    def name(self, shared: Collection[str] = ()) -> str:
        """Name of the curve's run, as in ``t_c=0.9 pecan over t_p``: charts cut names at the end.

        shared: options to leave out, because the curves next to it have them as well.
        """
        own = [option for option in self.options if option not in shared]
        return " ".join([*own, self.method, "over", self.option])


def shared_options(points: Iterable[CurvePoint]) -> Mapping[str, frozenset[str]]:
    """Method -> the options that all its curves have; none for a method with a single curve."""
    curves: dict[str, dict[str, frozenset[str]]] = {}
    for point in points:
        curves.setdefault(point.method, {})[point.key] = frozenset(point.options)
    return {
        method: frozenset.intersection(*own.values()) if len(own) > 1 else frozenset()
        for method, own in curves.items()
    }


def cell_label(cell: CellDescription, without: Collection[str] = ()) -> str:
    """The method with its non-default options, as in ``bm25 k=7``, those that it replays first.

    without: options to leave out.
    """
    return " ".join([cell.method, *_chosen(cell, without)])


def _chosen(cell: CellDescription, without: Collection[str]) -> tuple[str, ...]:
    """The non-default options that a label shows, as in ``k=7``."""
    names = [name for name in cell.config if name in cell.non_defaults and name not in without]
    names.sort(key=lambda name: name not in cell.replayed)  # of a sweep's cells the others are alike
    return tuple(f"{name}={cut(as_text(cell.config[name]), 20)}" for name in names[:_MAX_OPTIONS])


def curve_point(cell: CellDescription) -> CurvePoint | None:
    """The cell's place on a curve; the key hashes everything that it depends on except step and time.

    The step is the first replayed option whose value is an integer. None for a method without such an
    option.
    """
    for option, step in cell.config.items():
        if option in cell.replayed and isinstance(step, int) and not isinstance(step, bool):
            derived = {"choices", "non_defaults", "replayed"}
            excluded = {*ENVIRONMENT, *derived, "cell_id", "created_at", "git_commit", "data_path"}
            shared = {key: value for key, value in cell.to_json().items() if key not in excluded}
            shared["config"] = {key: value for key, value in cell.config.items() if key != option}
            key = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:16]
            label, options = cell_label(cell, without=(option,)), _chosen(cell, (option,))
            return CurvePoint(option, step, label, key, cell.method, options)
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
