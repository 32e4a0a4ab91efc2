"""A cell's folder: claimed for that cell alone, its records held open, its summary written at the end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench.cell import Cell
from bench.errors import BenchError
from bench.files import write_json
from bench.provenance import environment
from bench.records import CELL_FILE, FLOP_CONVENTION, RECORDS_FILE, SUMMARY_FILE, RecordStore
from bench.retrieval_quality import retrieval_quality
from bench.schema import JsonValue
from bench.summary import SUMMARY_VERSION, summarize

FILES_OF_A_CELL = 2
"""That an open one holds: its records and its lock."""


@contextmanager
def open_records(cell: Cell, folder: Path) -> Iterator[RecordStore]:
    """The cell's records; the folder is claimed and held by this process until the end of the block.

    Raises BenchError for a folder of another cell, or one that cannot be written or locked.
    """
    _refuse_other_cell(cell, folder)
    with RecordStore(folder) as store:
        _claim(cell, folder)
        _refuse_foreign(cell, store)
        yield store


def finish(cell: Cell, store: RecordStore) -> Mapping[str, JsonValue]:
    """The summary of a cell whose every question has a record, written beside the records."""
    _measure_retrieval(cell, store)
    store.put_in_order([example.id for example in cell.data.examples])
    summary = {
        **summarize(list(store.done.values()), cell.card.metrics),
        "cell_id": cell.identity.cell_id,
        "records_sha256": _sha256(store.path),
    }
    write_json(store.folder / SUMMARY_FILE, summary)
    return summary


def finished_summary(cell: Cell, folder: Path) -> Mapping[str, JsonValue] | None:
    """The summary of a finished cell in ``folder``, or None if anything of it is missing or stale."""
    try:
        summary = json.loads((folder / SUMMARY_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    current = (
        isinstance(summary, dict)
        and summary.get("cell_id") == cell.identity.cell_id
        and summary.get("summary_version") == SUMMARY_VERSION
        and isinstance(summary.get("metrics"), dict)
        and set(summary["metrics"]) == set(cell.card.metrics)
        and isinstance(summary.get("n_failed"), int)
        and summary.get("records_sha256") == _sha256(folder / RECORDS_FILE)
    )
    return summary if current else None


def describe(cell: Cell) -> dict[str, JsonValue]:
    """``cell.json``: the identity in full, labels, and where the numbers come from."""
    return {
        "cell_id": cell.identity.cell_id,
        **asdict(cell.identity),
        "model": cell.request.model,
        "model_label": cell.reader.label,
        "model_small": cell.reader.small,
        "dtype": cell.reader.actual_dtype,
        "limit": cell.request.limit,
        "flop_convention": FLOP_CONVENTION,
        "metrics": list(cell.card.metrics),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
    }


def other_cell_in(cell: Cell, folder: Path) -> JsonValue:
    """The id of another cell that the folder belongs to; None: it is this cell's, or nobody's."""
    there = _cell_id_in(folder)
    return None if there == cell.identity.cell_id else there


def _refuse_other_cell(cell: Cell, folder: Path) -> None:
    """Raise BenchError for a folder that belongs to another cell; nothing there has been touched."""
    there = other_cell_in(cell, folder)
    if there is not None:
        raise BenchError(
            f"{folder} holds the records of another cell ({there}); this run is "
            f"{cell.identity.cell_id}. A changed option, model or data set is another cell: choose "
            "another --out."
        )


def _claim(cell: Cell, folder: Path) -> None:
    """Write ``cell.json``, unless it is there; under the folder's lock."""
    _refuse_other_cell(cell, folder)  # which may have come while this run waited for the lock
    if _cell_id_in(folder) is None:
        write_json(folder / CELL_FILE, describe(cell))


def _cell_id_in(folder: Path) -> JsonValue:
    """The id in a folder's ``cell.json``; None where there is none, or none that can be read."""
    try:
        return json.loads((folder / CELL_FILE).read_bytes())["cell_id"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _refuse_foreign(cell: Cell, store: RecordStore) -> None:
    asked = {example.id for example in cell.data.examples}
    foreign = [i for i in store.done if i not in asked]
    if foreign:
        raise BenchError(
            f"{store.path} holds {len(foreign)} record(s) of other questions, such as {foreign[0]!r}. "
            "Choose another --out, or move the file away."
        )


def _measure_retrieval(cell: Cell, store: RecordStore) -> None:
    """Records of a version that did not measure their context get its measures; nothing is asked again."""
    examples = {example.id: example for example in cell.data.examples}
    old = [record for record in store.done.values() if record.retrieval is None]
    if old:
        measured = ((r, retrieval_quality(r.context, examples[r.example_id])) for r in old)
        store.replace([record.model_copy(update={"retrieval": found}) for record, found in measured])


def _sha256(path: Path) -> str | None:
    """Hash of a file's bytes; None when there is no such file."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        return None
