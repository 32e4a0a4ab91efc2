"""The finished cells of a results folder, grouped by data, each with a name that is unique in its group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.results.finished import FinishedCell
from bench.schema import JsonValue


@dataclass(frozen=True)
class NamedCell:
    """A finished cell with its name on the page."""

    cell: FinishedCell
    name: str
    """Unique among the cells on the same data."""
    listed: bool
    """Whether it is a row of a table."""


@dataclass(frozen=True)
class DataGroup:
    """All cells on the same data; rows of tables come first, in the order of the tables."""

    label: str
    dataset: str
    source: str
    cells: tuple[NamedCell, ...]


def grouped(cells: Sequence[FinishedCell], rows: Mapping[str, str]) -> list[DataGroup]:
    """The cells by data; rows: cell id -> label of its row, in the order of the tables.

    Groups with rows come first, then by label. If two groups share a label, because the data changed, their
    revisions are added.
    """
    by_data: dict[tuple[str, str, str], list[FinishedCell]] = {}
    for cell in cells:
        by_data.setdefault(cell.data_key, []).append(cell)
    labels = [members[0].description.data for members in by_data.values()]
    groups = []
    for label, ((dataset, source, revision), members) in zip(labels, by_data.items(), strict=True):
        suffix = f", revision {revision.removeprefix('sha256:')[:8]}" if labels.count(label) > 1 else ""
        groups.append(DataGroup(label + suffix, dataset, source, tuple(_named(members, rows))))
    return sorted(groups, key=lambda group: (not group.cells[0].listed, group.label))


def _named(cells: Sequence[FinishedCell], rows: Mapping[str, str]) -> list[NamedCell]:
    """The cells of one group with their names, in order; the name is a row's label if that is unique."""
    order = {cell_id: at for at, cell_id in enumerate(rows)}
    distinguishing = _distinguishing(cells, rows)
    labels = Counter(rows[cell.id] for cell in cells if cell.id in rows)
    names: dict[str, str] = {}
    for cell in cells:
        method = cell.description.method
        if labels[rows.get(cell.id, "")] == 1:
            names[cell.id] = rows[cell.id]
        else:
            options = [f"{k}={_text(v)}" for k, v in distinguishing[cell.id] if k not in _CIRCUMSTANCES]
            names[cell.id] = " ".join([rows.get(cell.id, method), *options])
    for key, form in _CIRCUMSTANCES.items():  # only where the options leave two cells with one name
        counted = Counter(names.values())
        for cell in cells:
            value = dict(distinguishing[cell.id]).get(key)
            if counted[names[cell.id]] > 1 and value is not None:
                names[cell.id] += f", {form.format(_text(value))}"
    counted = Counter(names.values())
    for cell in cells:
        if counted[names[cell.id]] > 1:
            names[cell.id] += f" [{cell.id[:6]}]"
    place = {
        cell.id: (order.get(cell.id, len(order)), _sort_key(cell, distinguishing[cell.id])) for cell in cells
    }
    return [
        NamedCell(cell, names[cell.id], cell.id in rows)
        for cell in sorted(cells, key=lambda cell: place[cell.id])
    ]


_CIRCUMSTANCES = {
    "weights": "weights {}",
    "dtype": "{}",
    "seed": "seed {}",
    "questions": "{} questions",
    "version": "version {}",
}
"""Setting besides options and models -> how a name says it."""


def _distinguishing(
    cells: Iterable[FinishedCell], rows: Mapping[str, str]
) -> dict[str, list[tuple[str, JsonValue]]]:
    """Cell id -> the settings that distinguish it from the other cells of its method, as few as possible.

    rows: cell id -> label. Rows with the same label are distinguished by the settings that vary among them.
    Any other cell is distinguished by its differences from its method's first row and by the numbers that
    vary among such cells, a sweep's axes; without a row of its method, by all settings that vary.
    """
    by_method: dict[str, dict[str, dict[str, JsonValue]]] = {}
    for cell in cells:
        by_method.setdefault(cell.description.method, {})[cell.id] = _settings(cell)
    distinguishing: dict[str, list[tuple[str, JsonValue]]] = {}
    for group in by_method.values():
        first = next((group[id_] for id_ in rows if id_ in group), None)
        by_label: dict[str | None, list[dict[str, JsonValue]]] = {}
        for id_, settings in group.items():
            by_label.setdefault(rows.get(id_), []).append(settings)
        varied = {label: _varied(settings) for label, settings in by_label.items()}
        for id_, settings in group.items():
            keys = varied[rows.get(id_)]
            if id_ not in rows and first is not None:
                keys = {key for key in keys if isinstance(settings.get(key), int | float)}
                keys |= {key for key, value in settings.items() if value != first.get(key)}
            distinguishing[id_] = [(key, value) for key, value in settings.items() if key in keys]
    return distinguishing


def _varied(group: Sequence[Mapping[str, JsonValue]]) -> set[str]:
    """The keys whose values differ within the group."""
    keys = {key for settings in group for key in settings}
    return {key for key in keys if any(s.get(key) != group[0].get(key) for s in group)}


def _settings(cell: FinishedCell) -> dict[str, JsonValue]:
    """All settings that can distinguish cells of one method; models named by other settings are left out."""
    d = cell.description
    config = {key: "default" if value in (None, "") else value for key, value in d.config.items()}
    named = {d.model, *(value for value in config.values() if isinstance(value, str))}
    models = {f"{role} model": model["name"] for role, model in d.models.items() if role != "reader"}
    return {
        **config,
        "model": d.model,
        "weights": str(d.models["reader"].get("revision", ""))[:6],
        **{role: name for role, name in models.items() if name not in named},
        "dtype": d.dtype,
        "seed": d.seed,
        "questions": d.n_examples,
        "version": d.method_version,
    }


def _sort_key(cell: FinishedCell, settings: Iterable[tuple[str, JsonValue]]) -> tuple[object, ...]:
    """Sort by method, then by the distinguishing settings, numbers numerically, then by cell id."""
    values = [
        (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, _text(value))
        for _, value in settings
    ]
    return cell.description.method, values, cell.id


def options_text(cell: FinishedCell, *, chosen: bool = False) -> str:
    """All options that have a value, as ``k=5, prompt=own``; chosen: only those that are not the defaults."""
    description = cell.description
    return ", ".join(
        f"{key}={_text(value)}"
        for key, value in description.config.items()
        if (key in description.non_defaults if chosen else value not in (None, ""))
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
