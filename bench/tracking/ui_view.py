"""Saved views of an experiment in the MLflow UI: scores next to their cost, or the curves of its sweeps.

MLflow shows no metric until the user picks columns, and no chart of runs that are folded below their
parent; sorted by a metric, runs are not folded. Saved views set both, but only the UI can create one: MLflow
3.17's client has no call for it. So this writes what the UI writes: a tag of the experiment, a JSON object
whose ``state`` is the deflated state of the page, opened by the query parameter ``viewStateShareKey``. A UI
that does not know the tag ignores it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

VIEW_KEY = "bench"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
VIEW_NAME = "Scores and cost"
VIEW_FILTER = "tags.`bench.cell_id` LIKE '%'"
"""Without it, sweeps and their curves would stand among the cells."""

CURVES_KEY = "curves"
CURVES_TAG = f"mlflow.sharedViewState.{CURVES_KEY}"
CURVES_NAME = "Trade-off curves"
CURVES_FILTER = "tags.`bench.curve` LIKE '%'"

_COST = ("query_tflops", "index_tflops", "prompt_tokens", "n", "n_failed", "n_truncated")
_NAME, _CREATED, _DURATION = "attributes.`Run Name`", "runDateAndNestInfo", "duration"
_WIDTHS = {_NAME: 320, _CREATED: 140, _DURATION: 90}
"""Column widths in pixels; a run's name has method, options, data and model."""
_METRIC_WIDTH = 105


def saved_view(scores: Sequence[str], created_ms: int) -> str:
    """The tag's value: the first two scores, the first with its interval, then cost; best run first."""
    first, *others = scores or ["f1"]
    metrics = [first, f"{first}_low", f"{first}_high", *others[:1], *_COST]
    columns = [f"metrics.`{metric}`" for metric in metrics]
    return _view(VIEW_NAME, VIEW_FILTER, columns, created_ms)


def curves_view(scores: Sequence[str], created_ms: int) -> str:
    """The tag's value: the curves of all sweeps and nothing else, for MLflow's chart view."""
    columns = [f"metrics.`{metric}`" for metric in (*(scores[:2] or ["f1"]), _COST[0])]
    return _view(CURVES_NAME, CURVES_FILTER, columns, created_ms, drawn="SHOW_ALL")


def _view(
    name: str, search: str, columns: Sequence[str], created_ms: int, drawn: str = "FIRST_10_RUNS"
) -> str:
    """drawn: which runs the charts show, as MLflow names it; by itself it shows the first ten."""
    state = {
        "searchFilter": search,
        "orderByKey": columns[0],
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "runsHiddenMode": drawn,
        "selectedColumns": columns,
        "columnOrder": [_NAME, *columns, _CREATED, _DURATION],
        "columnWidths": {**_WIDTHS, **dict.fromkeys(columns, _METRIC_WIDTH)},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": name, "createdAt": created_ms, "updatedAt": created_ms, "state": f"deflate;{packed}"}
    return json.dumps(view)


def runs_url(server: str, experiment_id: str) -> str:
    """URL of an experiment's runs in that view, in MLflow's model-training mode."""
    query = f"workflowType=machine_learning&viewStateShareKey={VIEW_KEY}"
    return f"{server}/#/experiments/{experiment_id}/runs?{query}"


def curves_url(server: str, experiment_id: str) -> str:
    """URL of the trade-off curves of an experiment's sweeps."""
    query = f"workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={CURVES_KEY}"
    return f"{server}/#/experiments/{experiment_id}/runs?{query}"
