"""A cell's folder: claimed for that cell alone, its records held open, its summary written at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.method.contract import Method
from bench.method.registry import load_method, registered_methods
from bench.metrics.retrieval import retrieval_quality
from bench.results.finished import FinishedCell, read_finished, records_digest
from bench.results.models import CellDescription, Summary, read_description
from bench.results.records import CELL_FILE, FLOP_CONVENTION, SUMMARY_FILE, RecordStore
from bench.results.summary import SUMMARY_VERSION, summarize
from bench.run.cell import Cell
from bench.run.provenance import environment
from bench.schema import JsonValue

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


def finish(cell: Cell, store: RecordStore) -> Summary:
    """The summary of a cell whose every question has a record, written beside the records."""
    _measure_retrieval(cell, store)
    store.put_in_order([example.id for example in cell.data.examples])
    summary = summarize(
        list(store.done.values()),
        cell.card.metrics,
        cell_id=cell.identity.cell_id,
        records_sha256=records_digest(store.folder),
    )
    write_json(store.folder / SUMMARY_FILE, summary.to_json())
    return summary


def finished_cell(cell: Cell, folder: Path) -> FinishedCell | None:
    """The finished cell in ``folder``, or None if anything of it is missing, damaged or stale."""
    found = read_finished(folder)
    if found is None or found.id != cell.identity.cell_id:
        return None
    current = found.summary.summary_version == SUMMARY_VERSION and set(found.summary.metrics) == set(
        cell.card.metrics
    )
    return found if current else None


def finished_summary(cell: Cell, folder: Path) -> Summary | None:
    """The summary of a finished cell in ``folder``, or None as :func:`finished_cell`."""
    found = finished_cell(cell, folder)
    return None if found is None else found.summary


def describe(cell: Cell) -> CellDescription:
    """What ``cell.json`` says of the cell: the identity in full, labels, and where the numbers come from."""
    return CellDescription.model_validate(
        {
            "cell_id": cell.identity.cell_id,
            **asdict(cell.identity),
            "non_defaults": _non_defaults(type(cell.method), cell.identity.config),
            "replayed": sorted(cell.method.replayed),
            "choices": {
                **cell.method.choices(),
                **({"train_on": cell.training.training.data} if cell.training else {}),
            },
            "model": cell.request.model,
            "model_label": cell.reader.label,
            "model_small": cell.reader.small,
            "dtype": cell.reader.actual_dtype,
            "limit": cell.request.limit,
            "flop_convention": FLOP_CONVENTION,
            "metrics": cell.card.metrics,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **environment(),
        }
    )


def with_method(description: CellDescription) -> CellDescription:
    """The description of a cell with what its method says of its options.

    Cells recorded before descriptions held that are completed from the installed method; without it they
    stay as they are.
    """
    if description.replayed is not None and description.non_defaults is not None:
        return description
    try:
        method = load_method(description.method)
    except BenchError:  # recorded with a plugin that is not installed here
        return description
    return description.model_copy(
        update={
            "replayed": tuple(sorted(method.replayed)),
            "non_defaults": _non_defaults(method, description.config),
        }
    )


def _non_defaults(method: type[Method[Any]], config: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The options of the method whose value in ``config`` is not the default."""
    fields = method.Config.model_fields
    return tuple(
        name
        for name, value in config.items()
        if name in fields and value != fields[name].get_default(call_default_factory=True)
    )


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
    """Write ``cell.json``, unless a whole one is there; under the folder's lock."""
    _refuse_other_cell(cell, folder)  # which may have come while this run waited for the lock
    try:
        read_description(folder)
    except BenchError:
        write_json(folder / CELL_FILE, describe(cell).to_json())


def _cell_id_in(folder: Path) -> JsonValue:
    """The id in a folder's ``cell.json``, however damaged the rest of it is; None where there is none."""
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


def method_of(folder: Path) -> type[Method[Any]] | None:
    """The method that wrote the records in a cell's folder; None if it is not known or not installed."""
    try:
        cell = read_description(folder)
    except BenchError:
        return None
    method = load_method(cell.method) if cell.method in registered_methods() else None
    return method if method is not None and method.version == cell.method_version else None
