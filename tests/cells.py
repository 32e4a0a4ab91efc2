"""Typed values of finished cells and of tables: what is not given has a plain default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from bench.results.finished import FinishedCell
from bench.results.models import CellDescription, Summary
from bench.results.records import FlopCounts, Record, RecordStore, TokenCounts
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row, TableDefinition


def flops(query: int = 1, index: int = 0, **by_model: Any) -> FlopCounts:
    """FLOPs in the papers' convention."""
    usage = {"query_by_model": {}, "index_by_model": {}, **by_model}
    return FlopCounts(query=query, index=index, convention="paper", **usage)


def record(number: int = 0, **fields: Any) -> Record:
    """A record of a question that was answered rightly; two questions share a document."""
    values: dict[str, Any] = {
        "example_id": f"q{number}",
        "document_ids": [f"d{number // 2}"],
        "question": "?",
        "answers": ["a"],
        "prediction": "a",
        "scores": {"f1": 1.0},
        "context": [],
        "tokens": TokenCounts(prompt=1, completion=1, forwarded=2),
        "flops": flops(),
        "truncated": False,
        "flags": [],
        "wall_s": 0.1,
        "error": None,
        "trace": {},
    }
    if "scores" in fields and not {"prediction", "answers"} & set(fields):
        values |= _texts_with_f1(fields["scores"].get("f1", 1.0))
    return Record(**{**values, **fields})


def _texts_with_f1(f1: float) -> dict[str, Any]:
    """Prediction and reference of as many words, of which so large a share is the same."""
    share = Fraction(f1).limit_denominator(1000)
    words = [f"word{i}" for i in range(share.denominator)]
    return {
        "prediction": " ".join(words[: share.numerator] + ["x"] * (len(words) - share.numerator)),
        "answers": [" ".join(words)],
    }


def summary(**fields: Any) -> Summary:
    """A summary of four answered questions; intervals are given as mappings."""
    values: dict[str, Any] = {
        "summary_version": 4,
        "cell_id": "0123",
        **{"n": 4, "n_documents": 2, "n_failed": 0, "n_truncated": 0},
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
        **{"model": "tiny", "model_label": "tiny", "model_small": True, "dtype": "float32"},
        "flop_convention": "paper",
        "git_commit": "abc",
        "metrics": ["f1"],
    }
    return CellDescription.model_validate({**values, **fields})


def finished(of: Summary, about: CellDescription | None = None) -> FinishedCell:
    """A finished cell that lies nowhere."""
    return FinishedCell(Path("nowhere"), about or description(), of)


def table(*shown: TableCell, **fields: Any) -> TableData:
    """A table of these cells, in their order."""
    values: dict[str, Any] = {
        "id": "t",
        "title": "T",
        "source": "S",
        "datasets": tuple(dict.fromkeys(cell.dataset for cell in shown)),
        "metrics": ("f1",),
        "rows": tuple({cell.row.id: cell.row for cell in shown}.values()),
    }
    cells = {(cell.row.id, cell.dataset): cell for cell in shown}
    return TableData(TableDefinition.model_validate({**values, **fields}), cells)


def table_of_records(folder: Path, rows: Mapping[str, Sequence[Record]], **fields: Any) -> TableData:
    """A table of one cell for each row, whose records lie in the folder."""
    shown = []
    for name, records in rows.items():
        (folder / name).mkdir()
        with RecordStore(folder / name) as store:
            for one in records:
                store.append(one)
        cell = FinishedCell(folder / name, description(), summary(n=len(records)))
        shown.append(TableCell(Row(id=name, label=name.upper(), method="bm25"), "qasper", cell))
    return table(*shown, **fields)
