"""Typed values of finished cells for tests that need no files: what is not given has a plain default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.results.finished import FinishedCell
from bench.results.models import CellDescription, Summary


def summary(**fields: Any) -> Summary:
    """A summary of four answered questions; intervals are given as mappings."""
    values: dict[str, Any] = {
        "summary_version": 4,
        "cell_id": "0123",
        "n": 4,
        "n_documents": 2,
        "n_failed": 0,
        "n_truncated": 0,
        "metrics": {"f1": {"mean": 0.5, "low": 0.4, "high": 0.6}},
        "query_flops": {"mean": 1e12, "low": None, "high": None},
        "index_flops": 0.0,
        "flop_convention": "paper",
        "tokens": {"prompt": 100.0, "completion": 4.0, "forwarded": 104.0},
        "context_items": 5.0,
        "wall_s": 0.5,
        "flags": {},
        "errors": {},
    }
    return Summary.model_validate({**values, **fields})


def description(**fields: Any) -> CellDescription:
    """The description of a cell of BM25 on the Qasper sample, read by ``tiny``."""
    values: dict[str, Any] = {
        "cell_id": "0123",
        "method": "bm25",
        "method_version": "1",
        "config": {"prompt": "pecan"},
        "dataset": "qasper",
        "data_source": "sample",
        "data_label": "qasper (sample)",
        "data_revision": "sha256:abcdef123456",
        "n_examples": 4,
        "models": {"reader": {"name": "tiny", "revision": "0123456789"}},
        "geometry": {"chunk_tokens": 75, "window": 2048, "input_limit": 4096},
        "model": "tiny",
        "model_label": "tiny",
        "model_small": True,
        "dtype": "float32",
        "flop_convention": "paper",
        "git_commit": "abc",
        "metrics": ["f1"],
    }
    return CellDescription.model_validate({**values, **fields})


def finished(of: Summary, about: CellDescription | None = None) -> FinishedCell:
    """A finished cell that lies nowhere."""
    return FinishedCell(Path("nowhere"), about or description(), of)
