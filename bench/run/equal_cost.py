"""``k=auto:METHOD``: the number of passages at which a ranker costs as much as another method.

The papers compare PECAN with retrievers at equal cost: their Top-X is the number of passages at which
reading costs about as much as PECAN's search does on that data set (PECAN, Table 1). ``k=auto:pecan``
finds it for any model and data: the k whose mean query FLOPs are nearest to those of PECAN's cell. The
result is a plain k, so the cell is the same as with that k on the command line.

``n_nodes=auto:METHOD`` is the same for a method that reads a fixed number of nodes: as many as METHOD reads
on average, rounded (PECAN, Sec. 4.2: "corresponding to the average used by PECAN").

Costs are measured, not estimated: every k that the search tries is a cell with its own records. Cost
grows almost linearly with k, so a few cells are enough.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.errors import ConfigError
from bench.results.records import RECORDS_FILE, read_records
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.cell_folder import finished_summary
from bench.schema import JsonValue

_AUTO = re.compile(r"auto:(\w+)")

FIRST_K = 5
"""Start of the search: the papers' fixed Top-5, a cell that most tables need anyway."""


PASSAGES, NODES = "k", "n_nodes"
"""Options that can depend on another cell: to match its cost, or the number of nodes it reads."""


def reference_method(value: JsonValue, option: str = PASSAGES) -> str | None:
    """The METHOD of ``auto:METHOD``, None for anything else; raises ConfigError for ``auto`` alone."""
    if not isinstance(value, str) or not value.startswith("auto"):
        return None
    match = _AUTO.fullmatch(value)
    if match is None:
        raise ConfigError(
            f"{option}={value}: expected auto:METHOD, with the name of a method, or a number.", option=option
        )
    return match[1]


@dataclass(frozen=True)
class Waiting:
    """An option whose value depends on another method's cell."""

    option: str
    method: str


def waiting_option(options: Mapping[str, JsonValue]) -> Waiting | None:
    """The option set to ``auto:METHOD``; None if there is none."""
    for option in (PASSAGES, NODES):
        method = reference_method(options.get(option), option)
        if method is not None:
            return Waiting(option, method)
    return None


def provisional(request: CellRequest) -> CellRequest:
    """The request with a number instead of ``auto:METHOD``, so that its other options can be checked."""
    waiting = waiting_option(request.options)
    if waiting is None:
        return request
    return replace(request, options={**request.options, waiting.option: FIRST_K})


def reference_cell(request: CellRequest) -> Cell | None:
    """The cell that the request waits for: METHOD with its defaults on the same data and model.

    None for a request without ``auto:METHOD``. Raises BenchError like :func:`bench.run.cell.plan_cell`.
    """
    waiting = waiting_option(request.options)
    return None if waiting is None else plan_cell(replace(request, method=waiting.method, options={}))


def match_nodes(request: CellRequest, reference: Path) -> Cell:
    """The request's cell with ``n_nodes`` the mean number of nodes of the reference cell, at least 1.

    reference: folder of a finished cell; its failed questions do not count.
    """
    counts = [len(record.context) for record in read_records(reference / RECORDS_FILE) if not record.error]
    return plan_cell(
        replace(request, options={**request.options, NODES: max(1, round(fmean(counts)) if counts else 1)})
    )


def match_k(request: CellRequest, target: float, cost_of: Callable[[Cell], float | None]) -> Cell | None:
    """The request's cell with the k whose cost is nearest to ``target``, in mean query FLOPs.

    cost_of: a cell's mean query FLOPs; may run the cell; None if the cost is unknown.
    Returns None as soon as a required cost is unknown. Raises BenchError like
    :func:`bench.run.cell.plan_cell`.
    """
    cells: dict[int, Cell] = {}

    def cost(k: int) -> float | None:
        cells[k] = plan_cell(replace(request, options={**request.options, "k": k}))
        return cost_of(cells[k])

    k = closest_k(target, cost)
    return None if k is None else cells[k]


def matched_cell(
    request: CellRequest, results: Path, run: Callable[[Cell], object] | None = None
) -> Cell | None:
    """The cell of a request with ``auto:METHOD``.

    run: runs an unfinished cell. Without it, returns None if a cell whose cost is required is missing.
    Raises BenchError like :func:`bench.run.cell.plan_cell`.
    """

    def cost_of(cell: Cell) -> float | None:
        if run is not None:
            run(cell)
        summary = finished_summary(cell, cell.folder(results))
        return None if summary is None else summary.query_flops.mean

    reference = reference_cell(request)
    target = None if reference is None else cost_of(reference)
    if reference is not None and target is not None and NODES in request.options:
        return match_nodes(request, reference.folder(results))
    return None if target is None else match_k(request, target, cost_of)


def closest_k(target: float, cost_of: Callable[[int], float | None], first: int = FIRST_K) -> int | None:
    """The k >= 1 whose cost is nearest to ``target``; the smaller one if two are equally near.

    cost_of: grows with k until everything is read, then stays constant; called once per k tried.
    Returns None as soon as it does.
    """
    costs: dict[int, float] = {}
    low, high = 0, 0  # cost(low) < target <= cost(high); 0: not known yet
    k = first
    while True:
        cost = cost_of(k)
        if cost is None:
            return None
        costs[k] = cost
        if cost >= target:
            high = k
        elif low and costs[low] == cost:
            return low  # more passages cost no more: everything is read
        else:
            low = k
        if high - low == 1:
            break
        k = _next(low, high, costs, target)
    if not low:
        return high
    return low if target - costs[low] <= costs[high] - target else high


def _next(low: int, high: int, costs: dict[int, float], target: float) -> int:
    """The next k to try: by linear interpolation; by doubling or bisection if that takes many steps."""
    if not high and len(costs) > 3:
        return 2 * low
    if not high:
        far = target >= 4 * costs[low]
        return 4 * low if far else max(low + 1, round(low * target / costs[low]))
    if len(costs) > 6:
        return (low + high) // 2
    base, below = (low, costs[low]) if low else (0, 0.0)
    rise = costs[high] - below
    guess = base + (round((high - base) * ((target - below) / rise)) if rise else 0)
    return min(max(guess, low + 1), high - 1)


def command_of(request: CellRequest, results: Path) -> str:
    """The ``bench run`` command of a request, for messages."""
    parts = ["bench", "run", "--method", request.method, "--dataset", request.dataset]
    parts += ["--model", request.model, "--data", request.data]
    for name, value in (("limit", request.limit), ("seed", request.seed or None), ("dtype", request.dtype)):
        parts += [f"--{name}", str(value)] if value is not None else []
    parts += ["--results", str(results)] if results != Path("results") else []
    return shlex.join(parts)
