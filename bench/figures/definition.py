"""What a figure is: a YAML definition of the cells that it shows and of how they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.errors import DataError, UnknownNameError
from bench.files.paths import TABLES
from bench.files.yaml import read_yaml

FOLDER = TABLES / "figures"

Kind = Literal["pareto", "curve", "histogram", "bars", "history", "graph"]

_NEEDED: dict[Kind, frozenset[str]] = {
    "pareto": frozenset({"table"}),
    "curve": frozenset({"method", "datasets", "metric", "option", "values"}),
    "histogram": frozenset({"method", "datasets"}),
    "bars": frozenset({"method", "datasets", "metric", "variants"}),
    "history": frozenset({"method", "datasets", "variants"}),
    "graph": frozenset({"method", "datasets"}),
}
_ALLOWED: dict[Kind, frozenset[str]] = {
    "pareto": frozenset(),
    "curve": frozenset({"set", "axis", "sample", "index_cost"}),
    "histogram": frozenset({"set", "axis", "sample"}),
    "bars": frozenset({"set", "sample"}),
    "history": frozenset({"set", "sample"}),
    "graph": frozenset({"set", "sample", "example", "least"}),
}
"""Kind -> further keys that it reads."""


class Variant(BaseModel):
    """One bar or line: options, and what it is called."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    set: dict[str, Any]


class Figure(BaseModel):
    """Which cells a figure shows, and how; which keys are read depends on the kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    kind: Kind
    """pareto: a table's rows, score over cost; curve: score and cost over an option's values; histogram: how
    many passages or nodes were read; bars: a score per variant; history: loss and entropy over the
    epochs of what each variant learned, which its method keeps as ``history``; graph: the two lowest levels
    of the graph that a method builds of one example's documents, per data set."""
    title: str
    source: str
    """The paper and figure that it follows."""
    about: str
    """How to read it, for a page that shows it."""
    table: str = ""
    """Of a pareto figure: the table whose rows, data sets and first metric it shows."""
    method: str = ""
    set: dict[str, Any] = Field(default_factory=dict)
    """Options of every cell."""
    datasets: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    """Shown instead of ``datasets`` on the sample data, where these have no samples."""
    metric: str = ""
    option: str = ""
    """The option of a curve."""
    values: tuple[int, ...] = ()
    """Its values, every one of which must be there."""
    axis: str = ""
    """What the horizontal axis shows; default: the option's name, or passages retrieved."""
    index_cost: bool = False
    """Whether the note of a curve states what the indexes of its first and last value cost."""
    variants: tuple[Variant, ...] = ()
    example: str = ""
    """Of a graph: the example whose documents it is of; default: the first of the data."""
    least: float = 0
    """Of a graph: the weight below which an edge is left out."""

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Self:
        shown = {"id", "kind", "title", "source", "about"}
        used = {key for key in self.model_fields_set - shown if getattr(self, key)}
        missing, allowed = _NEEDED[self.kind] - used, _NEEDED[self.kind] | _ALLOWED[self.kind]
        if missing:
            raise ValueError(f"kind {self.kind} needs {', '.join(sorted(missing))}")
        if used - allowed:
            raise ValueError(f"kind {self.kind} does not read {', '.join(sorted(used - allowed))}")
        return self

    def on(self, data: str) -> tuple[str, ...]:
        """The data sets that it shows of these data."""
        return self.sample if data == "sample" and self.sample else self.datasets


def list_figures(folder: Path = FOLDER) -> list[Figure]:
    """Every figure, in the order of the kinds, then sorted by id; raises DataError for a bad definition."""
    figures = [read_figure(path) for path in folder.glob("*.yaml")]
    return sorted(figures, key=lambda figure: (get_args(Kind).index(figure.kind), figure.id))


def load_figure(name: str, folder: Path = FOLDER) -> Figure:
    """The figure of that id, or the one in a YAML file of that path; raises UnknownNameError or DataError."""
    if name.endswith(".yaml") and Path(name).is_file():
        return read_figure(Path(name))
    paths = {path.stem: path for path in folder.glob("*.yaml")}
    if name not in paths:
        raise UnknownNameError("figure", name, paths, hint="See: bench list figures")
    return read_figure(paths[name])


def read_figure(path: Path) -> Figure:
    """The figure in a YAML file; raises DataError naming file:line and key."""
    figure = read_yaml(path, Figure)
    if figure.id != path.stem:
        raise DataError(f"{path}: id is {figure.id!r}; expected the file's name, {path.stem!r}.")
    return figure
