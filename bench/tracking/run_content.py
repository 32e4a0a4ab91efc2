"""What an MLflow run shows of a cell, read from the cell's folder alone and without MLflow."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from bench.errors import BenchError
from bench.records import CELL_FILE, RECORDS_FILE, SUMMARY_FILE, Record, read_records
from bench.schema import JsonValue
from bench.system_metrics import SYSTEM_FILE, read_samples

FORMAT_VERSION = 3
"""Raise it when a run shows something else of the same cell: every run is then written again."""
EXPERIMENT_PREFIX = "longdoc-bench"
TABLE_ROWS = 1_000
"""Rows of one table artifact; the UI takes 3 s to draw 1,000 and minutes to draw 10,000."""
TAG_TABLES = "mlflow.loggedArtifacts"
"""MLflow's own tag that makes the UI draw an artifact as a table."""
TAG_CELL, TAG_DIGEST, TAG_SWEEP = "bench.cell_id", "bench.content", "bench.sweep"
TAG_MOMENT = "bench.metrics_ms"
"""The time under which the run's metrics were last written, in milliseconds since 1970."""
TAG_PARENT = "bench.parent"
"""On a cell's run below a sweep's: the sweep's name."""
TAG_CURVE = "bench.curve"
"""On a sweep's run whose metrics have the value of an option as their step."""
TAG_TRACES = "bench.traces"
"""On a cell's run whose questions are traces too: the content that they show."""
TAG_FIGURE = "bench.figure"
"""On a sweep's run: the content that its figure shows."""
SYSTEM = "system/"
"""What MLflow's names of system metrics begin with."""
STEPS = ("t_p", "k")
"""Options that can be the step of a curve; the first one that a cell has."""

_MAX_PARAM = 500
"""Characters of a parameter's value; MLflow's own limits are 6,000, older servers' 500."""
_MAX_TAG = 5_000
_MAX_KEY = 250
_MAX_TEXT = 2_000
"""Characters of a question, prediction or answer in the table; the records hold the full text."""
_MAX_LISTED = 20
"""Longest list that is shown as a parameter (a cell may name thousands of examples)."""
_ENVIRONMENT = ("versions", "environment", "python", "platform")
_NOT_PARAMETERS = {*_ENVIRONMENT, "cell_id", "git_commit", "created_at", "metrics"}
_SAMPLES = 60
"""Most samples of the machine that a run shows."""
_MAX_OPTIONS = 4
"""Options in a run's name; all of them are parameters."""
_RENAMED = {"data_label": "data"}


@dataclass(frozen=True)
class CurvePoint:
    """Where a cell stands on the curve of its sweep: cells that differ in the step alone share one."""

    option: str
    step: int
    name: str
    """Of the curve's run, as in ``over t_p: pecan t_c=0.9``."""
    key: str
    """The same for all cells of a curve, and for no other."""


@dataclass(frozen=True)
class RunContent:
    """Everything of one MLflow run but its artifacts."""

    cell_id: str
    experiment: str
    label: str
    """The method with the options that are not its defaults, as in ``bm25 k=7``."""
    name: str
    status: Literal["FINISHED", "FAILED"]
    start_ms: int
    end_ms: int
    """Milliseconds since 1970, of the run itself, not of its mirroring."""
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    scores: tuple[str, ...]
    """The metrics that score answers, the data set's main one first."""
    tags: Mapping[str, str]
    note: str
    """Markdown shown above the run."""
    data: str
    """Data label, as in ``qasper (sample)``."""
    data_digest: str
    """At most 36 characters that tell one state of the data from another."""
    point: CurvePoint | None = None
    """None for a method without such an option."""
    samples: tuple[Mapping[str, float], ...] = ()
    """How busy the machine was: ``t`` in milliseconds since 1970, and MLflow's names of system metrics."""


def content_digest(cell_dir: Path) -> str:
    """Hash of what the mirror would show: cell, samples, and summary, which carries the records' own hash.

    Of an unfinished cell, without a summary, the size of the records. Raises BenchError if there is no
    cell.
    """
    digest = hashlib.sha256(str(FORMAT_VERSION).encode())
    cell = cell_dir / CELL_FILE
    if not cell.is_file():
        raise BenchError(f"{cell_dir} is not a cell: it has no {CELL_FILE}.")
    for path in (cell, cell_dir / SUMMARY_FILE, cell_dir / SYSTEM_FILE):
        digest.update(b"\x00" + (path.read_bytes() if path.is_file() else b"-"))
    records = cell_dir / RECORDS_FILE
    if records.is_file():
        digest.update(b"\x00%d" % records.stat().st_size)
    return digest.hexdigest()[:32]


def read_run(cell_dir: Path) -> RunContent:
    """What the run of this cell shows; raises BenchError naming the file that cannot be read."""
    cell = _read_object(cell_dir / CELL_FILE)
    summary_path = cell_dir / SUMMARY_FILE
    summary = _read_object(summary_path) if summary_path.is_file() else None
    method, dataset = _required(cell, "method", cell_dir), _required(cell, "dataset", cell_dir)
    cell_id = _required(cell, "cell_id", cell_dir)
    data = str(cell.get("data_label") or dataset)
    model = str(cell.get("model") or "no model")
    metrics = dict(_metrics(summary or {}))
    finished = summary is not None and not (metrics.get("n", 0) and metrics.get("n_failed") == metrics["n"])
    start_ms = _milliseconds(cell.get("created_at"), cell_dir / CELL_FILE)
    end_ms = _milliseconds(None, cell_dir / CELL_FILE if summary is None else summary_path)
    label = _method_label(method, cell.get("config"))
    return RunContent(
        cell_id=cell_id,
        experiment=f"{EXPERIMENT_PREFIX}/{dataset}",
        label=label,
        name=f"{label} · {data} · {model}",
        status="FINISHED" if finished else "FAILED",
        start_ms=start_ms,
        end_ms=max(start_ms, end_ms),
        params=dict(_params(cell)),
        metrics=metrics,
        scores=tuple(cell.get("metrics") or (summary or {}).get("metrics", {})),
        tags=dict(_tags(cell, cell_id, complete=summary is not None)),
        note=_note(cell, data, model, cell_dir),
        data=data,
        data_digest=hashlib.sha256(str(cell.get("data_revision", "")).encode()).hexdigest()[:12],
        point=curve_point(method, cell),
        samples=tuple(read_samples(cell_dir, _SAMPLES)),
    )


def write_artifacts(cell_dir: Path, folder: Path) -> list[str]:
    """Put the run's artifacts into ``folder``; returns the names of those that are tables of questions.

    ``cell.json``, ``summary.json``, ``environment.json``, and ``questions.json`` or, for more rows than
    the UI can draw, ``questions_00001-01000.json`` and so on. Raises BenchError for a damaged record.
    """
    cell = _read_object(cell_dir / CELL_FILE)
    environment = {key: cell[key] for key in (*_ENVIRONMENT, "git_commit") if key in cell}
    for name, value in ((CELL_FILE, cell), ("environment.json", environment)):
        (folder / name).write_text(json.dumps(value, indent=2, sort_keys=True), encoding="utf-8")
    if (cell_dir / SUMMARY_FILE).is_file():
        (folder / SUMMARY_FILE).write_bytes((cell_dir / SUMMARY_FILE).read_bytes())
    records_path = cell_dir / RECORDS_FILE
    records = read_records(records_path) if records_path.is_file() else iter(())
    return list(_write_tables(records, folder))


def _write_tables(records: Iterator[Record], folder: Path) -> Iterator[str]:
    """Tables as MLflow's artifact view renders them: ``{"columns": [...], "data": [[...], ...]}``.

    Read in parts: ten thousand records with long contexts need not fit in memory.
    """
    parts = iter(lambda: [_cells(record) for record in islice(records, TABLE_ROWS)], [])
    first_row = 1
    part, following = next(parts, []), next(parts, None)
    if following is None:
        yield _write_table(part, folder, "questions.json")
        return
    for rows in chain([part, following], parts):
        name = f"questions_{first_row:05}-{first_row + len(rows) - 1:05}.json"
        yield _write_table(rows, folder, name)
        first_row += len(rows)


def _write_table(rows: Sequence[Mapping[str, JsonValue]], folder: Path, name: str) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = {"columns": columns, "data": [[row.get(column) for column in columns] for row in rows]}
    (folder / name).write_text(json.dumps(table), encoding="utf-8")
    return name


def _cells(record: Record) -> dict[str, JsonValue]:
    """One row, what one looks at first on the left."""
    prediction = f"FAILED: {record.error}" if record.error is not None else record.prediction or ""
    scores = sorted(record.scores, key=lambda m: (m != "f1", m != "rouge_l", m))
    return {
        "question": _cut(record.question, _MAX_TEXT),
        "prediction": _cut(prediction, _MAX_TEXT),
        "answers": _cut(" | ".join(record.answers), _MAX_TEXT),
        **{score: _short(record.scores[score]) for score in scores},
        **{measure: _short(value) for measure, value in (record.retrieval or {}).items()},
        "query_tflops": _short(record.flops.query / 1e12),
        "prompt_tokens": record.tokens.prompt,
        "completion_tokens": record.tokens.completion,
        "forwarded_tokens": record.tokens.forwarded,
        "wall_s": _short(record.wall_s),
        "truncated": record.truncated,
        "error": _cut(record.error or "", _MAX_TEXT),
        "flags": ", ".join(record.flags),
        "example_id": record.example_id,
    }


def _params(cell: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Flat, comparable parameters: ``method``, ``data``, ``config.k``, ``geometry.window`` ..."""
    for key, value in cell.items():
        if key not in _NOT_PARAMETERS:
            for name, leaf in _flatten(_RENAMED.get(key, key), value):
                yield _legal_name(name), _cut(_as_text(leaf), _MAX_PARAM)


def _flatten(name: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flatten(f"{name}.{key}", below)
    elif not (isinstance(value, list) and len(value) > _MAX_LISTED):
        yield name, value


def _as_text(value: JsonValue) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _metrics(summary: Mapping[str, JsonValue], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every finite number of the summary under a flat name.

    ``{"f1": {"mean", "low", "high"}}`` is ``f1``, ``f1_low``, ``f1_high``; FLOPs become TFLOPs;
    ``{"tokens": {"prompt": 9}}`` is ``prompt_tokens``; ``{"flags": {"empty": 2}}`` is ``flags.empty``.
    """
    for key, value in summary.items():
        if key == "summary_version":
            continue
        if key in {"metrics", "scores"} and isinstance(value, dict):
            yield from _metrics(value, prefix)
        elif key == "tokens" and isinstance(value, dict):
            yield from _metrics({f"{kind}_tokens": count for kind, count in value.items()}, prefix)
        elif isinstance(value, dict) and "mean" in value:
            bounds = {f"{key}_{bound}": value.get(bound) for bound in ("low", "high")}
            yield from _metrics({key: value["mean"], **bounds}, prefix)
        elif isinstance(value, dict):
            yield from _metrics(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            name = f"{prefix}{key}"
            if "_flops" in name:
                name, value = name.replace("_flops", "_tflops"), value / 1e12
            yield _legal_name(name), _short(value)


def _tags(cell: Mapping[str, JsonValue], cell_id: str, *, complete: bool) -> Iterator[tuple[str, str]]:
    yield TAG_CELL, cell_id
    yield "bench.state", "complete" if complete else "incomplete"
    yield "mlflow.source.name", "bench run"
    yield "mlflow.source.type", "LOCAL"
    if commit := cell.get("git_commit"):
        yield "mlflow.source.git.commit", str(commit)
        yield "bench.git_commit", str(commit)
    for field in _ENVIRONMENT:
        value = cell.get(field) or {}
        for name, leaf in _flatten("env" if isinstance(value, dict) else f"env.{field}", value):
            yield _legal_name(name), _cut(_as_text(leaf), _MAX_TAG)


def _note(cell: Mapping[str, JsonValue], data: str, model: str, cell_dir: Path) -> str:
    label = cell.get("model_label") or model
    convention = cell.get("flop_convention")
    lines = [
        f"**{cell['method']}** on **{data}**, read by **{label}**.",
        "Scores are 0–1 with 95 % intervals (`_low`, `_high`)"
        + (f"; FLOPs in convention `{convention}`." if convention else "."),
        f"Every question is under Artifacts; the full records are in folder `{cell_dir.name}`.",
    ]
    return "\n\n".join(lines)


def _method_label(method: str, config: JsonValue) -> str:
    """The method with the options that are not its defaults, as in ``bm25 k=7``."""
    from bench.registry import load_method

    try:
        fields = load_method(method).Config.model_fields
    except BenchError:  # recorded with a plugin that is not installed here
        return method
    options = config if isinstance(config, dict) else {}
    chosen = [
        f"{name}={_cut(_as_text(value), 20)}"
        for name, value in options.items()
        if name in fields and value != fields[name].get_default(call_default_factory=True)
    ]
    return " ".join([method, *chosen[:_MAX_OPTIONS]])


def curve_point(method: str, cell: Mapping[str, JsonValue]) -> CurvePoint | None:
    """The cell's place on a curve; its key is everything that it depends on but the step and the moment."""
    config = cell.get("config")
    options = dict(config) if isinstance(config, dict) else {}
    for option in STEPS:
        step = options.pop(option, None)
        if isinstance(step, int) and not isinstance(step, bool):
            apart = {"config", "cell_id", "created_at", "git_commit", *_ENVIRONMENT}
            rest = {key: value for key, value in cell.items() if key not in apart} | {"config": options}
            key = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]
            return CurvePoint(option, step, f"over {option}: {_method_label(method, options)}", key)
    return None


def _milliseconds(value: JsonValue, fallback: Path) -> int:
    """An ISO 8601 time in milliseconds since 1970; without one, when ``fallback`` was written."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(fallback.stat().st_mtime * 1000)


def _read_object(path: Path) -> dict[str, JsonValue]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BenchError(f"{path} is not JSON ({error}). Run the cell's command again.") from error
    if not isinstance(value, dict):
        raise BenchError(f"{path}: expected a JSON object, found {type(value).__name__}.")
    return value


def _required(cell: Mapping[str, JsonValue], key: str, cell_dir: Path) -> str:
    value = cell.get(key)
    if not isinstance(value, str) or not value:
        raise BenchError(f"{cell_dir / CELL_FILE}: field {key!r} is {value!r}; expected a name.")
    return value


def _short(value: float) -> float:
    """Six significant digits: more would only make the columns of the UI unreadable."""
    return float(f"{value:.6g}")


def _legal_name(name: str) -> str:
    """A key that MLflow takes: letters, digits and ``_-.: /``; anything else becomes ``_``."""
    legal = re.sub(r"[^\w\-.: /]", "_", name).strip(" /.")
    return legal[:_MAX_KEY] or "_"


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, an ellipsis marking a cut; only text that UTF-8 can carry."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 1] + "…"
