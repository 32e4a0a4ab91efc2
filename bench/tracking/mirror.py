"""Cells and sweeps as runs of one MLflow store.

A run is written once. The tag with the digest of its content comes last, so a run without that tag is
incomplete, and one with another digest is out of date: both are written again, and the old run is deleted
only when the new one is complete.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock

from bench.errors import BenchError
from bench.results.curves import CurvePoint
from bench.results.records import CELL_FILE, SUMMARY_FILE
from bench.tracking.content import (
    TAG_CELL,
    TAG_CURVE,
    TAG_DIGEST,
    TAG_SWEEP,
    RunContent,
    content_digest,
    question_table,
    read_run,
    sweep_cells,
    sweep_digest,
)
from bench.tracking.store import QUIET, artifact_root, local_store, sqlite_path
from bench.tracking.ui_view import CELLS_TAG, CURVES_TAG, cells_view, curves_view

_DEFAULTS = {
    **QUIET,
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # MLflow's own: 120 s, and 7 retries
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""Settings of MLflow that the user has not set."""
_DRAWN_SCORES = 2
"""Scores that a curve shows along with its cost: the data set's first ones, as F1 and ROUGE-L."""
_NOT_COPIED = {TAG_DIGEST, "mlflow.loggedArtifacts", "mlflow.parentRunId", "mlflow.runName"}
"""Tags that a run's replacement does not take over."""


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
        self._results, self._artifact_root = results, artifact_root(uri, results)
        self._is_own = uri == local_store(results)  # any other store may have cells of other results folders
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

    def show(self, cell_dir: Path) -> None:
        """Make the store show a cell in exactly one run; as running, with its metrics, if it is not finished.

        Raises BenchError for a cell that cannot be read or that MLflow refuses, and any error of MLflow
        about the store.
        """
        from mlflow.exceptions import MlflowException

        with self._lock():  # read inside it: another process may have written a later state meanwhile
            content, digest = read_run(cell_dir), content_digest(cell_dir)
            experiment_id = self._experiment(content)
            before = self._find([experiment_id], TAG_CELL, content.cell.cell_id)
            current = next((run for run in before if run.data.tags.get(TAG_DIGEST) == digest), None)
            if current is not None:
                self._delete(run for run in before if run is not current)
                if content.sweeps:  # whose run may have been deleted and recreated
                    parent_id, _ = self._sweep(experiment_id, content.sweeps[-1], content)
                    self._client.set_tag(current.info.run_id, "mlflow.parentRunId", parent_id)
                return
            run_id = self._create(experiment_id, content, before)
            try:
                self._fill(run_id, cell_dir, content)
            except (BenchError, MlflowException) as error:
                if isinstance(error, MlflowException) and error.error_code != "INVALID_PARAMETER_VALUE":
                    raise
                self._client.delete_run(run_id)
                raise BenchError(str(error)) from error
            self._delete(before)
            self._client.set_tag(run_id, TAG_DIGEST, digest)

    def forget(self, cell_ids: Collection[str]) -> None:
        """Delete the runs of these cells, whatever experiments they are in; raises any error of MLflow."""
        with self._lock():
            for cell_id in cell_ids:
                self._delete(self._find(self._experiments(), TAG_CELL, cell_id))

    def show_sweep(self, name: str) -> None:
        """Draw the curves of a sweep on each of its data sets, through all its finished cells.

        A curve is a child of the sweep's run whose metrics have the option as their step, so that MLflow's
        charts show scores and cost over that option. The folder's own store keeps none on other data sets.
        """
        experiments: dict[str, list[RunContent]] = {}
        with self._lock():
            cell_dirs = sweep_cells(self._results).get(name, [])
            digest = sweep_digest(name, cell_dirs)
            for cell_dir in cell_dirs:
                content = read_run(cell_dir)
                experiments.setdefault(self._experiment(content), []).append(content)
            drawn = [self._draw_all(id_, name, cells, digest) for id_, cells in experiments.items()]
            for parent in self._find(self._experiments(), TAG_SWEEP, name) if self._is_own else ():
                if parent.info.experiment_id not in experiments:
                    self._delete([*self._curves(parent.info.experiment_id, parent.info.run_id), parent])
            for parent_id in drawn:  # only now: a sync takes the tag on one data set for all of them
                self._client.set_tag(parent_id, TAG_DIGEST, digest)

    def _draw_all(self, experiment_id: str, name: str, cells: Sequence[RunContent], digest: str) -> str:
        """Write the sweep's curves on one data set again if they are out of date; the id of its run."""
        parent_id, shown = self._sweep(experiment_id, name, cells[0])
        if shown == digest:
            return parent_id
        curves: dict[str, list[tuple[CurvePoint, RunContent]]] = {}
        placed = [(content.point, content) for content in cells if content.point is not None]
        for point, content in sorted(placed, key=lambda pair: pair[0].step):
            curves.setdefault(_quoted(f"{name} {point.key}"), []).append((point, content))
        if self._is_own:
            self._delete(self._curves(experiment_id, parent_id))
        for key, points in curves.items():
            self._delete(self._find([experiment_id], TAG_CURVE, key))  # also below a run that was deleted
            self._draw(experiment_id, parent_id, key, points)
        self._client.set_terminated(parent_id, "FINISHED", max(content.end_ms for content in cells))
        return parent_id

    def _experiments(self) -> list[str]:
        return [experiment.experiment_id for experiment in self._client.search_experiments()]

    def _experiment(self, content: RunContent) -> str:
        """The id of the data set's experiment, created with its saved view if missing."""
        name = content.experiment
        location = f"{self._artifact_root}/{name.rpartition('/')[2]}" if self._artifact_root else None
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            tags = {
                "mlflow.experimentKind": "custom_model_development",
                CELLS_TAG: cells_view(content.scores, content.start_ms),
            }
            return str(self._client.create_experiment(name, artifact_location=location, tags=tags))
        if self._database and location and experiment.artifact_location != location:
            raise MovedStoreError(f"its artifacts are under {experiment.artifact_location}, not {location}")
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _find(self, experiment_ids: list[str], tag: str, value: str) -> Sequence[Any]:
        """The runs with this tag by start time; several if two machines wrote at once."""
        query = f"tags.`{tag}` = '{_quoted(value)}'"
        most, order = 50_000, ["attributes.start_time ASC"]  # the most that MLflow gives at once
        return list(self._client.search_runs(experiment_ids, query, max_results=most, order_by=order))

    def _curves(self, experiment_id: str, parent_id: str) -> Sequence[Any]:
        """The curves below a sweep's run."""
        children = self._find([experiment_id], "mlflow.parentRunId", parent_id)
        return [run for run in children if TAG_CURVE in run.data.tags]

    def _create(self, experiment_id: str, content: RunContent, before: Sequence[Any]) -> str:
        """The id of a new run with its tags; the user's tags and notes on its predecessors are copied."""
        tags: dict[str, str] = {}
        for run in before:
            tags |= {name: text for name, text in run.data.tags.items() if name not in _NOT_COPIED}
        tags |= content.tags
        if content.sweeps:
            tags["mlflow.parentRunId"], _ = self._sweep(experiment_id, content.sweeps[-1], content)
        run = self._client.create_run(experiment_id, content.start_ms, tags, content.name)
        return str(run.info.run_id)

    def _fill(self, run_id: str, cell_dir: Path, content: RunContent) -> None:
        from mlflow.entities import Param

        self._log_metrics(run_id, [(name, value, 0) for name, value in content.metrics.items()], content)
        for params in _batches(Param(name, value) for name, value in content.params.items()):
            self._client.log_batch(run_id, params=params)
        self._client.log_dict(run_id, content.cell.to_json(), CELL_FILE)
        self._client.log_dict(run_id, content.summary.to_json(), SUMMARY_FILE)
        if content.is_finished:
            self._client.log_table(run_id, question_table(cell_dir), "questions.json")
            status = "FAILED" if content.summary.all_failed else "FINISHED"
            self._client.set_terminated(run_id, status, content.end_ms)

    def _log_metrics(self, run_id: str, metrics: Iterable[tuple[str, float, int]], at: RunContent) -> None:
        """metrics: name, value and step."""
        from mlflow.entities import Metric

        for batch in _batches(Metric(name, value, at.end_ms, step) for name, value, step in metrics):
            self._client.log_batch(run_id, metrics=batch)

    def _sweep(self, experiment_id: str, name: str, content: RunContent) -> tuple[str, str | None]:
        """The id of a sweep's run, created if missing, and the digest of its content."""
        runs = self._find([experiment_id], TAG_SWEEP, name)
        if runs:
            return str(runs[0].info.run_id), runs[0].data.tags.get(TAG_DIGEST)
        tags = {TAG_SWEEP: _quoted(name), "mlflow.source.name": "bench sweep"}
        run = self._client.create_run(experiment_id, content.start_ms, tags, name)
        return str(run.info.run_id), None

    def _draw(
        self, experiment_id: str, parent_id: str, key: str, curve: Sequence[tuple[CurvePoint, RunContent]]
    ) -> None:
        """Write the run of one curve."""
        point, cell = curve[0]
        if CURVES_TAG not in self._client.get_experiment(experiment_id).tags:
            view = curves_view(cell.scores, cell.start_ms)
            self._client.set_experiment_tag(experiment_id, CURVES_TAG, view)
        tags = {TAG_CURVE: key, "mlflow.parentRunId": parent_id}
        run = self._client.create_run(experiment_id, cell.start_ms, tags, point.name)
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


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    """The items in lists of at most 100, MLflow's limit for one request."""
    rest = list(items)
    for start in range(0, len(rest), 100):
        yield rest[start : start + 100]
