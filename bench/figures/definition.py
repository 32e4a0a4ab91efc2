"""A figure's definition: which cells it shows and how they are drawn, from YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bench.data.own import card_for, datasets_at
from bench.errors import UnknownNameError
from bench.files.paths import TABLES
from bench.files.yaml import Definition, load_definition, read_definition
from bench.metrics import get_metrics

FOLDER = TABLES / "figures"

FigureKind = Literal["pareto", "curve", "histogram", "bars", "history", "graph", "calibration"]

_KEYS: dict[FigureKind, tuple[str, str]] = {
    "pareto": ("table", ""),
    "curve": ("method datasets metric option values", "set sample axis index_cost"),
    "histogram": ("method datasets", "set sample axis"),
    "bars": ("method datasets metric variants", "set sample"),
    "history": ("method datasets variants", "set sample"),
    "graph": ("method datasets", "set sample example least"),
    "calibration": ("method datasets variants", "set sample"),
}
"""Kind -> the keys that it needs, and optional ones."""


class Variant(BaseModel):
    """One bar or line: options with a label."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    set: dict[str, Any]


class Figure(Definition):
    """Which cells a figure shows, and how; the kind determines the valid keys."""

    kind: FigureKind
    """pareto: a table's rows, score over cost; curve: score and cost over an option's values; histogram:
    number of passages or nodes read; bars: a score per variant; history: loss and entropy over the epochs of
    each variant's training, which its method stores as ``history``; graph: the two lowest levels of the graph
    of one example's documents; calibration: whether p_yes of a search's steps tells
    if what was read holds the answer."""
    title: str
    source: str
    """The paper and figure that it reproduces."""
    about: str
    """How to read it, for a page that shows it."""
    table: str = ""
    """For a pareto figure: the table whose rows, data sets and first metric it shows."""
    method: str = ""
    set: dict[str, Any] = Field(default_factory=dict)
    """Options of every cell."""
    datasets: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    """Data sets on the sample data, if some of ``datasets`` have no sample set."""
    metric: str = ""
    option: str = ""
    """The option of a curve."""
    values: tuple[int, ...] = ()
    """Values of a curve's option; all of them must have a finished cell."""
    axis: str = ""
    """Label of the horizontal axis; default: the option's name, or passages retrieved."""
    index_cost: bool = False
    """Whether a curve's note states the index cost for its first and last value."""
    variants: tuple[Variant, ...] = ()
    example: str = ""
    """Of a graph: the example whose documents it is of; default: the first of the data."""
    least: float = 0
    """Of a graph: the weight below which an edge is left out."""

    @field_validator("metric")
    @classmethod
    def _metric_exists(cls, name: str) -> str:
        if name:
            get_metrics([name])
        return name

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Self:
        shown = {"id", "kind", "title", "source", "about"}
        used = {key for key in self.model_fields_set - shown if getattr(self, key)}
        needed, optional = (set(keys.split()) for keys in _KEYS[self.kind])
        missing, unread = needed - used, used - needed - optional
        if missing:
            raise ValueError(f"kind {self.kind} needs {', '.join(sorted(missing))}")
        if unread:
            raise ValueError(f"kind {self.kind} does not read {', '.join(sorted(unread))}")
        return self

    def only(self, datasets: Sequence[str], data: str) -> Figure:
        """The figure of these data sets alone; of all that it shows for none.

        Raises UnknownNameError for a data set that it does not show on these data.
        """
        if not datasets:
            return self
        if self.kind != "pareto" and (unknown := [name for name in datasets if name not in self.on(data)]):
            raise UnknownNameError(f"data set of {self.id}", unknown[0], self.on(data))
        only = tuple(dict.fromkeys(datasets))
        return self.model_copy(update={"datasets": only, "sample": only})

    def on(self, data: str) -> tuple[str, ...]:
        """The data sets that it shows on these data."""
        shown = datasets_at(data, self.sample if data == "sample" and self.sample else self.datasets)
        return tuple(name for name in shown if not self.metric or self.metric in card_for(name, data).metrics)


def list_figures() -> list[Figure]:
    """Every figure, in the order of the kinds, then sorted by id; raises DataError for a bad definition."""
    figures = [read_definition(path, Figure) for path in FOLDER.glob("*.yaml")]
    return sorted(figures, key=lambda figure: (get_args(FigureKind).index(figure.kind), figure.id))


def load_figure(name: str) -> Figure:
    """The figure with that id, or in the YAML file with that path; raises UnknownNameError or DataError."""
    if name.endswith(".yaml") and Path(name).is_file():
        return read_definition(Path(name), Figure)
    return load_definition("figure", name, FOLDER, Figure)
