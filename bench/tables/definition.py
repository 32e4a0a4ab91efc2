"""A table's definition: rows, data sets and columns, from YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bench.data.cards import Card
from bench.data.loading import DataUnavailableError
from bench.data.own import NOT_PATHS, datasets_at
from bench.errors import ConfigError, ModelUnavailableError, UnknownNameError
from bench.files.paths import TABLES
from bench.files.yaml import Definition, load_definition, read_definition
from bench.method.options import parse_method
from bench.method.registry import registered_methods
from bench.models.presets import PAPER_CHUNK_TOKENS
from bench.schema import JsonValue

WITHOUT_CELLS = ("lengths", "settings")
"""Kinds of tables that have no rows of methods, and so no cells."""


class Row(BaseModel):
    """One row: a method with options."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    label: str
    method: str
    set: dict[str, Any] = Field(default_factory=dict)
    """Options. Besides plain values there are ``{card: path}``, looked up in the data set's card; ``{model:
    role}``, looked up in the table's models; both with ``otherwise: value``, used unless reader and data are
    the paper's; ``{tokens: n}``, a length at the papers' chunks of 300 tokens, scaled to the reader's chunks;
    and ``auto:METHOD``, from the cost or the number of nodes of METHOD (:mod:`bench.run.equal_cost`)."""
    model: str | None = None
    """Role of the row's reader in the table's models; None: the table's reader."""
    only_reader: str | None = None
    """The one reader that the options are for, since they name parts of it; None: any."""
    in_paper: bool = True
    """False: the paper has no such row."""
    against: str | None = None
    """The row that it is compared with, question by question; None: the table's (``ratio_to``)."""
    stand_in: bool = False
    """Whether one of its models stands in for the paper's, so that no difference is shown."""

    def options(
        self,
        card: Card,
        models: Mapping[str, str] | None = None,
        *,
        as_published: bool = True,
        chunk_tokens: int = PAPER_CHUNK_TOKENS,
    ) -> dict[str, JsonValue]:
        """The row's options for one data set.

        models: role -> model, for the table's reader; as_published: whether reader and data are the paper's,
        so that its choices apply; chunk_tokens: of the reader's geometry. Raises DataError for a path that
        the card does not have, and ModelUnavailableError for a role without a model.
        """
        return {
            key: int(value["tokens"]) * chunk_tokens // PAPER_CHUNK_TOKENS
            if isinstance(value, Mapping) and set(value) == {"tokens"}
            else _look_up(value, card, self.id, models or {}, as_published)
            for key, value in self.set.items()
        }


class TableDefinition(Definition):
    """Which cells a table shows, and next to which published values."""

    kind: Literal["cells", "lengths", "amortised", "timed", "judged", "settings"] = "cells"
    """cells: scores and cost per row; lengths: of the data (no rows); amortised: cost of index and question;
    timed: seconds per question (:mod:`bench.tables.latency`); judged: compared with one row by a model
    (:mod:`bench.tables.judged`); settings: of a method's training (:mod:`bench.tables.settings`)."""
    title: str
    source: str
    datasets: tuple[str, ...]
    sample: tuple[str, ...] = ()
    """Data sets on the sample data, if some of ``datasets`` have no sample set."""
    metrics: tuple[str, ...]
    """Metrics of the data sets' cards, or measures of :mod:`bench.metrics.retrieval`."""
    printed: tuple[str, ...] = ()
    """Values that the paper prints for each row and data set (:data:`bench.tables.published.METRICS`); empty:
    no paper prints the table, and it has no file of published values."""
    printed_rows: tuple[str, ...] = ()
    """Rows of the published values if they differ from ``rows``: statistics of the data, or the parts of an
    amortised cost."""
    ratio_to: str | None = None
    """Row whose TFLOPs are 1 in the ratio column."""
    judged_against: str | None = None
    """Row that every other one is judged against."""
    notes: tuple[str, ...] = ()
    """Sentences of the caption that are specific to this table."""
    models: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Reader -> role -> model: the larger and smaller models that go with a reader (PECAN, Table 2)."""
    questions: dict[str, int] = Field(default_factory=dict)
    """Data set -> number of its questions, from the start, if the command sets no limit."""
    values_of: str = ""
    """The table whose published values are shown; empty: this one's own."""
    reader: str | None = None
    """The paper's reader: with it, on the full data, the paper's choices apply."""
    rows: tuple[Row, ...]

    @property
    def published_as(self) -> str:
        """Id of the table whose published values are shown."""
        return self.values_of or self.id

    @property
    def reference(self) -> Row | None:
        """The row ``ratio_to``; None: the table has no such row."""
        return next((row for row in self.rows if row.id == self.ratio_to), None)

    def is_of_paper(self, model: str, data: str, limit: int | None) -> bool:
        """Whether reader and data are the paper's."""
        return model == self.reader and data == "hub" and limit is None

    def on(self, data: str, datasets: Sequence[str] = ()) -> TableDefinition:
        """The table restricted to ``datasets``, by default all data sets that it shows on these data.

        Where ``data`` is a path, these are what it holds, and any name is a data set. Raises UnknownNameError
        for a data set that the table does not show.
        """
        shown = self.sample if data == "sample" and self.sample else self.datasets
        if not datasets:
            shown = datasets_at(data, shown)
        for name in datasets:
            if name not in shown and data in NOT_PATHS:
                raise UnknownNameError(f"data set of {self.id}", name, shown)
        return self.model_copy(update={"datasets": tuple(dict.fromkeys(datasets)) or shown})


def list_tables() -> list[TableDefinition]:
    """Every table definition: PECAN's (``tableN``) first, then the others, sorted by id."""
    paths = sorted(TABLES.glob("*.yaml"), key=lambda path: (not path.stem.startswith("table"), path.stem))
    return [read_definition(path, TableDefinition) for path in paths]


def load_table(table_id: str) -> TableDefinition:
    """The definition with that id; raises UnknownNameError or DataError."""
    return load_definition("table", table_id, TABLES, TableDefinition)


def model_of_role(role: str, models: Mapping[str, str]) -> str:
    """The table's model for a role; raises ModelUnavailableError if there is none."""
    if role not in models:
        raise ModelUnavailableError(f"the table's definition has no {role} model for this reader")
    return models[role]


def _look_up(value: Any, card: Card, row: str, models: Mapping[str, str], as_published: bool) -> JsonValue:
    if not (isinstance(value, Mapping) and set(value) - {"otherwise"} in ({"card"}, {"model"})):
        return value
    if "otherwise" in value and not as_published:
        return value["otherwise"]
    if "model" in value:
        return model_of_role(str(value["model"]), models)
    content: Any = card.model_dump(mode="json")
    for part in str(value["card"]).split("."):
        if not isinstance(content, Mapping) or content.get(part) is None:
            raise DataUnavailableError(f"row {row!r}: the card of {card.name!r} lacks {value['card']!r}.")
        content = content[part]
    return content


def with_rows(definition: TableDefinition, rows: Sequence[str]) -> TableDefinition:
    """The table with rows appended, each ``METHOD`` or ``METHOD:KEY=VALUE,KEY=VALUE``.

    Raises UnknownNameError for a method that is not installed, ConfigError for a row that the table has and
    for a table without rows of methods.
    """
    if rows and definition.kind in WITHOUT_CELLS:
        raise ConfigError(f"--row {rows[0]}: {definition.id} has no rows of methods. Leave the option out.")
    methods = registered_methods()
    added: list[Row] = []
    for text in rows:
        method, options = parse_method(text)
        if method not in methods:
            raise UnknownNameError("method", method, methods, hint="See: bench list methods")
        if text in {row.id for row in (*definition.rows, *added)}:
            raise ConfigError(f"--row {text}: {definition.id} already has this row. Leave the option out.")
        label = " ".join([method, *(f"{key}={value}" for key, value in options.items())])
        added.append(Row(id=text, label=label, method=method, set=options))
    return definition.model_copy(update={"rows": (*definition.rows, *added)})
