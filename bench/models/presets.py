"""The models that can be named without a hub id or folder: ``presets.yaml``, validated.

A preset includes the sizes in its config, so that estimating costs needs neither a download nor torch.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bench.files.yaml import read_yaml
from bench.flops.architecture import Architecture, architecture_from_config
from bench.models.api import Geometry
from bench.models.packed import PackedSource
from bench.models.sources import AssetSource, HubSource, PackageSource

ModelKind = Literal["causal", "encoder"]
Pooling = Literal["mean", "cls"]
"""How an encoder turns its token vectors into one: their mean, or the first one."""

PAPER_CHUNK_TOKENS = 300
PAPER_WINDOW = 8192
PAPER_INPUT_LIMIT = 100_000
PAPER_SUMMARY_TOKENS = 2048
"""PECAN, Sec. 3.1 (chunks), 4 (s = 8K), 4.1 (full context cut at 100K); room for a summary: our choice."""


class Preset(BaseModel):
    """A named model: description, sources of its files, and the lengths at which it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: ModelKind
    label: str
    """As printed in tables."""
    description: str
    """One line for ``bench list models``."""
    licence: str
    bibtex: str = ""
    """The paper that describes the model; empty if it has none, or is of this project."""
    sources: tuple[HubSource | AssetSource | PackageSource | PackedSource, ...]
    """In the order tried; the last one is fetched if none is on this machine."""
    config: dict[str, int | str | bool] | None = None
    """What of its ``config.json`` its cost depends on; None for a shipped model, whose folder has it."""
    geometry: Geometry | None = None
    """None: :func:`bench.models.spec.default_geometry`; ``input_limit`` is always capped at the model's
    positions."""
    small: bool = False
    """Whether it is a small model trained by this project; every table made with it says so."""
    caution: str = ""
    """A sentence on what its scores can and cannot show, for every table made with it."""
    chat: str = "template"
    """``template`` (the tokenizer's own) or the name of a plain format in :mod:`bench.models.chat`."""
    pooling: Pooling | None = None
    normalised: bool = False
    max_tokens: int | None = None
    """An encoder's truncation length, special tokens included."""
    recommended_options: dict[str, str] = {}
    """Option -> value for every method with the option, unless it is set explicitly. Chosen on questions that
    no table uses."""

    @cached_property
    def architecture(self) -> Architecture | None:
        """The model's shape; None for a shipped model."""
        return None if self.config is None else architecture_from_config(self.config)


class _Presets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    presets: tuple[Preset, ...]


@cache
def presets() -> dict[str, Preset]:
    """Name -> preset, in the order of the file."""
    return {one.name: one for one in read_yaml(Path(__file__).with_suffix(".yaml"), _Presets).presets}


REAL = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "all-mpnet-base-v2")
"""The models of the table on real text: its reader, its compressor, its sentence encoder."""
