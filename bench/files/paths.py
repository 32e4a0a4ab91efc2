"""Paths: of the project's own files (cards, published values, shipped models), and those that users write."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_REPOSITORY = _PACKAGE.parent

ASSETS = _PACKAGE / "assets"
"""Shipped models (safetensors, tokenizers) with their cards and checksums."""


def _shipped(name: str) -> Path:
    """A data folder: inside the installed package (wheel) or at the repository's top level (checkout)."""
    inside = _PACKAGE / "_shipped" / name
    return inside if inside.is_dir() else _REPOSITORY / name


DATASET_CARDS = _shipped("datasets")
"""YAML cards, one per data set; ``sample/`` below it holds the shipped sample sets."""
SAMPLE_SETS = DATASET_CARDS / "sample"
TABLES = _shipped("paper_tables")
"""Table definitions (YAML) and the papers' published values (CSV)."""


def written_path(text: str) -> Path:
    """The path that a user wrote; ``~name`` of somebody who does not exist is a name like any other."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 -- pathlib's raises RuntimeError for that one
