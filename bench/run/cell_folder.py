"""A cell's folder: claimed for that cell alone, its records locked, its summary written at the end."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.files.paths import written_path
from bench.models.served.address import without_url
from bench.results.finished import (
    FinishedCell,
    changed_since_summary,
    read_finished,
    records_so_far,
    write_summary,
)
from bench.results.models import CellDescription, read_description, read_summary
from bench.results.records import CELL_FILE, FLOP_CONVENTION, RecordStore
from bench.results.summary import SUMMARY_VERSION, summarize
from bench.run.cell import Cell, recommended_options
from bench.run.provenance import environment
from bench.schema import JsonValue

log = logging.getLogger(__name__)

FILES_OF_A_CELL = 2
"""Files that stay open for a cell: its records and its lock."""


@contextlib.contextmanager
def open_records(cell: Cell, folder: Path) -> Iterator[RecordStore]:
    """The cell's records; this process claims and locks the folder until the end of the block.

    Raises BenchError for a folder that belongs to another cell or cannot be written or locked.
    """
    _refuse_other_cell(cell, folder)
    with RecordStore(folder) as store:
        _claim(cell, folder)
        _refuse_foreign(cell, store)
        if changed_since_summary(folder):
            log.warning("%s were changed since their summary was written; it is written again", store.path)
        store.set_right(cell.card.metrics)
        yield store


def finish(cell: Cell, store: RecordStore, answered: int = 0) -> FinishedCell:
    """The cell whose every question has a record, its summary written; answered: questions just now."""
    records, order = dict(store.done), [example.id for example in cell.data.examples]
    store.put_in_order(order)
    ordered = [records[example] for example in order]
    summary = write_summary(store.folder, ordered, cell.card.metrics, cell.identity.cell_id)
    return FinishedCell(store.folder, read_description(store.folder), summary, answered)


def finished_cell(cell: Cell, folder: Path) -> FinishedCell | None:
    """The finished cell in ``folder``, or None if any of its files is missing, damaged or stale.

    A summary without a metric of the card is stale: running the cell writes it again, from the records.
    """
    finished = read_finished(folder)
    if finished is None or finished.id != cell.identity.cell_id:
        return None
    summary = finished.summary
    metrics = set(cell.card.metrics) if summary.n_scored else set()
    is_current = summary.summary_version == SUMMARY_VERSION and set(summary.metrics) == metrics
    return finished if is_current else None


def cell_so_far(cell: Cell, folder: Path, first: int | None = None) -> FinishedCell | None:
    """What has been asked of a cell that is not finished; None if nothing was, or the folder is another's.

    None, too, where ``cell.json`` is damaged, which running the cell mends.
    first: only its first questions, and None unless all of these have a record.
    """
    try:
        description = read_description(folder)
    except BenchError:
        return None
    if description.cell_id != cell.identity.cell_id:
        return None
    wanted = [example.id for example in cell.data.examples[:first]]
    records = records_so_far(folder)
    asked = tuple(example for example in wanted if example in records)
    if not asked or (first is not None and len(asked) < len(wanted)):
        return None
    summary = summarize([records[i] for i in asked], cell.card.metrics, cell_id=cell.identity.cell_id)
    return FinishedCell(folder, description, summary, asked=asked)


def describe(cell: Cell) -> CellDescription:
    """The content of ``cell.json``: the full identity, labels, and where the numbers come from."""
    data_path = written_path(cell.request.data)
    return CellDescription.model_validate(
        {
            "cell_id": cell.identity.cell_id,
            **asdict(cell.identity),
            "non_defaults": _non_defaults(cell),
            "replayed": sorted(cell.method.replayed),
            "choices": {
                **cell.method.choices(),
                **({"train_on": cell.training.training.data} if cell.training else {}),
            },
            "model": without_url(cell.request.model),
            "model_label": cell.reader.label,
            "model_small": cell.reader.small,
            **({"unfit_models": cell.unfit} if cell.unfit else {}),
            **({"data_path": str(data_path.absolute())} if cell.data.source == "path" else {}),
            "dtype": cell.reader.actual_dtype,
            "limit": cell.request.limit,
            "flop_convention": FLOP_CONVENTION,
            "metrics": cell.card.metrics,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **environment(),
        }
    )


def _non_defaults(cell: Cell) -> tuple[str, ...]:
    """The options of the method whose value is neither the default nor what suits the reader."""
    method, config = type(cell.method), cell.identity.config
    fields = method.Config.model_fields
    usual = {name: option.get_default(call_default_factory=True) for name, option in fields.items()}
    usual |= recommended_options(cell.reader, method, cell.card)
    return tuple(name for name, value in config.items() if name in fields and value != usual[name])


def other_cell_in(cell: Cell, folder: Path) -> JsonValue:
    """The id of the other cell that owns the folder; None if it is this cell's or has no owner."""
    owners = [_cell_id_in(folder)]
    with contextlib.suppress(BenchError):  # a copied summary comes with the records that it is of
        owners.append(read_summary(folder).cell_id or None)
    return next((owner for owner in owners if owner not in (None, cell.identity.cell_id)), None)


def _refuse_other_cell(cell: Cell, folder: Path) -> None:
    """Raise BenchError for a folder that belongs to another cell, before anything in it is changed."""
    owner = other_cell_in(cell, folder)
    if owner is not None:
        raise BenchError(
            f"{folder} holds the records of another cell ({owner}); this run is "
            f"{cell.identity.cell_id}. Move the folder away, or choose another --results."
        )


def _claim(cell: Cell, folder: Path) -> None:
    """Write ``cell.json`` unless there is a valid one; call it with the folder locked."""
    _refuse_other_cell(cell, folder)  # another run may have claimed it while this one waited for the lock
    try:
        read_description(folder)
    except BenchError:
        write_json(folder / CELL_FILE, describe(cell).to_json())


def _cell_id_in(folder: Path) -> JsonValue:
    """The id in a folder's ``cell.json``, even if the rest is invalid; None if there is none."""
    try:
        return json.loads((folder / CELL_FILE).read_bytes())["cell_id"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _refuse_foreign(cell: Cell, store: RecordStore) -> None:
    own = {example.id for example in cell.data.examples}
    foreign = [i for i in store.done if i not in own]
    if foreign:
        raise BenchError(
            f"{store.path} has {len(foreign)} record(s) of questions that this cell does not ask, such as "
            f"{foreign[0]!r}. Move the file away, or choose another --results."
        )
