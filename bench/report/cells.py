"""The finished cells of a results folder, grouped by data, each with a name that is unique in its group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.metrics.statistics import Interval
from bench.results.curves import as_text, cell_label
from bench.results.finished import FinishedCell


@dataclass(frozen=True)
class NamedCell:
    """A finished cell with its name on the page."""

    cell: FinishedCell
    name: str
    """Unique among the cells on the same data."""

    @property
    def metric(self) -> str:
        """The data set's main metric."""
        return (*self.cell.description.metrics, *self.cell.summary.metrics, "f1")[0]

    @property
    def score(self) -> Interval | None:
        """The mean of the main metric, 0..1; None where no question has a reference answer."""
        return self.cell.summary.interval(self.metric)


@dataclass(frozen=True)
class DataGroup:
    """All cells on the same data, the highest score first, then by name."""

    label: str
    dataset: str
    source: str
    cells: tuple[NamedCell, ...]


def grouped(cells: Sequence[FinishedCell]) -> list[DataGroup]:
    """The cells by data, in the order of its labels.

    If two groups share a label, because the data changed, their revisions are added.
    """
    by_data: dict[tuple[str, str, str], list[FinishedCell]] = {}
    for cell in cells:
        d = cell.description
        by_data.setdefault((d.dataset, d.data_source, d.data_revision), []).append(cell)
    labels = [members[0].description.data for members in by_data.values()]
    groups = []
    for label, ((dataset, source, revision), members) in zip(labels, by_data.items(), strict=True):
        suffix = f", revision {revision.removeprefix('sha256:')[:8]}" if labels.count(label) > 1 else ""
        groups.append(DataGroup(label + suffix, dataset, source, tuple(_named(members))))
    return sorted(groups, key=lambda group: group.label)


def _named(cells: Sequence[FinishedCell]) -> list[NamedCell]:
    """The cells of one group with their names, in their order.

    A name is the method with the options that are not its defaults. Where that leaves several cells with one
    name, the settings in which they differ are added, and if all else fails their id.
    """
    names = {cell.id: cell_label(cell.description) for cell in cells}
    for tell in (_differences, lambda alike: {cell.id: f"[{cell.id[:6]}]" for cell in alike}):
        alike: dict[str, list[FinishedCell]] = {}
        for cell in cells:
            alike.setdefault(names[cell.id], []).append(cell)
        for several in alike.values():
            told = tell(several) if len(several) > 1 else {}
            names |= {id_: f"{names[id_]} {text}" for id_, text in told.items() if text}
    named = [NamedCell(cell, names[cell.id]) for cell in cells]
    return sorted(named, key=lambda o: (-o.score.mean if o.score else 1, _natural(o.name), o.cell.id))


def _differences(cells: Sequence[FinishedCell]) -> dict[str, str]:
    """Cell id -> the settings that are not those of all the cells."""
    settings = {cell.id: _settings(cell) for cell in cells}
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    varied = [key for key in keys if len({own.get(key) for own in settings.values()}) > 1]
    return {id_: " ".join(f"{k}={own[k]}" for k in varied if own.get(k)) for id_, own in settings.items()}


def _settings(cell: FinishedCell) -> dict[str, str]:
    """All settings that can distinguish cells of one method; models named by others are left out."""
    d = cell.description
    config = {key: as_text(value) for key, value in d.config.items() if value != ""}
    models = {f"{role}_model": str(model["name"]) for role, model in d.models.items() if role != "reader"}
    return {
        **config,
        "model": d.model,
        "weights": str(d.models.get("reader", {}).get("revision", ""))[:6],
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
