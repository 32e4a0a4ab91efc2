"""The content of a cell's MLflow run, read from the cell's folder alone, without MLflow."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.metrics.statistics import Interval
from bench.results.curves import ENVIRONMENT, NO_SETTINGS, CurvePoint, as_text, cell_label, curve_point, cut
from bench.results.finished import find_cells, records_so_far
from bench.results.models import CellDescription, Summary, read_description, read_summary
from bench.results.records import CELL_FILE, RECORDS_FILE, SUMMARY_FILE, TFLOP, Record, read_records
from bench.results.summary import summarize
from bench.schema import JsonValue

FORMAT_VERSION = 7
"""Increment it when a run's content changes for the same cell: every run is then rewritten."""
DISPLAY_FILE = "mlflow.json"
"""In a cell's folder: the sweeps that it belongs to, the last one its parent run; not part of its records."""
EXPERIMENT_PREFIX = "longdoc-bench"
TABLE_ROWS = 1_000
"""Most questions in the table of a run: the UI takes 3 s to draw 1,000 and minutes to draw 10,000."""
TAG_CELL, TAG_SWEEP, TAG_CURVE = "bench.cell_id", "bench.sweep", "bench.curve"
"""Tags of the runs of a cell, a sweep, and a curve, whose metrics have an option's value as their step."""
TAG_DIGEST = "bench.content"
"""Tag with the digest of a run's content, written last: a run without it is incomplete."""

_MAX_PARAM = 500
"""Characters of a parameter's value; MLflow's own limits are 6,000, older servers' 500."""
_MAX_TAG = 5_000
_MAX_KEY = 250
_MAX_TEXT = 2_000
"""Characters of a question, prediction or answer in the table; the records have the full text."""
_MAX_LISTED = 20
"""Longest list shown as a parameter."""


def read_sweeps(cell_dir: Path) -> list[str]:
    """The sweeps of a cell: it is on the curves of all of them, and its run is a child of the last one's."""
    try:
        return list(map(str, json.loads((cell_dir / DISPLAY_FILE).read_bytes())["sweeps"]))
    except (OSError, ValueError, LookupError, TypeError):
        return []


def note_sweep(cell_dir: Path, sweep: str) -> None:
    """Store that a cell belongs to a sweep, from now on its last one."""
    before = read_sweeps(cell_dir)
    after = [*(name for name in before if name != sweep), sweep]
    if after != before:
        write_json(cell_dir / DISPLAY_FILE, {"sweeps": after})


@dataclass(frozen=True)
class RunContent:
    """Everything in one MLflow run except its tables of questions."""

    cell: CellDescription
    summary: Summary
    sweeps: Sequence[str]
    experiment: str
    name: str
    start_ms: int
    end_ms: int
    """Milliseconds since 1970, of the run itself, not of its mirroring."""
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    scores: tuple[str, ...]
    """The metrics that score answers, the data set's main one first."""
    tags: Mapping[str, str]
    point: CurvePoint | None
    """None for a method without such an option."""
    is_finished: bool
    """Whether every question has a record; a run that has not is shown as running."""


def content_digest(cell_dir: Path) -> str:
    """Hash of everything that the run shows: cell, summary (which has the records' hash) and sweeps.

    Of an unfinished cell the size of its records stands for the summary.
    Raises BenchError if there is no cell.
    """
    if not (cell_dir / CELL_FILE).is_file():
        raise BenchError(f"{cell_dir} is not a cell: it has no {CELL_FILE}.")
    paths = [cell_dir / name for name in (CELL_FILE, SUMMARY_FILE, DISPLAY_FILE)]
    parts = [path.read_bytes() if path.is_file() else b"-" for path in paths]
    records = cell_dir / RECORDS_FILE
    if not paths[1].is_file() and records.is_file():
        parts.append(str(records.stat().st_size).encode())
    return _digest(parts)


def sweep_cells(results: Path) -> dict[str, list[Path]]:
    """Every sweep with its finished cells below ``results``."""
    sweeps: dict[str, list[Path]] = {}
    for cell_dir in find_cells(results):
        for name in read_sweeps(cell_dir) if (cell_dir / SUMMARY_FILE).is_file() else ():
            sweeps.setdefault(name, []).append(cell_dir)
    return sweeps


def sweep_digest(name: str, cell_dirs: Iterable[Path]) -> str:
    """Hash of everything that a sweep's curves show."""
    return _digest([name.encode(), *sorted(content_digest(cell_dir).encode() for cell_dir in cell_dirs)])


def begun_cells(folders: Iterable[Path]) -> Iterator[Path]:
    """Cells below (or at) the folders that have a summary, or a record at least."""
    for folder in folders:
        for cell in find_cells(folder):
            if (cell / SUMMARY_FILE).is_file() or records_so_far(cell):
                yield cell


def read_run(cell_dir: Path) -> RunContent:
    """The content of a cell's run; raises BenchError naming the file that cannot be read.

    An unfinished cell has the metrics of the questions that have a record.
    """
    cell = read_description(cell_dir)
    if is_finished := (cell_dir / SUMMARY_FILE).is_file():
        summary = read_summary(cell_dir)
    else:
        summary = summarize(list(records_so_far(cell_dir).values()), cell.metrics)
    written = (cell_dir / (SUMMARY_FILE if is_finished else RECORDS_FILE)).stat().st_mtime
    try:
        start_ms = int(datetime.fromisoformat(cell.created_at).timestamp() * 1000)
    except (ValueError, OverflowError):  # of a description that was written by hand
        start_ms = int(written * 1000)
    scores = cell.metrics or tuple(summary.metrics)
    return RunContent(
        cell=cell,
        summary=summary,
        sweeps=read_sweeps(cell_dir),
        experiment=f"{EXPERIMENT_PREFIX}/{cell.dataset}",
        name=f"{cell_label(cell)} · {cell.data} · {cell.model or 'no model'}",
        start_ms=start_ms,
        end_ms=max(start_ms, int(written * 1000)),
        params=dict(_params(cell)),
        metrics=dict(_metrics(summary, scores[0] if scores else "")),
        scores=scores,
        tags=dict(_tags(cell)),
        point=curve_point(cell),
        is_finished=is_finished,
    )


def question_table(cell_dir: Path) -> dict[str, list[JsonValue]]:
    """The first questions, column by column; raises BenchError for a damaged record among them."""
    rows = [_cells(record) for record in islice(read_records(cell_dir / RECORDS_FILE), TABLE_ROWS)]
    columns = dict.fromkeys(column for row in rows for column in row)
    return {column: [row.get(column) for row in rows] for column in columns}


def _cells(record: Record) -> dict[str, JsonValue]:
    """One row, the most important columns on the left."""
    prediction = f"FAILED: {record.error}" if record.error is not None else record.prediction or ""
    scores = sorted(record.scores, key=lambda m: (m != "f1", m != "rouge_l", m))
    return {
        "question": cut(record.question, _MAX_TEXT),
        "prediction": cut(prediction, _MAX_TEXT),
        "answers": cut(" | ".join(record.answers), _MAX_TEXT),
        **{score: _short(record.scores[score]) for score in scores},
        **{measure: _short(value) for measure, value in record.retrieval.items()},
        "query_tflops": _short(record.flops.query_tflops),
        "prompt_tokens": record.tokens.prompt,
        "completion_tokens": record.tokens.completion,
        "forwarded_tokens": record.tokens.forwarded,
        "wall_s": _short(record.wall_s),
        "truncated": record.truncated,
        "error": cut(record.error or "", _MAX_TEXT),
        "flags": ", ".join(record.flags),
        "example_id": record.example_id,
    }


def _params(cell: CellDescription) -> Iterator[tuple[str, str]]:
    """Flat, comparable parameters: ``method``, ``data``, ``config.k``, ``geometry.window`` ..."""
    for key, value in cell.to_json().items():
        if key not in NO_SETTINGS and key != "metrics":
            for name, leaf in _flatten("data" if key == "data_label" else key, value):
                yield _legal_name(name), cut(as_text(leaf), _MAX_PARAM)


def _flatten(name: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flatten(f"{name}.{key}", below)
    elif not (isinstance(value, list) and len(value) > _MAX_LISTED):
        yield name, value


def _metrics(summary: Summary, main: str) -> Iterator[tuple[str, float]]:
    """The finite numbers of the summary under flat names, few enough for a table's columns.

    Only the main score has its interval, as ``f1_low`` and ``f1_high``; ``summary.json`` has all of them.
    FLOPs are TFLOPs; mean tokens are ``prompt_tokens``; a count of events is ``flags.empty``.
    """
    for name in ("n", "n_documents", "n_failed", "n_truncated", "context_items", "wall_s"):
        yield name, _short(getattr(summary, name))
    if summary.n_unscored:
        yield "n_unscored", summary.n_unscored
    for name, interval in summary.metrics.items():
        yield from _interval(name, interval, bounds=name == main)
    for name, interval in summary.retrieval.items():
        yield from _interval(f"retrieval.{name}", interval)
    yield from _interval("query_tflops", summary.query_flops.scaled(1 / TFLOP))
    yield "index_tflops", _short(summary.index_tflops)
    for kind, count in summary.tokens:
        yield f"{kind}_tokens", _short(count)
    for group, counts in (("flags", summary.flags), ("errors", summary.errors)):
        for name, count in counts.items():
            yield _legal_name(f"{group}.{name}"), _short(count)


def _interval(name: str, interval: Interval, *, bounds: bool = False) -> Iterator[tuple[str, float]]:
    low, high = (interval.low, interval.high) if bounds else (None, None)
    for suffix, value in (("", interval.mean), ("_low", low), ("_high", high)):
        if value is not None and math.isfinite(value):
            yield _legal_name(f"{name}{suffix}"), _short(value)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256(str(FORMAT_VERSION).encode())
    for part in parts:
        digest.update(b"\x00" + part)
    return digest.hexdigest()[:32]


def _tags(cell: CellDescription) -> Iterator[tuple[str, str]]:
    yield TAG_CELL, cell.cell_id
    yield "mlflow.source.name", "bench run"
    yield "mlflow.source.type", "LOCAL"
    if cell.git_commit:
        yield "mlflow.source.git.commit", cell.git_commit
        yield "bench.git_commit", cell.git_commit
    for field in ENVIRONMENT:
        value = getattr(cell, field) or {}
        for name, leaf in _flatten("env" if isinstance(value, dict) else f"env.{field}", value):
            yield _legal_name(name), cut(as_text(leaf), _MAX_TAG)


def _short(value: float) -> float:
    """The value with six significant digits, so that the UI's columns stay readable."""
    return float(f"{value:.6g}")


def _legal_name(name: str) -> str:
    """A key that MLflow accepts: letters, digits and ``_-.: /``; anything else becomes ``_``."""
    legal = re.sub(r"[^\w\-.: /]", "_", name).strip(" /.")
    return legal[:_MAX_KEY] or "_"
