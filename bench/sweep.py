"""A sweep: methods, data sets and models over grids of options; what can be replayed is asked once."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.cell import Cell, CellRequest, plan_cell
from bench.errors import BenchError, ConfigError
from bench.identity import stable_hash
from bench.matching import reference_method
from bench.options import build_config, parse_assignments
from bench.registry import load_method
from bench.schema import JsonValue

MAX_CELLS = 10_000
"""A grid larger than this is more likely a slip than a wish."""

_RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(\d+))?")


@dataclass(frozen=True)
class MethodGrid:
    """One method of a sweep: options that stay fixed, and those that vary."""

    method: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    grid: Mapping[str, Sequence[JsonValue]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """Option -> where it was given (``sweep.yaml:7``), and ``""`` -> where the method was; for messages."""


@dataclass(frozen=True)
class Experiment:
    """Everything of a sweep: each method on each data set, read by each model."""

    methods: tuple[MethodGrid, ...]
    datasets: tuple[str, ...]
    base: CellRequest
    """Data, limit, seed and dtype of every cell; its other fields are not read."""
    models: tuple[str, ...] = ("tiny",)
    name: str = ""
    """Of the sweep's parent run in MLflow; by default made of its methods, models and axes."""

    @property
    def title(self) -> str:
        """The name, or one that says what is swept."""
        methods = ", ".join(dict.fromkeys(found.method for found in self.methods))
        axes: dict[str, list[JsonValue]] = {}
        for found in self.methods:
            for key, values in found.grid.items():
                before = axes.setdefault(key, [])
                before += [value for value in values if value not in before]
        shown = " ".join(f"{key}={_shown(values)}" for key, values in axes.items())
        return self.name or f"{methods} with {', '.join(self.models)}" + (f": {shown}" if shown else "")


@dataclass(frozen=True)
class GridCell:
    """One point of a grid with its planned cell."""

    point: Mapping[str, JsonValue]
    """The options that the grid varies."""
    cell: Cell

    @property
    def fixed(self) -> dict[str, JsonValue]:
        """The options that are set and that the grid does not vary."""
        options = self.cell.request.options
        return {key: value for key, value in options.items() if key not in self.point}

    @property
    def folder(self) -> str:
        """The name as that of one folder."""
        return _folder_name(self.name)

    @property
    def name(self) -> str:
        """Readable name of the point, such as ``t_p=3,t_c=0.5``."""
        return _joined(self.point)


def parse_grid(axes: Sequence[str]) -> dict[str, list[JsonValue]]:
    """``["t_p=1:8", "t_c=0.3,0.5"]`` -> values by option; ``a:b`` and ``a:b:step`` include both ends.

    Raises ConfigError for an axis without values, repeated values, an option given twice, or more than
    10,000 points.
    """
    grid: dict[str, list[JsonValue]] = {}
    for axis in axes:
        key, equals, text = axis.partition("=")
        if not equals or not key or not text:
            raise ConfigError(f"--grid {axis!r}: expected option=values, such as t_p=1:8 or t_c=0.3,0.5.")
        if key in grid:
            raise ConfigError(f"--grid {key} is given twice; list all its values in one axis.")
        grid[key] = checked_axis(parse_values(text, f"--grid {axis!r}"), f"--grid {axis!r}")
    points = 1
    for values in grid.values():
        points *= len(values)
    if points > MAX_CELLS:
        raise ConfigError(f"--grid has {points:,} points; at most {MAX_CELLS:,} are run in one sweep.")
    return grid


def parse_values(text: str, place: str) -> list[JsonValue]:
    """The values that one text names, such as ``1:8`` or ``0.3,0.5``.

    place: what the messages begin with. Raises ConfigError for an empty value or range.
    """
    return [value for part in text.split(",") for value in _values(part, place)]


def checked_axis(values: list[JsonValue], place: str) -> list[JsonValue]:
    """The values of one option; raises ConfigError for none, repeated ones, or more than 10,000."""
    if not values:
        raise ConfigError(f"{place}: no values; expected some, such as 1:8 or 0.3,0.5.")
    if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
        raise ConfigError(f"{place}: a value is given twice.")
    if len(values) > MAX_CELLS:
        raise ConfigError(f"{place}: {len(values):,} values; at most {MAX_CELLS:,} are run in one sweep.")
    return values


def from_flags(
    methods: Sequence[str],
    datasets: Sequence[str],
    models: Sequence[str],
    assignments: Sequence[str],
    axes: Sequence[str],
    base: CellRequest,
) -> Experiment:
    """The experiment of ``--method``, ``--dataset``, ``--model``, ``--set`` and ``--grid``.

    An option goes to every method that has it; ``METHOD.option=...`` goes to that method alone.
    Raises BenchError for a name given twice or unknown, and for an option that no method has.
    """
    for flag, names in (("--method", methods), ("--dataset", datasets), ("--model", models)):
        for name in names:
            if list(names).count(name) > 1:
                raise ConfigError(f"{flag} {name} is given twice; give it once.")
    fixed = _by_method(methods, parse_assignments(assignments), "--set")
    varied = _by_method(methods, parse_grid(axes), "--grid")
    found = []
    for method in methods:
        both = sorted(set(fixed[method]) & set(varied[method]))
        if both:
            raise ConfigError(f"{', '.join(both)}: given with --set and with --grid; give it once.")
        found.append(MethodGrid(method, fixed[method], varied[method]))
    return Experiment(tuple(found), tuple(datasets), base, tuple(models))


def _by_method(
    methods: Sequence[str], given: Mapping[str, JsonValue], flag: str
) -> dict[str, dict[str, JsonValue]]:
    """Method -> the options that are meant for it; what names its method goes before what does not."""
    has = {method: load_method(method).Config.model_fields for method in methods}
    found: dict[str, dict[str, JsonValue]] = {method: {} for method in methods}
    for key, value in sorted(given.items(), key=lambda item: "." in item[0]):
        named, dot, option = key.partition(".")
        if dot and named not in found:
            raise ConfigError(
                f"{flag} {key}: {named!r} is none of the methods {', '.join(methods)}; expected "
                "option=values, or METHOD.option=values with one of them."
            )
        targets = [named] if dot else [m for m in methods if key in has[m]]
        if not targets and len(methods) > 1:
            options = "; ".join(f"{m}: {', '.join(sorted(has[m])) or 'none'}" for m in methods)
            raise ConfigError(f"{flag} {key}: none of the methods has this option. Their options: {options}.")
        for method in targets or methods:
            found[method][option if dot else key] = value
    return {
        m: dict(sorted(options.items(), key=lambda o: _order(o[0], given))) for m, options in found.items()
    }


def _order(option: str, given: Mapping[str, JsonValue]) -> int:
    """Where an option stands among those given: the axis named last varies fastest."""
    return next(i for i, key in enumerate(given) if key.rpartition(".")[2] == option)


def plan_sweep(base: CellRequest, grid: Mapping[str, Sequence[JsonValue]]) -> list[GridCell]:
    """Every point of the grid as a planned cell, the last axis varying fastest.

    Everything is checked before anything runs. Raises BenchError as :func:`bench.cell.plan_cell`, and
    ConfigError for an option that is both fixed and varied, or a k that another method's cost would give.
    """
    both = sorted(set(base.options) & set(grid))
    if both:
        raise ConfigError(f"{', '.join(both)}: given with --set and with --grid; give it once.")
    if any(reference_method(k) for k in [base.options.get("k"), *grid.get("k", ())]):
        raise ConfigError(
            "k=auto:METHOD is found by bench run and bench table; a sweep takes numbers, such as "
            "--grid k=1:14."
        )
    cells = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        cells.append(GridCell(point, plan_cell(replace(base, options={**base.options, **point}))))
    return cells


def plan_experiment(experiment: Experiment) -> list[list[GridCell]]:
    """All cells of the experiment in groups that one run per question serves, in the order they are run.

    Everything is checked before anything runs. Raises ConfigError, naming the place where a file gave it,
    for whatever :func:`bench.cell.plan_cell` refuses, for more than 10,000 cells, and for a cell that is
    asked for twice.
    """
    points = sum(_points(found.grid) for found in experiment.methods)
    total = points * len(experiment.datasets) * len(experiment.models)
    if total > MAX_CELLS:
        raise ConfigError(f"The sweep has {total:,} cells; at most {MAX_CELLS:,} are run in one sweep.")
    groups: list[list[GridCell]] = []
    seen: dict[str, tuple[int, str]] = {}
    for model, dataset in itertools.product(experiment.models, experiment.datasets):
        for number, found in enumerate(experiment.methods):
            request = replace(
                experiment.base,
                method=found.method,
                dataset=dataset,
                model=model,
                options=dict(found.options),
            )
            try:
                cells = plan_sweep(request, found.grid)
            except BenchError as error:
                raise _located(error, found) from None
            for planned in cells:
                here = (number, planned.name)
                other = seen.setdefault(planned.cell.identity.cell_id, here)
                if other != here:
                    before = experiment.methods[other[0]]
                    twice = ConfigError(
                        f"{found.method} {planned.name} on {dataset} with {model} is the same cell as "
                        f"{before.method} {other[1]}{_at(before)}; give it once."
                    )
                    raise _located(twice, found)
            groups += shared_runs(cells)
    return groups


def shared_runs(cells: Sequence[GridCell]) -> list[list[GridCell]]:
    """The cells in groups that one run per question serves: equal but for options the method replays."""
    groups: dict[str, list[GridCell]] = {}
    for found in cells:
        replayed = found.cell.method.replayed
        identity = asdict(found.cell.identity)
        identity["config"] = {k: v for k, v in identity["config"].items() if k not in replayed}
        groups.setdefault(stable_hash(identity), []).append(found)
    return list(groups.values())


def folders_below(out: Path, groups: Sequence[Sequence[GridCell]]) -> dict[str, Path]:
    """Cell id -> the cell's folder below ``out``, named by its point.

    Where that would put two cells into one folder, as entries of one method with other fixed options, all
    names begin with the fixed options. Raises ConfigError where that does not tell them apart either.
    """
    cells = {found.cell.identity.cell_id: found for group in groups for found in group}
    several = len({_method_data_model(found) for found in cells.values()}) > 1

    def place(found: GridCell, name: str) -> Path:
        return out / "--".join(_method_data_model(found)) / name if several else out / name

    folders = {id_: place(found, found.folder) for id_, found in cells.items()}
    if len(set(folders.values())) < len(folders):
        folders = {
            id_: place(found, _folder_name(_joined({**found.fixed, **found.point})))
            for id_, found in cells.items()
        }
    first: dict[Path, str] = {}
    for id_, folder in folders.items():
        other = cells[first.setdefault(folder, id_)]
        if other is not cells[id_]:
            raise ConfigError(
                f"{_described(other)} and {_described(cells[id_])} would both lie in {folder}. Leave out "
                "--out: below --results each cell has a folder of its own."
            )
    return folders


def _method_data_model(found: GridCell) -> tuple[str, str, str]:
    return found.cell.request.method, found.cell.card.name, Path(found.cell.reader.name).name


def _described(found: GridCell) -> str:
    request = found.cell.request
    return f"{request.method} {found.name} on {request.dataset} with {request.model}"


def _joined(options: Mapping[str, JsonValue]) -> str:
    return ",".join(f"{key}={value}" for key, value in options.items()) or "default"


def _folder_name(name: str) -> str:
    """The name as that of one folder: whatever else an option's value holds becomes ``_``."""
    return re.sub(r"[^\w.,=+-]+", "_", name)


def _points(grid: Mapping[str, Sequence[JsonValue]]) -> int:
    points = 1
    for values in grid.values():
        points *= len(values)
    return points


def _located(error: BenchError, found: MethodGrid) -> BenchError:
    """The error with the line of the option that is to blame, where a file gave it."""
    if not found.places:
        return error
    config = load_method(found.method).Config
    blamed = next((key for key in found.places if key and str(error).startswith(f"{key}=")), "")
    if str(error).startswith(f"Method {found.method!r}"):
        for key, values in {**{k: [v] for k, v in found.options.items()}, **found.grid}.items():
            for value in values:
                try:
                    build_config(config, {key: value}, found.method)
                except ConfigError as fault:
                    error, blamed = fault, key
    return ConfigError(f"{found.places[blamed]}: {str(error).replace('--set ', '')}")


def _at(found: MethodGrid) -> str:
    return f" ({found.places['']})" if found.places else ""


def _shown(values: Sequence[JsonValue]) -> str:
    """The values of an axis, a run of whole numbers as ``1:8``."""
    first = values[0]
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    if len(values) > 2 and whole and list(values) == list(range(first, first + len(values))):
        return f"{first}:{values[-1]}"
    return ",".join(value if isinstance(value, str) else json.dumps(value) for value in values)


def _values(part: str, place: str) -> list[JsonValue]:
    found = _RANGE.fullmatch(part)
    if found:
        low, high, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if step < 1 or high < low:
            raise ConfigError(f"{place}: {part} is empty; expected low:high or low:high:step.")
        if (high - low) // step >= MAX_CELLS:
            raise ConfigError(f"{place}: {part} has more than {MAX_CELLS:,} values.")
        return list(range(low, high + 1, step))
    if not part:
        raise ConfigError(f"{place}: an empty value; expected values separated by commas.")
    return [read_scalar(part)]


def read_scalar(text: str) -> JsonValue:
    """A value that reads as JSON is taken as such (but for NaN and infinity), anything else as text."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text
    return value


def _no_number(name: str) -> JsonValue:
    raise ValueError(name)
