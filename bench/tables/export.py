"""Export of a table's cells without any text of the data, and the table made from such an export.

``TABLE_cells.json`` has each cell's description and summary, ``TABLE_questions.csv`` one line per question:
ids, scores, costs and flags.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from bench.errors import BenchError, DataError
from bench.files.atomic import write_json, write_text
from bench.results.finished import FinishedCell
from bench.results.models import CellDescription, Summary
from bench.results.records import RECORDS_FILE, Record, read_records
from bench.schema import JsonValue
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import TableDefinition

_COLUMNS = (
    *("row", "dataset", "cell_id", "example_id", "documents"),
    *("query_flops", "index_flops", "prompt_tokens", "completion_tokens", "passages"),
    *("p_yes", "wall_s", "truncated", "flags", "error"),
)
"""First columns of a question's line; scores and measures of its context follow (0..1; empty: undefined)."""


def export_table(table: TableData, folder: Path) -> tuple[Path, Path]:
    """Write the table's finished cells into the folder; returns the two files.

    Raises BenchError if no cell is finished, or if records cannot be read.
    """
    finished = [(cell, cell.finished) for cell in table.cells.values() if cell.finished is not None]
    if not finished:
        name = table.definition.id
        raise BenchError(f"{name}: no cell is finished, nothing to export. Run first: bench table {name}")
    cells, questions = _files(table.definition, folder)
    lines = [line for cell, done in finished for line in _lines(cell, done)]
    columns = list(dict.fromkeys((*_COLUMNS, *(column for line in lines for column in line))))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(questions, text.getvalue())
    write_json(
        cells,
        [
            {
                "row": cell.row.id,
                "dataset": cell.dataset,
                "options": dict(cell.row.set),
                "cell": done.description.to_json(),
                "summary": done.summary.to_json(),
            }
            for cell, done in finished
        ],
    )
    return cells, questions


def exported_table(definition: TableDefinition, folder: Path) -> TableData:
    """The table from an export of :func:`export_table`; needs neither data nor models.

    Raises DataError for a folder without this table's cells, or an invalid file.
    """
    path, _ = _files(definition, folder)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Run: bench table {definition.id} --export {folder}")
    rows = {row.id: row for row in definition.rows}
    cells = {
        (row, dataset): TableCell(rows[row], dataset, None, "not in this export")
        for dataset in definition.datasets
        for row in rows
    }
    try:
        for entry in json.loads(path.read_bytes()):
            key = entry["row"], entry["dataset"]
            if key not in cells:
                continue  # a data set that was not requested, or a row that the definition does not have
            description = CellDescription.model_validate(entry["cell"])
            summary = Summary.model_validate(entry["summary"])
            row = rows[entry["row"]].model_copy(update={"set": dict(entry["options"])})
            cells[key] = TableCell(row, entry["dataset"], FinishedCell(folder, description, summary))
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise DataError(f"{path}: not the cells of a table ({fault}). Export them again.") from None
    return TableData(definition, cells)


def _files(definition: TableDefinition, folder: Path) -> tuple[Path, Path]:
    return folder / f"{definition.id}_cells.json", folder / f"{definition.id}_questions.csv"


def _lines(cell: TableCell, finished: FinishedCell) -> Iterator[dict[str, JsonValue]]:
    for record in read_records(finished.folder / RECORDS_FILE):
        yield {
            "row": cell.row.id,
            "dataset": cell.dataset,
            "cell_id": finished.id,
            "example_id": record.example_id,
            "documents": "+".join(_distinct(record.document_ids)),
            "query_flops": record.flops.query,
            "index_flops": record.flops.index,
            "prompt_tokens": record.tokens.prompt,
            "completion_tokens": record.tokens.completion,
            "passages": len(record.context),
            "p_yes": _last_p_yes(record),
            "wall_s": round(record.wall_s, 3),
            "truncated": int(record.truncated),
            "flags": "+".join(record.flags),
            "error": record.failure.kind if record.failure else "",
            **record.scores,
            **(record.retrieval or {}),
        }


def _distinct(ids: Sequence[str]) -> Sequence[str]:
    return tuple(dict.fromkeys(ids))


def _last_p_yes(record: Record) -> JsonValue:
    """The probability of Yes at the end of a search; None for a method that does not probe."""
    steps = record.trace.get("steps") if isinstance(record.trace, dict) else None
    probed = [step["p_yes"] for step in steps or () if step.get("p_yes") is not None]
    return probed[-1] if probed else None
