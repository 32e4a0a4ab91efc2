"""A sweep: methods, data sets and models over grids of options; replayable cells share one run."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.data.own import NOT_PATHS, card_for
from bench.errors import ConfigError
from bench.method.options import as_typed, parse_assignments, parse_method
from bench.method.registry import load_method
from bench.run.cell import Cell, CellRequest, plan_cell, shared_runs
from bench.run.equal_cost import NODES, PASSAGES, is_auto
from bench.schema import JsonValue

MAX_CELLS = 10_000
"""A larger grid is more likely a mistake than intended."""

_RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(\d+))?")


@dataclass(frozen=True)
class MethodGrid:
    """One method of a sweep: options that stay fixed, and those that vary."""

    method: str
    options: Mapping[str, JsonValue]
    grid: Mapping[str, Sequence[JsonValue]]


@dataclass(frozen=True)
class Experiment:
    """A sweep: each method on each data set with each reader."""

    methods: tuple[MethodGrid, ...]
    datasets: tuple[str, ...]
    setting: CellRequest
    """Of every cell; the readers are those of ``models``."""
    models: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name of the sweep's parent run in MLflow, made of methods, models and axes."""
        methods = ", ".join(dict.fromkeys(entry.method for entry in self.methods))
        axes: dict[str, list[JsonValue]] = {}
        for entry in self.methods:
            for key, values in entry.grid.items():
                before = axes.setdefault(key, [])
                before += [value for value in values if value not in before]
        shown = " ".join(f"{key}={_shown(values)}" for key, values in axes.items())
        return f"{methods} with {', '.join(self.models)}" + (f": {shown}" if shown else "")


@dataclass(frozen=True)
class GridCell:
    """One point of a grid with its planned cell."""

    point: Mapping[str, JsonValue]
    """The options that the grid varies."""
    cell: Cell

    @property
    def name(self) -> str:
        """Readable name of the point, such as ``t_p=3,t_c=0.5``."""
        return ",".join(f"{key}={as_typed(value)}" for key, value in self.point.items()) or "default"


def parse_grid(axes: Sequence[str]) -> dict[str, list[JsonValue]]:
    """``["t_p=1:8", "t_c=0.3,0.5"]`` -> values by option; ``a:b`` and ``a:b:step`` include both ends.

    Raises ConfigError for an axis without values, repeated values, or an option given twice.
    """
    grid: dict[str, list[JsonValue]] = {}
    for axis in axes:
        key, equals, text = axis.partition("=")
        if not equals or not key or not text:
            raise ConfigError(f"{axis!r}: expected option=values, such as t_p=1:8 or t_c=0.3,0.5.")
        if key in grid:
            raise ConfigError(f"{key}= is given twice; list all its values in one axis.")
        grid[key] = [value for part in text.split(",") for value in _values(part, repr(axis))]
        if len({json.dumps(value, sort_keys=True) for value in grid[key]}) < len(grid[key]):
            raise ConfigError(f"{axis!r}: a value is given twice.")
    return grid


def from_flags(
    setting: CellRequest,
    methods: Sequence[str],
    datasets: Sequence[str],
    models: Sequence[str],
    assignments: Sequence[str],
    axes: Sequence[str],
) -> Experiment:
    """The experiment of ``--method``, ``--dataset``, ``--model``, ``--set`` and the axes.

    An option goes to every method that has it; ``METHOD.option=...`` and ``METHOD:option=...`` to that alone.
    Raises BenchError for a name given twice or unknown, for an option that no method has, and where the flags
    say too little.
    """
    if not datasets and setting.data not in NOT_PATHS:
        datasets = (card_for("", setting.data).name,)
    for flag, names in (("--method", methods), ("--dataset", datasets)):
        if not names:
            raise ConfigError(f"a sweep needs {flag}")
    if not axes and len(methods) * len(datasets) * max(1, len(models)) == 1:
        raise ConfigError("a sweep needs a grid, such as: t_p=1:8 t_c=0.3,0.5")
    own = [parse_method(text) for text in methods]
    methods = [method for method, _ in own]
    of_one = {f"{method}.{key}": value for method, options in own for key, value in options.items()}
    for flag, names in (("--method", methods), ("--dataset", datasets), ("--model", models)):
        for name in names:
            if list(names).count(name) > 1:
                raise ConfigError(f"{flag} {name} is given twice; give it once.")
    fixed = _by_method(methods, {**of_one, **parse_assignments(assignments)}, "--set")
    varied = _by_method(methods, parse_grid(axes), "axis")
    grids = tuple(MethodGrid(method, fixed[method], varied[method]) for method in methods)
    setting = replace(setting, model_named=bool(models))
    return Experiment(grids, tuple(datasets), setting, tuple(models or ("tiny",)))


def _by_method(
    methods: Sequence[str], assigned: Mapping[str, JsonValue], flag: str
) -> dict[str, dict[str, JsonValue]]:
    """Method -> its options; an option with a method's name overrides one without."""
    fields = {method: load_method(method).Config.model_fields for method in methods}
    by_method: dict[str, dict[str, JsonValue]] = {method: {} for method in methods}
    for key, value in assigned.items():
        named, dot, option = key.partition(".")
        if dot and named not in by_method:
            raise ConfigError(
                f"{flag} {key}: {named!r} is none of the methods {', '.join(methods)}; expected "
                "option=values, or METHOD.option=values with one of them."
            )
        if dot:
            by_method[named][option] = value
            continue
        having = [method for method in methods if key in fields[method]]
        if not having and len(methods) > 1:
            options = "; ".join(f"{m}: {', '.join(sorted(fields[m])) or 'none'}" for m in methods)
            raise ConfigError(f"{flag} {key}: none of the methods has this option. Their options: {options}.")
        for method in having or methods:
            if f"{method}.{key}" not in assigned:
                by_method[method][key] = value
    return by_method


def plan_sweep(base: CellRequest, grid: Mapping[str, Sequence[JsonValue]]) -> list[GridCell]:
    """Every point of the grid as a planned cell, the last axis varying fastest.

    Everything is checked before anything runs. Raises BenchError as :func:`bench.run.cell.plan_cell`, and
    ConfigError for an option that is both fixed and varied, or a k that another method's cost would give.
    """
    both = sorted(set(base.options) & set(grid))
    if both:
        raise ConfigError(f"{', '.join(both)}: fixed and varied; give it once.")
    for option in (PASSAGES, NODES):
        if any(is_auto(n, option) for n in [base.options.get(option), *grid.get(option, ())]):
            raise ConfigError(
                f"{option}=auto:METHOD is for bench run and table; a sweep takes numbers: {option}=1:14."
            )
    cells = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        cells.append(GridCell(point, plan_cell(replace(base, options={**base.options, **point}))))
    return cells


def plan_experiment(experiment: Experiment) -> list[list[GridCell]]:
    """All cells of the experiment in the order of the run, in groups that share one run per question.

    Everything is checked before anything runs. Raises BenchError for whatever
    :func:`bench.run.cell.plan_cell` refuses, for more than 10,000 cells, and for a cell asked for twice.
    """
    points = sum(math.prod(map(len, entry.grid.values())) for entry in experiment.methods)
    total = points * len(experiment.datasets) * len(experiment.models)
    if total > MAX_CELLS:
        raise ConfigError(f"The sweep has {total:,} cells; at most {MAX_CELLS:,} are run in one sweep.")
    groups: list[list[GridCell]] = []
    seen: dict[str, tuple[int, str]] = {}
    for model, dataset in itertools.product(experiment.models, experiment.datasets):
        for number, entry in enumerate(experiment.methods):
            request = experiment.setting.of(entry.method, dataset, entry.options, model=model)
            cells = plan_sweep(request, entry.grid)
            for planned in cells:
                origin = (number, planned.name)
                first = seen.setdefault(planned.cell.identity.cell_id, origin)
                if first != origin:
                    before = experiment.methods[first[0]]
                    raise ConfigError(
                        f"{entry.method} {planned.name} on {dataset} with {model} is the same cell as "
                        f"{before.method} {first[1]}; give it once."
                    )
            of = {planned.cell.identity.cell_id: planned for planned in cells}
            groups += [[of[c.identity.cell_id] for c in run] for run in shared_runs(p.cell for p in cells)]
    return groups


def _shown(values: Sequence[JsonValue]) -> str:
    """The values of an axis, a run of whole numbers as ``1:8``."""
    first = values[0]
    integers = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    if len(values) > 2 and integers and list(values) == list(range(first, first + len(values))):
        return f"{first}:{values[-1]}"
    return ",".join(map(as_typed, values))


def _values(part: str, place: str) -> list[JsonValue]:
    match = _RANGE.fullmatch(part)
    if match:
        low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if step < 1 or high < low:
            raise ConfigError(f"{place}: {part} is empty; expected low:high or low:high:step.")
        if (high - low) // step >= MAX_CELLS:
            raise ConfigError(f"{place}: {part} has more than {MAX_CELLS:,} values.")
        return list(range(low, high + 1, step))
    if not part:
        raise ConfigError(f"{place}: an empty value; expected values separated by commas.")
    return list(parse_assignments([f"value={part}"]).values())
