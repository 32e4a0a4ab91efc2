"""The process that talks to MLflow: one JSON request a line in, one JSON reply a line out.

Run as ``python -m bench.tracking.worker`` by :mod:`bench.tracking.mirror`, which sets deadlines and
kills it when they pass. It ends when its input does, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.tracking.run_content import (
    TAG_CELL,
    TAG_CURVE,
    TAG_DIGEST,
    TAG_SWEEP,
    TAG_TABLES,
    RunContent,
    read_run,
    write_artifacts,
)
from bench.tracking.store import sqlite_path
from bench.tracking.ui_view import VIEW_TAG, saved_view


class MovedStoreError(Exception):
    """A local store whose artifacts are no longer where its runs say."""


@dataclass(frozen=True)
class Request:
    """One cell to mirror."""

    cell_dir: str
    uri: str
    artifact_root: str | None
    digest: str
    parent: str | None


def main() -> None:
    """Serve requests from standard input until it ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes where its log lines go, never into a reply
    logging.disable(logging.WARNING)
    for line in sys.stdin:
        replies.write(json.dumps(_reply(Request(**json.loads(line)))) + "\n")
        replies.flush()


def _reply(request: Request) -> dict[str, Any]:
    try:
        content = read_run(Path(request.cell_dir))
    except BenchError as error:
        return {"error": str(error), "kind": "cell"}
    try:
        return Mirror(request.uri, request.artifact_root).write(request, content)
    except BenchError as error:
        return {"error": str(error), "kind": "cell"}
    except Exception as error:  # whatever MLflow and the layers below it raise: the run goes on
        return {"error": f"{type(error).__name__}: {error}", "kind": "store"}


class Mirror:
    """Writes cells into one MLflow store."""

    def __init__(self, uri: str, artifact_root: str | None) -> None:
        """Open the store; a SQLite database and its tables are created when missing."""
        from mlflow import MlflowClient

        self._database = sqlite_path(uri)
        self._artifact_root = artifact_root
        if self._database is not None:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            os.chdir(self._database.parent)  # MLflow's experiment "Default" points into ./mlruns
        with self._lock():
            self._client = MlflowClient(uri)

    def write(self, request: Request, content: RunContent) -> dict[str, Any]:
        """Create or bring up to date the run of one cell."""
        with self._lock():
            experiment_id = self._experiment(content)
            run = self._find(experiment_id, TAG_CELL, content.cell_id)
            if run is not None and run.data.tags.get(TAG_DIGEST) == request.digest:
                return _done("unchanged", experiment_id, run.info.run_id)
        with tempfile.TemporaryDirectory() as folder:
            tables = write_artifacts(Path(request.cell_dir), Path(folder))
            shown = json.dumps([{"path": table, "type": "table"} for table in tables])
            with self._lock():
                tags = {**content.tags, TAG_TABLES: shown, "mlflow.runName": content.name}
                if request.parent:
                    tags["mlflow.parentRunId"] = self._sweep(experiment_id, request.parent, content)
                run = self._find(experiment_id, TAG_CELL, content.cell_id)
                state = "created" if run is None else "updated"
                if run is not None and not _can_become(run, content, shown):
                    self._client.delete_run(run.info.run_id)
                    run = None
                run_id = run.info.run_id if run else self._create(experiment_id, content, tags)
                self._log(run_id, content, tags, run.data.metrics if run else {})
                if request.parent:
                    self._draw(experiment_id, tags["mlflow.parentRunId"], request.parent, content)
            self._client.log_artifacts(run_id, folder)
            self._client.set_terminated(run_id, content.status, content.end_ms)
            self._client.set_tag(run_id, TAG_DIGEST, request.digest)  # last: before it, nothing counts
        return _done(state, experiment_id, run_id)

    def _experiment(self, content: RunContent) -> str:
        name = content.experiment
        location = f"{self._artifact_root}/{name.rpartition('/')[2]}" if self._artifact_root else None
        found = self._client.get_experiment_by_name(name)
        if found is None:
            note = (
                "One run per cell: a method with one configuration on this data set. "
                "Compare runs of the same `data` and `model` only."
            )
            tags = {
                "mlflow.experimentKind": "custom_model_development",
                "mlflow.note.content": note,
                VIEW_TAG: saved_view(content.scores, content.start_ms),
            }
            return str(self._client.create_experiment(name, artifact_location=location, tags=tags))
        if self._database and location and found.artifact_location != location:
            raise MovedStoreError(f"its artifacts are under {found.artifact_location}, not {location}")
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _find(self, experiment_id: str, tag: str, value: str) -> Any | None:
        """The run with this tag; of several (made by two machines at once) the first, the rest deleted."""
        quoted = value.replace("'", "")
        runs = self._client.search_runs(
            [experiment_id], f"tags.`{tag}` = '{quoted}'", order_by=["attributes.start_time ASC"]
        )
        for extra in runs[1:]:
            self._client.delete_run(extra.info.run_id)
        return runs[0] if runs else None

    def _sweep(self, experiment_id: str, name: str, content: RunContent) -> str:
        """The parent run of a sweep."""
        name = name.replace("'", "")
        run = self._find(experiment_id, TAG_SWEEP, name)
        if run is None:
            run = self._client.create_run(
                experiment_id, content.start_ms, {TAG_SWEEP: name, "mlflow.source.name": "bench sweep"}, name
            )
        end_ms = max(content.end_ms, run.info.end_time or 0)
        self._client.set_terminated(run.info.run_id, "FINISHED", end_ms)
        return str(run.info.run_id)

    def _draw(self, experiment_id: str, parent_id: str, sweep: str, content: RunContent) -> None:
        """Put the cell on its curve: a run below the sweep's whose metrics have the option as their step.

        So the UI's charts show scores and cost over that option with no further work.
        """
        from mlflow.entities import Metric

        point = content.point
        if point is None:
            return
        key = f"{sweep} {point.key}".replace("'", "")
        names = {*content.scores, "query_tflops"}
        metrics = [
            Metric(name, value, content.end_ms, point.step)
            for name, value in sorted(content.metrics.items())
            if name in names
        ]
        run = self._find(experiment_id, TAG_CURVE, key)
        drawn = [] if run is None else self._drawn(run.info.run_id, names)
        here = {m.key: m.value for m in drawn if m.step == point.step}
        if here == {m.key: m.value for m in metrics}:
            return
        if run is not None and here:  # a metric's history can only grow, so the curve is drawn anew
            self._client.delete_run(run.info.run_id)
            metrics += [m for m in drawn if m.step != point.step]
            run = None
        if run is None:
            tags = {
                TAG_CURVE: key,
                "mlflow.parentRunId": parent_id,
                "mlflow.note.content": f"Metrics have {point.option} as their step: see the run's charts.",
            }
            run = self._client.create_run(experiment_id, content.start_ms, tags, point.name)
        for batch in _batches(metrics):
            self._client.log_batch(run.info.run_id, metrics=batch)
        end_ms = max(content.end_ms, run.info.end_time or 0)
        self._client.set_terminated(run.info.run_id, "FINISHED", end_ms)

    def _drawn(self, run_id: str, names: Iterable[str]) -> list[Any]:
        """Every point of a curve's run."""
        return [m for name in sorted(names) for m in self._client.get_metric_history(run_id, name)]

    def _create(self, experiment_id: str, content: RunContent, tags: Mapping[str, str]) -> str:
        run = self._client.create_run(
            experiment_id,
            start_time=content.start_ms,
            tags={**tags, "mlflow.note.content": content.note},
            run_name=content.name,
        )
        return str(run.info.run_id)

    def _log(
        self, run_id: str, content: RunContent, tags: Mapping[str, str], before: Mapping[str, float]
    ) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        # The newest value of a metric is the one with the latest time.
        moment = int(time.time() * 1000) if before else content.end_ms
        changed = {name: value for name, value in content.metrics.items() if before.get(name) != value}
        for metrics in _batches(Metric(name, value, moment, 0) for name, value in changed.items()):
            self._client.log_batch(run_id, metrics=metrics)
        for params in _batches(Param(name, value) for name, value in content.params.items()):
            self._client.log_batch(run_id, params=params)
        for batch in _batches(RunTag(name, value) for name, value in tags.items()):
            self._client.log_batch(run_id, tags=batch)
        data = Dataset(content.data, content.data_digest, "bench", json.dumps({"data": content.data}))
        self._client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])])

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One writer of a SQLite store at a time: looking for a run and creating it is one step."""
        if self._database is None:
            yield
            return
        with self._database.with_name(f".{self._database.name}.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _can_become(run: Any, content: RunContent, tables: str) -> bool:
    """False if an update would change a parameter, or leave a metric or table behind that is no more."""
    params_fit = all(content.params.get(name) == value for name, value in run.data.params.items())
    tables_fit = run.data.tags.get(TAG_TABLES, tables) == tables
    return params_fit and tables_fit and run.data.metrics.keys() <= content.metrics.keys()


def _batches(items: Iterable[Any], size: int = 100) -> Iterator[list[Any]]:
    """Lists of at most as many items as one MLflow request may carry."""
    rest = list(items)
    for start in range(0, len(rest), size):
        yield rest[start : start + size]


def _done(state: str, experiment_id: str, run_id: str) -> dict[str, Any]:
    return {"state": state, "experiment_id": experiment_id, "run_id": run_id}


if __name__ == "__main__":
    main()
