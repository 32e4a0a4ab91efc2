"""The finished cells of a results folder, grouped by data, each with a name that is unique in its group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.results.curves import as_text, cell_label
from bench.results.finished import FinishedCell


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
    """The cells of one group with their names, those of rows first, the others by name.

    A name is the row's label, or the method with the options that are not its defaults. Where that leaves
    several cells with one name, the settings in which they differ are added, and if all else fails their id.
    """
    order = {cell_id: at for at, cell_id in enumerate(rows)}
    names = {cell.id: rows.get(cell.id) or cell_label(cell.description) for cell in cells}
    for tell in (_differences, lambda alike: {cell.id: f"[{cell.id[:6]}]" for cell in alike}):
        alike: dict[str, list[FinishedCell]] = {}
        for cell in cells:
            alike.setdefault(names[cell.id], []).append(cell)
        for several in alike.values():
            told = tell(several) if len(several) > 1 else {}
            names |= {id_: f"{names[id_]} {text}" for id_, text in told.items() if text}
    place = {cell.id: (order.get(cell.id, len(order)), _natural(names[cell.id]), cell.id) for cell in cells}
    return [
        NamedCell(cell, names[cell.id], cell.id in rows)
        for cell in sorted(cells, key=lambda cell: place[cell.id])
    ]


def _differences(cells: Sequence[FinishedCell]) -> dict[str, str]:
    """Cell id -> the settings that are not those of all the cells."""
    settings = {cell.id: _settings(cell) for cell in cells}
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    varied = [key for key in keys if len({own.get(key) for own in settings.values()}) > 1]
    return {
        id_: " ".join(f"{key}={own[key]}" for key in varied if own.get(key)) for id_, own in settings.items()
    }


def _settings(cell: FinishedCell) -> dict[str, str]:
    """All settings that can distinguish cells of one method; models named by others are left out."""
    d = cell.description
    config = {key: as_text(value) for key, value in d.config.items() if value != ""}
    models = {f"{role}_model": str(model["name"]) for role, model in d.models.items() if role != "reader"}
    return {
        **config,
        "model": d.model,
        "weights": str(d.models["reader"].get("revision", ""))[:6],
        **{role: name for role, name in models.items() if name not in (d.model, *config.values())},
        "dtype": d.dtype,
        "seed": str(d.seed),
        "questions": str(d.n_examples),
        "version": d.method_version,
    }


def _natural(name: str) -> list[tuple[float, str]]:
    """Sort key of a name: numbers in it by their size."""
    parts = re.findall(r"\d+(?:\.\d+)?|[^\d]+", name)
    return [(float(part), "") if part[0].isdigit() else (-1.0, part) for part in parts]


def options_text(cell: FinishedCell, *, chosen: bool = False) -> str:
    """All options that have a value, as ``k=5, prompt=own``; chosen: only those that are not the defaults."""
    description = cell.description
    return ", ".join(
        f"{key}={as_text(value)}"
        for key, value in description.config.items()
        if (key in description.non_defaults if chosen else value not in (None, ""))
    )
