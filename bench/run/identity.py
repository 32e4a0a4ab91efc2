"""A cell's identity: the hash of everything that can change its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from bench.files.hashing import stable_hash
from bench.schema import JsonValue

IDENTITY_VERSION = 1
"""Increment it when the harness changes what a record contains or how it is scored."""


@dataclass(frozen=True)
class CellIdentity:
    """Everything that defines a cell: a method with its full config, a data set, and models."""

    method: str
    method_version: str
    config: Mapping[str, JsonValue]
    """Every option with its value, defaults included."""
    dataset: str
    data_source: str
    """``sample``, ``hub`` or ``path``."""
    data_label: str
    """As printed: ``qasper (sample)``."""
    data_revision: str
    examples: str
    """Hash of the example ids in order."""
    n_examples: int
    models: Mapping[str, Mapping[str, JsonValue]]
    """Role -> model identity (name, source, revision or weight hash, dtype)."""
    geometry: Mapping[str, int]
    prompts: str
    """Hash of the reader's prompt texts, the card's templates and what the papers fix for the set."""
    max_new_tokens: int
    seed: int
    training: str = ""
    """Hash of the documents that the method learns from, if they are not the run's own."""
    inner: tuple[str, ...] = ()
    """Name and version of every method inside this one, outermost first."""

    @cached_property
    def cell_id(self) -> str:
        """16 hex digits; labels are left out, so that renaming a file does not make a new cell."""
        parts = asdict(self)
        del parts["data_label"]
        if not self.training:  # most methods learn nothing, or from the run's own documents
            del parts["training"]
        if not self.inner:
            del parts["inner"]
        return stable_hash({"identity_version": IDENTITY_VERSION, **parts})

    @property
    def folder(self) -> str:
        """Readable and unique folder name below ``results/cells``."""
        return f"{self.method}--{self.dataset}--{self.cell_id}"
