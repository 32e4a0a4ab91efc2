"""Saved views of an experiment in the MLflow UI: scores next to their cost, or the curves of its sweeps.

MLflow shows no metric until the user picks columns, and no chart of runs that are folded below their parent;
sorted by a metric, runs are not folded. Saved views set both, but MLflow 3.17's client has no call to create
one. So this writes what the UI writes: a tag of the experiment, a JSON object whose ``state`` is the deflated
state of the page, opened by the query parameter ``viewStateShareKey``. A UI that does not know the tag
ignores it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

CELLS_TAG, CURVES_TAG = "mlflow.sharedViewState.bench", "mlflow.sharedViewState.curves"
_COST = ("query_tflops", "index_tflops", "prompt_tokens", "n", "n_failed", "n_truncated")


def cells_view(scores: Sequence[str], created_ms: int) -> str:
    """The value of CELLS_TAG: two scores, the first with its interval, then cost; best run first."""
    first, *others = scores or ["f1"]
    metrics = [first, f"{first}_low", f"{first}_high", *others[:1], *_COST]
    return _view("Scores and cost", "tags.`bench.cell_id` LIKE '%'", metrics, created_ms, "FIRST_10_RUNS")


def curves_view(scores: Sequence[str], created_ms: int) -> str:
    """The value of CURVES_TAG: the curves of all sweeps and nothing else, for MLflow's chart view."""
    metrics = [*(scores[:2] or ["f1"]), _COST[0]]
    return _view("Trade-off curves", "tags.`bench.curve` LIKE '%'", metrics, created_ms, "SHOW_ALL")


def _view(name: str, search: str, metrics: Sequence[str], created_ms: int, drawn: str) -> str:
    """search: which runs, as sweeps stand among cells; drawn: which of them the charts show."""
    columns = [f"metrics.`{metric}`" for metric in metrics]
    widths = {"attributes.`Run Name`": 320, **dict.fromkeys(columns, 105)}
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
        "columnOrder": [*widths, "runDateAndNestInfo", "duration"],
        "columnWidths": {**widths, "runDateAndNestInfo": 140, "duration": 90},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": name, "createdAt": created_ms, "updatedAt": created_ms, "state": f"deflate;{packed}"}
    return json.dumps(view)


def view_url(server: str, experiment_id: str, tag: str) -> str:
    """URL of an experiment's runs in the view of a tag, in MLflow's model-training mode."""
    charts = "compareRunsMode=CHART&" if tag == CURVES_TAG else ""
    query = f"workflowType=machine_learning&{charts}viewStateShareKey={tag.rpartition('.')[2]}"
    return f"{server}/#/experiments/{experiment_id}/runs?{query}"
