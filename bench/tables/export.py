"""Export of a table's cells without any text of the data, and the table made from such an export.

``TABLE_cells.json`` has each cell's description and summary, ``TABLE_questions.csv`` one line per question:
ids, scores, costs and flags.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bench.errors import BenchError, DataError
from bench.files.atomic import write_json, write_text
from bench.method.trace import SearchTrace
from bench.results.finished import FinishedCell
from bench.results.models import CellDescription, Summary
from bench.results.records import Record, error_kind
from bench.schema import JsonValue
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import TableDefinition
from bench.tables.formats import csv_text

_COLUMNS = (
    *("row", "dataset", "cell_id", "example_id", "documents"),
    *("query_flops", "index_flops", "prompt_tokens", "completion_tokens", "passages"),
    *("p_yes", "wall_s", "truncated", "flags", "error"),
)
"""First columns of a question's line; scores and measures of its context follow (0..1; empty: undefined)."""


def export_table(table: TableData, folder: Path) -> tuple[Path, Path]:
    """Write the table's finished cells into the folder; returns the two files.

    Cells of an earlier export that are not finished here stay, so that a long table can be exported in parts.
    Raises BenchError if no cell is finished, if records cannot be read, or if the earlier export cannot.
    """
    whole = table.without_unfinished().cells.values()
    finished = [(cell, cell.finished) for cell in whole if cell.finished is not None]
    if not finished:
        name = table.definition.id
        raise BenchError(f"{name}: no cell is finished, nothing to export. Run first: bench table {name}")
    cells, questions = _files(table.definition, folder)
    written = {(cell.row.id, cell.dataset) for cell, _ in finished}
    entries, lines = _kept(cells, questions, written)
    lines += [line for cell, done in finished for line in _lines(cell, done)]
    entries += [
        {
            "row": cell.row.id,
            "dataset": cell.dataset,
            "options": dict(cell.row.set),
            "cell": {k: v for k, v in done.description.to_json().items() if k != "data_path"},
            "summary": done.summary.to_json(),
        }
        for cell, done in finished
    ]
    places = {key: place for place, key in enumerate(table.cells)}
    for part in (entries, lines):
        part.sort(key=lambda item: places.get((str(item["row"]), str(item["dataset"])), len(places)))
    columns = list(dict.fromkeys((*_COLUMNS, *(column for line in lines for column in line))))
    write_text(questions, csv_text([columns, *([line.get(name, "") for name in columns] for line in lines)]))
    write_json(cells, entries)
    return cells, questions


def exported_table(definition: TableDefinition, folder: Path) -> TableData:
    """The table from an export of :func:`export_table`; needs neither data nor models.

    Raises DataError for a folder without this table's cells, or an invalid file.
    """
    path, questions = _files(definition, folder)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Run: bench table {definition.id} --export {folder}")
    rows = {row.id: row for row in definition.rows}
    cells = {
        (row, dataset): TableCell(rows[row], dataset, None, "not in this export")
        for dataset in definition.datasets
        for row in rows
    }
    try:
        entries = json.loads(path.read_bytes())
        for entry in entries:
            key = entry["row"], entry["dataset"]
            if key not in cells:
                continue  # a data set that was not requested, or a row that the definition does not have
            description = CellDescription.model_validate(entry["cell"])
            summary = Summary.model_validate(entry["summary"])
            for metric in definition.metrics:
                summary.interval(metric)  # a KeyError says which one it lacks
            row = rows[entry["row"]].model_copy(update={"set": dict(entry["options"])})
            finished = ExportedCell(folder, description, summary, row=row.id, questions=questions)
            cells[key] = TableCell(row, entry["dataset"], finished)
    except (ValueError, KeyError, TypeError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise DataError(f"{path}: not the cells of a table ({fault}). Export them again.") from None
    if not any(cell.finished for cell in cells.values()):
        has = ", ".join(dict.fromkeys(str(entry["dataset"]) for entry in entries))
        wanted = ", ".join(definition.datasets)
        raise DataError(f"{path} has no cell of {wanted}, but of {has}: name a data set with --dataset.")
    return TableData(definition, cells)


@dataclass(frozen=True)
class ExportedCell(FinishedCell):
    """A cell of an export: its records have ids, scores and sums of costs, and nothing else."""

    row: str = ""
    questions: Path = Path()
    """The file that has its questions beside those of other rows."""

    def read_records(self) -> Iterator[Record]:
        """Its records in the order of the data. Raises DataError for a file that cannot be read."""
        path, place = self.questions, (self.row, self.description.dataset)
        try:
            lines = _questions(path, path.stat().st_mtime_ns).get(place, ())
            own = sum(line["cell_id"] == self.summary.cell_id for line in lines)
            if not own == len(lines) == self.summary.n:
                found = f"{len(lines)} lines of {', '.join(place)}, {own} of them of its cell"
                raise ValueError(f"{found}, which has {self.summary.n} questions")
            for line in lines:
                yield _record(line, self.summary)
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            fault = " ".join(f"{type(error).__name__}: {error}".split("\n")[:3])
            raise DataError(f"{path}: not the questions of a table ({fault}). Export them again.") from None


@lru_cache(maxsize=1)
def _questions(path: Path, changed: int) -> Mapping[tuple[str, str], Sequence[Mapping[str, str]]]:
    """The lines of a file that changed last then, by row and data set; all cells of an export read one."""
    lines: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            lines.setdefault((line["row"], line["dataset"]), []).append(line)
    return lines


def _record(line: Mapping[str, str], summary: Summary) -> Record:
    ledgers = {"convention": summary.flop_convention, "query_by_model": {}, "index_by_model": {}}
    return Record.model_validate(
        {
            **{name: line[name] for name in ("example_id", "truncated", "wall_s")},
            **dict.fromkeys(("answers", "context", "flags"), ()),
            **dict.fromkeys(("prediction", "trace")),
            "question": "",
            "document_ids": line["documents"].split("+"),
            "scores": {name: line[name] for name in summary.metrics if line.get(name)},
            "tokens": {of: line[f"{of}_tokens"] for of in ("prompt", "completion")} | {"forwarded": 0},
            "flops": {of: line[f"{of}_flops"] for of in ("query", "index")} | ledgers,
            "error": line["error"] or None,
        }
    )


def _kept(
    cells: Path, questions: Path, written: Set[tuple[str, str]]
) -> tuple[list[dict[str, JsonValue]], list[dict[str, JsonValue]]]:
    """Cells and questions of the export that is there, without those that are written now."""
    if not cells.is_file():
        return [], []
    try:
        entries = json.loads(cells.read_bytes())
        with questions.open(encoding="utf-8", newline="") as file:
            lines: list[dict[str, JsonValue]] = list(csv.DictReader(file))
        return (
            [entry for entry in entries if (entry["row"], entry["dataset"]) not in written],
            [line for line in lines if (line["row"], line["dataset"]) not in written],
        )
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(
            f"{cells.parent}: its export cannot be read ({type(error).__name__}: {error}), so "
            "nothing is added to it. Repair it, or export into another folder."
        ) from None


def _files(definition: TableDefinition, folder: Path) -> tuple[Path, Path]:
    return folder / f"{definition.id}_cells.json", folder / f"{definition.id}_questions.csv"


def _lines(cell: TableCell, finished: FinishedCell) -> Iterator[dict[str, JsonValue]]:
    for record in finished.read_records():
        yield {
            "row": cell.row.id,
            "dataset": cell.dataset,
            "cell_id": finished.id,
            "example_id": record.example_id,
            "documents": "+".join(dict.fromkeys(record.document_ids)),
            "query_flops": record.flops.query,
            "index_flops": record.flops.index,
            "prompt_tokens": record.tokens.prompt,
            "completion_tokens": record.tokens.completion,
            "passages": len(record.context),
            "p_yes": _last_p_yes(record),
            "wall_s": round(record.wall_s, 3),
            "truncated": int(record.truncated),
            "flags": "+".join(record.flags),
            "error": error_kind(record.error or ""),
            **record.scores,
            **record.retrieval,
        }


def _last_p_yes(record: Record) -> float | None:
    """The probability of Yes at the end of a search; None for a method that does not probe."""
    search = SearchTrace.read(record.trace)
    probed = [step.p_yes for step in search.steps if step.p_yes is not None] if search else []
    return probed[-1] if probed else None
