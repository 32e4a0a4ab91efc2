"""Cells and sweeps as runs of one MLflow store.

A run is written once. The tag with the digest of its content comes last, so a run without that tag is
incomplete, and one with another digest is out of date: both are written again, and the old run is deleted
only when the new one is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from bench.errors import BenchError
from bench.results.curves import CurvePoint, shared_options
from bench.results.records import CELL_FILE, SUMMARY_FILE
from bench.tracking.content import (
    TAG_CELL,
    TAG_CURVE,
    TAG_DIGEST,
    TAG_SWEEP,
    RunContent,
    content_digest,
    question_tables,
    read_run,
    sweep_digest,
)
from bench.tracking.store import artifact_root, sqlite_path
from bench.tracking.ui_view import CELLS_TAG, CURVES_TAG, cells_view, curves_view

State = Literal["created", "updated", "unchanged"]

_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # MLflow's own: 120 s, and 7 retries
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""Settings of MLflow that the user has not set."""
_DRAWN_SCORES = 2
"""Scores that a curve shows along with its cost: the data set's first ones, as F1 and ROUGE-L."""
_NOT_COPIED = {TAG_DIGEST, "mlflow.loggedArtifacts", "mlflow.parentRunId", "mlflow.runName"}
"""Tags that a run's replacement does not take over."""
_EXPERIMENT_NOTE = "One run per cell. Compare runs of the same `data` and `model` only."


class MovedStoreError(Exception):
    """A local store whose artifacts are not where its runs say."""


class Mirror:
    """Writes cells to one MLflow store; a local store has one writer at a time."""

    def __init__(self, uri: str, results: Path) -> None:
        """Open the store; a SQLite database and its tables are created if missing."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        for library in ("mlflow", "alembic"):
            logging.getLogger(library).setLevel(logging.ERROR)
        self._artifact_root = artifact_root(uri, results)
        self._database = sqlite_path(uri)
        if self._database is None:
            self._client = MlflowClient(uri)
            return
        self._database.parent.mkdir(parents=True, exist_ok=True)
        # MLflow puts the artifacts of its experiment "Default" into ./mlruns.
        with self._lock(), contextlib.chdir(self._database.parent):
            if not self._database.exists():
                _create_store(self._database)
            self._client = MlflowClient(uri)

    def show(self, cell_dir: Path) -> State:
        """Make the store show a cell in exactly one run; as running, with its metrics, if it is not finished.

        Raises BenchError for a cell that cannot be read or that MLflow refuses, and any error of MLflow
        about the store.
        """
        from mlflow.exceptions import MlflowException

        content, digest = read_run(cell_dir), content_digest(cell_dir)
        with self._lock():
            experiment_id = self._experiment(content)
            before = self._find(experiment_id, TAG_CELL, content.cell.cell_id)
            current = next((run for run in before if run.data.tags.get(TAG_DIGEST) == digest), None)
            if current is not None:
                self._delete([run for run in before if run is not current])
                return "unchanged"
            run_id = self._create(experiment_id, content, before)
            try:
                self._fill(experiment_id, run_id, cell_dir, content)
            except (BenchError, MlflowException) as error:
                if isinstance(error, MlflowException) and error.error_code != "INVALID_PARAMETER_VALUE":
                    raise
                self._delete([self._client.get_run(run_id)])
                raise BenchError(str(error)) from error
            self._delete(before)
            self._client.set_tag(run_id, TAG_DIGEST, digest)
        return "updated" if before else "created"

    def forget(self, cell_ids: Collection[str]) -> None:
        """Delete the runs of these cells, whatever experiments they are in; raises any error of MLflow."""
        with self._lock():
            for experiment in self._client.search_experiments():
                for cell_id in cell_ids:
                    runs = self._find(experiment.experiment_id, TAG_CELL, cell_id)
                    self._delete(runs)

    def forget_sweep(self, name: str, cell_dirs: Sequence[Path]) -> None:
        """Take the sweep's removed cells off its curves; cell_dirs: its cells that are left.

        On a data set without any, the sweep's run and its curves are deleted. Raises any error of MLflow.
        """
        self.show_sweep(name, cell_dirs)
        shown = {read_run(cell_dir).experiment for cell_dir in cell_dirs}
        with self._lock():
            for experiment in self._client.search_experiments():
                if experiment.name in shown:
                    continue
                for run in self._find(experiment.experiment_id, TAG_SWEEP, name):
                    self._delete(self._curves(experiment.experiment_id, run.info.run_id))
                    self._delete([run])

    def show_sweep(self, name: str, cell_dirs: Sequence[Path]) -> None:
        """Draw the curves of a sweep on each of its data sets; cell_dirs: all cells of the sweep.

        A curve is a child of the sweep's run whose metrics have the option as their step, so that MLflow's
        charts show scores and cost over that option.
        """
        digest = sweep_digest(name, cell_dirs)
        experiments: dict[str, list[RunContent]] = {}
        for cell_dir in cell_dirs:
            content = read_run(cell_dir)
            experiments.setdefault(content.experiment, []).append(content)
        for cells in experiments.values():
            with self._lock():
                experiment_id = self._experiment(cells[0])
                parent_id, shown = self._sweep(experiment_id, name, cells[0])
                if shown == digest:
                    continue
                curves: dict[str, list[tuple[CurvePoint, RunContent]]] = {}
                placed = [(content.point, content) for content in cells if content.point is not None]
                for point, content in sorted(placed, key=lambda pair: pair[0].step):
                    curves.setdefault(_quoted(f"{name} {point.key}"), []).append((point, content))
                # A server may have curves of other results folders.
                known = self._curves(experiment_id, parent_id)
                self._delete([r for r in known if self._database or r.data.tags[TAG_CURVE] in curves])
                shared = shared_options(points[0][0] for points in curves.values())
                for key, points in curves.items():
                    self._draw(experiment_id, parent_id, key, points, shared[points[0][0].method])
                self._client.set_terminated(parent_id, "FINISHED", max(c.end_ms for c in cells))
                self._client.set_tag(parent_id, TAG_DIGEST, digest)

    def _experiment(self, content: RunContent) -> str:
        """The id of the data set's experiment, created with its saved view if missing."""
        name = content.experiment
        location = f"{self._artifact_root}/{name.rpartition('/')[2]}" if self._artifact_root else None
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            tags = {
                "mlflow.experimentKind": "custom_model_development",
                "mlflow.note.content": _EXPERIMENT_NOTE,
                CELLS_TAG: cells_view(content.scores, content.start_ms),
            }
            return str(self._client.create_experiment(name, artifact_location=location, tags=tags))
        if self._database and location and experiment.artifact_location != location:
            raise MovedStoreError(f"its artifacts are under {experiment.artifact_location}, not {location}")
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _find(self, experiment_id: str, tag: str, value: str) -> Sequence[Any]:
        """The runs with this tag by start time; several if two machines wrote at once."""
        query = f"tags.`{tag}` = '{_quoted(value)}'"
        return list(self._client.search_runs([experiment_id], query, order_by=["attributes.start_time ASC"]))

    def _curves(self, experiment_id: str, parent_id: str) -> Sequence[Any]:
        """The curves below a sweep's run."""
        children = self._find(experiment_id, "mlflow.parentRunId", parent_id)
        return [run for run in children if TAG_CURVE in run.data.tags]

    def _create(self, experiment_id: str, content: RunContent, before: Sequence[Any]) -> str:
        """The id of a new run with its tags; the user's tags and notes on its predecessors are copied."""
        tags = {"mlflow.note.content": content.note}
        for run in before:
            tags |= {name: text for name, text in run.data.tags.items() if name not in _NOT_COPIED}
        tags |= content.tags
        if content.sweeps:
            tags["mlflow.parentRunId"], _ = self._sweep(experiment_id, content.sweeps[-1], content)
        run = self._client.create_run(experiment_id, content.start_ms, tags, content.name)
        return str(run.info.run_id)

    def _fill(self, experiment_id: str, run_id: str, cell_dir: Path, content: RunContent) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param

        self._log_metrics(run_id, [(name, value, 0) for name, value in content.metrics.items()], content)
        for params in _batches(Param(name, value) for name, value in content.params.items()):
            self._client.log_batch(run_id, params=params)
        name = content.cell.data
        digest = hashlib.sha256(content.cell.data_revision.encode()).hexdigest()[:12]
        data = Dataset(name, digest, "bench", json.dumps({"data": name}))
        self._client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])])
        self._client.log_dict(run_id, content.cell.to_json(), CELL_FILE)
        self._client.log_dict(run_id, content.summary.to_json(), SUMMARY_FILE)
        if not content.is_finished:
            return
        for name, table in question_tables(cell_dir):
            self._client.log_table(run_id, table, name)
        status = "FAILED" if content.summary.all_failed else "FINISHED"
        self._client.set_terminated(run_id, status, content.end_ms)

    def _log_metrics(self, run_id: str, metrics: Iterable[tuple[str, float, int]], at: RunContent) -> None:
        """metrics: name, value and step."""
        from mlflow.entities import Metric

        for batch in _batches(Metric(name, value, at.end_ms, step) for name, value, step in metrics):
            self._client.log_batch(run_id, metrics=batch)

    def _sweep(self, experiment_id: str, name: str, content: RunContent) -> tuple[str, str | None]:
        """The id of a sweep's run, created if missing, and the digest of its content."""
        runs = self._find(experiment_id, TAG_SWEEP, name)
        if runs:
            return str(runs[0].info.run_id), runs[0].data.tags.get(TAG_DIGEST)
        tags = {TAG_SWEEP: _quoted(name), "mlflow.source.name": "bench sweep"}
        run = self._client.create_run(experiment_id, content.start_ms, tags, name)
        return str(run.info.run_id), None

    def _draw(
        self,
        experiment_id: str,
        parent_id: str,
        key: str,
        curve: Sequence[tuple[CurvePoint, RunContent]],
        shared: Collection[str],
    ) -> None:
        """Write the run of one curve.

        shared: options that all curves of the method in this sweep have; its name is without them.
        """
        point, cell = curve[0]
        if CURVES_TAG not in self._client.get_experiment(experiment_id).tags:
            self._client.set_experiment_tag(
                experiment_id, CURVES_TAG, curves_view(cell.scores, cell.start_ms)
            )
        tags = {
            TAG_CURVE: key,
            "mlflow.parentRunId": parent_id,
            "mlflow.note.content": f"Metrics have {point.option} as their step: see the run's charts.",
        }
        run = self._client.create_run(experiment_id, cell.start_ms, tags, point.name(shared))
        values = [
            (metric, content.metrics[metric], at.step)
            for at, content in curve
            for metric in (*cell.scores[:_DRAWN_SCORES], "query_tflops")
            if metric in content.metrics
        ]
        self._log_metrics(run.info.run_id, values, cell)
        self._client.set_terminated(run.info.run_id, "FINISHED", max(content.end_ms for _, content in curve))

    def _delete(self, runs: Iterable[Any]) -> None:
        for run in runs:
            self._client.delete_run(run.info.run_id)

    def _lock(self) -> AbstractContextManager[object]:
        """Lock a SQLite store, so that searching for a run and writing it is atomic."""
        from filelock import FileLock

        if self._database is None:
            return contextlib.nullcontext()
        return FileLock(self._database.with_name(f".{self._database.name}.lock"))


def _create_store(database: Path) -> None:
    """Create a SQLite store with its tables, whole or not at all.

    MLflow creates the tables in many transactions and can neither use nor finish a store in which some are
    missing, so a process killed meanwhile may only leave a file of another name.
    """
    from mlflow import MlflowClient

    folder = database.with_name(f".{database.name}.new")
    shutil.rmtree(folder, ignore_errors=True)  # of a killed process; the lock is held
    folder.mkdir()
    MlflowClient(f"sqlite:///{folder / database.name}")
    (folder / database.name).replace(database)
    shutil.rmtree(folder)


def _quoted(value: str) -> str:
    """The value without characters that end a quoted string in a search for a tag."""
    return value.replace("'", "")


def _batches(items: Iterable[Any], size: int = 100) -> Iterator[list[Any]]:
    """The items in lists of at most ``size``, MLflow's limit for one request."""
    rest = list(items)
    for start in range(0, len(rest), size):
        yield rest[start : start + size]
