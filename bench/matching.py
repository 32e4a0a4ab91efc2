"""``k=auto:METHOD``: as many passages as make a ranker cost what another method costs.

The papers compare PECAN with retrievers at equal cost: their Top-X is the number of passages at which
reading costs about as much as PECAN's search does on that data set (PECAN, Table 1). ``k=auto:pecan``
finds it for any model and data: the k whose mean query FLOPs are nearest to those of PECAN's cell. What
is found is a plain k, so the cell is the same as if that k had been given.

Costs are measured, not estimated: every k that the search tries is a cell with records of its own. Cost
grows almost linearly with k, so a few cells are enough.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.cell import Cell, CellRequest, plan_cell
from bench.cell_folder import finished_summary
from bench.errors import ConfigError
from bench.schema import JsonValue

_AUTO = re.compile(r"auto:(\w+)")

FIRST_K = 5
"""Where the search begins: the papers' fixed Top-5, which most tables hold anyway."""


def reference_method(k: JsonValue) -> str | None:
    """The METHOD of ``auto:METHOD``, None for anything else; raises ConfigError for ``auto`` alone."""
    if not isinstance(k, str) or not k.startswith("auto"):
        return None
    found = _AUTO.fullmatch(k)
    if found is None:
        raise ConfigError(f"k={k}: expected auto:METHOD, such as k=auto:pecan, or a number.")
    return found[1]


def reference_cell(request: CellRequest) -> Cell | None:
    """The cell whose cost the request's k must match: METHOD with its defaults on the same data and model.

    None for a request without ``k=auto:METHOD``. Raises BenchError as :func:`bench.cell.plan_cell`.
    """
    method = reference_method(request.options.get("k"))
    return None if method is None else plan_cell(replace(request, method=method, options={}))


def match_k(request: CellRequest, target: float, cost_of: Callable[[Cell], float | None]) -> Cell | None:
    """The request's cell with the k whose cost is nearest to ``target``, in mean query FLOPs.

    cost_of: a cell's mean query FLOPs, run first if need be; None where it may not be run.
    None as soon as a cost that is needed cannot be had. Raises BenchError as :func:`bench.cell.plan_cell`.
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
    """The cell of a request with ``k=auto:METHOD``; ``run`` runs a cell that is not finished.

    None where ``run`` is not given and a cell whose cost is needed is not there.
    Raises BenchError as :func:`bench.cell.plan_cell`.
    """

    def cost_of(cell: Cell) -> float | None:
        if run is not None:
            run(cell)
        summary = finished_summary(cell, cell.folder(results))
        return None if summary is None else float(summary["query_flops"]["mean"])

    reference = reference_cell(request)
    target = None if reference is None else cost_of(reference)
    return None if target is None else match_k(request, target, cost_of)


def closest_k(target: float, cost_of: Callable[[int], float | None], first: int = FIRST_K) -> int | None:
    """The k >= 1 whose cost is nearest to ``target``; the smaller one where two are as near.

    cost_of: grows with k until everything is read, then stays; called once per k that is tried.
    None as soon as it returns None.
    """
    costs: dict[int, float] = {}
    low, high = 0, 0  # cost(low) < target <= cost(high); 0: not found yet
    k = first
    while True:
        found = cost_of(k)
        if found is None:
            return None
        costs[k] = found
        if found >= target:
            high = k
        elif low and costs[low] == found:
            return low  # more passages cost no more: all there are have been read
        else:
            low = k
        if high - low == 1:
            break
        k = _next(low, high, costs, target)
    if not low:
        return high
    return low if target - costs[low] <= costs[high] - target else high


def _next(low: int, high: int, costs: dict[int, float], target: float) -> int:
    """The next k to try: where a straight line meets the target; twice or half-way once that is slow."""
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
