"""``k=auto:METHOD``: the number of passages at which a ranker costs as much as another method.

The papers compare PECAN with retrievers at equal cost: their Top-X is the number of passages at which
reading costs about as much as PECAN's search does on that data set (PECAN, Table 1). ``k=auto:pecan``
finds it for any model and data: the k whose mean query FLOPs are nearest to those of PECAN's cell. The
result is a plain k, so the cell is the same as with that k on the command line. METHOD has its defaults, or
the options that follow it: ``k=auto:pecan:variant=garlic`` (GARLIC, Table 1: "similar TFLOPs to GARLIC").

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

from bench.errors import BenchError, ConfigError
from bench.method.options import parse_assignments
from bench.method.registry import load_method
from bench.results.models import read_description
from bench.results.records import RECORDS_FILE, read_records
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.cell_folder import finished_summary
from bench.schema import JsonValue

_AUTO = re.compile(r"auto:(\w+)(?::(.+))?")

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
    name: str
    """``METHOD`` or ``METHOD:KEY=VALUE,KEY=VALUE``."""

    @property
    def method(self) -> str:
        """The other method."""
        return self.name.partition(":")[0]

    @property
    def options(self) -> dict[str, JsonValue]:
        """Its options, where they are named; raises ConfigError for one that is no ``KEY=VALUE``."""
        _, _, assignments = self.name.partition(":")
        return parse_assignments(assignments.split(",")) if assignments else {}


def waiting_option(options: Mapping[str, JsonValue]) -> Waiting | None:
    """The option set to ``auto:METHOD``; None if there is none."""
    for option in (PASSAGES, NODES):
        value = options.get(option)
        if reference_method(value, option) is not None:
            return Waiting(option, str(value).removeprefix("auto:"))
    return None


def provisional(request: CellRequest) -> CellRequest:
    """The request with a number instead of ``auto:METHOD``, so that its other options can be checked."""
    waiting = waiting_option(request.options)
    if waiting is None:
        return request
    return replace(request, options={**request.options, waiting.option: FIRST_K})


def reference_cell(request: CellRequest) -> Cell | None:
    """The cell that the request waits for: METHOD with the options named for it on the same data and model.

    An ablation waits for its method with the same ``editions`` (GARLIC, Sec. 4.4: as many nodes as GARLIC).
    None for a request without ``auto:METHOD``.
    Raises BenchError like :func:`bench.run.cell.plan_cell`.
    """
    waiting = waiting_option(request.options)
    if waiting is None:
        return None
    kept = load_method(waiting.method).editions if waiting.method == request.method else frozenset()
    options = {name: value for name, value in request.options.items() if name in kept} | waiting.options
    return plan_cell(replace(request, method=waiting.method, options=options))


def match_nodes(request: CellRequest, reference: Path) -> Cell:
    """The request's cell with ``n_nodes`` the mean number of nodes of the reference cell, at least 1.

    reference: folder of a finished cell; its failed questions do not count.
    """
    counts = [len(record.context) for record in read_records(reference / RECORDS_FILE) if not record.error]
    return plan_cell(
        replace(request, options={**request.options, NODES: max(1, round(fmean(counts)) if counts else 1)})
    )


def match_k(
    request: CellRequest, target: float, results: Path, cost_of: Callable[[Cell], float | None]
) -> Cell | None:
    """The request's cell with the k whose cost is nearest to ``target``, in mean query FLOPs.

    results: where cells of other k may be finished. cost_of: a cell's mean query FLOPs, run first if need be;
    None where it may not be run.
    None as soon as a cost that is needed is unknown. Raises BenchError as :func:`bench.run.cell.plan_cell`.
    """

    def cost(k: int) -> float | None:
        return cost_of(with_k(request, k))

    k = closest_k(target, cost, measured_costs(request, results))
    return None if k is None else with_k(request, k)


def with_k(request: CellRequest, k: int) -> Cell:
    """The request's cell with that k."""
    return plan_cell(replace(request, options={**request.options, PASSAGES: k}))


def measured_costs(request: CellRequest, results: Path) -> dict[int, float]:
    """K -> mean query FLOPs of the request's finished cells, whatever their k."""
    costs = {}
    folder = plan_cell(provisional(request)).folder(results)
    for other in sorted(folder.parent.glob(folder.name.rpartition("--")[0] + "--*")):
        try:
            k = read_description(other).config.get(PASSAGES)
        except BenchError:
            continue  # damaged, or of an earlier version
        if isinstance(k, int):
            cell = with_k(request, k)
            summary = finished_summary(cell, other) if cell.identity.folder == other.name else None
            if summary is not None:
                costs[k] = summary.query_flops.mean
    return costs


def matched_cell(
    request: CellRequest, results: Path, run: Callable[[Cell], object] | None = None
) -> Cell | None:
    """The cell of a request with ``auto:METHOD``; ``run`` runs a cell that is not finished.

    None where ``run`` is not given and a cell whose cost is needed is not there.
    Raises BenchError as :func:`bench.run.cell.plan_cell`.
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
    return None if target is None else match_k(request, target, results, cost_of)


def closest_k(
    target: float, cost_of: Callable[[int], float | None], known: Mapping[int, float] | None = None
) -> int | None:
    """The k >= 1 whose cost is nearest to ``target``; the smaller one where two are as near.

    cost_of: grows with k until everything is read, then stays; called once per k that is tried. known: costs
    that need not be asked for. None as soon as ``cost_of`` returns None.
    """
    around = neighbours(target, cost_of, known)
    if around is None:
        return None
    _, _, costs = around
    # Of all that are known, since costs need not grow: Self-Route reads everything where it read too little.
    return min(costs, key=lambda k: (abs(costs[k] - target), k))


def neighbours(
    target: float, cost_of: Callable[[int], float | None], known: Mapping[int, float] | None = None
) -> tuple[int, int, dict[int, float]] | None:
    """Two neighbouring k with cost(low) < target <= cost(high), and all costs; as :func:`closest_k`.

    low is 0 where k = 1 costs as much; high is 0 where reading everything costs less, and low is then the
    smallest k known to read everything.
    """
    costs = dict(known or {})
    while True:
        high = min((k for k, cost in costs.items() if cost >= target), default=0)
        low = max((k for k, cost in costs.items() if cost < target and not 0 < high < k), default=0)
        if high - low == 1:
            return low, high, costs
        same = [k for k, cost in costs.items() if low and cost == costs[low]]
        if not high and len(same) > 1:
            return min(same), 0, costs
        k = _next(low, high, costs, target) if costs else FIRST_K
        cost = cost_of(k)
        if cost is None:
            return None
        costs[k] = cost


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
    for name, value in request.options.items():
        parts += ["--set", f"{name}={value}"]
    return shlex.join(parts)
