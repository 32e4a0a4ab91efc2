"""A sweep in one YAML file; every error names the line and the expected value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bench.data.own import card_for
from bench.errors import BenchError, ConfigError, DataError
from bench.files.yaml import YamlFile, open_yaml
from bench.method.registry import load_method
from bench.models.spec import resolve
from bench.run.cell import CellRequest
from bench.schema import JsonValue
from bench.sweeps.grid import Experiment, MethodGrid, checked_axis, parse_values


def _known(check: Callable[[str], object]) -> AfterValidator:
    """A name that ``check`` accepts."""

    def validate(name: str) -> str:
        try:
            check(name)
        except BenchError as error:
            raise ValueError(str(error)) from None
        return name

    return AfterValidator(validate)


def _distinct(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice; give it once.")
    return names


Item = TypeVar("Item")
_Several = Annotated[
    list[Item],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    Field(min_length=1),
]
"""A list; a single item may stand without brackets."""
_Names = Annotated[_Several[Item], AfterValidator(_distinct)]
_MethodName = Annotated[str, _known(load_method)]
_Options = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Entry(_Part):
    """One method with its own options."""

    method: _MethodName
    set: _Options = Field(default_factory=dict)
    grid: _Options = Field(default_factory=dict)


class _Sweep(_Part):
    """The content of the file."""

    methods: _Several[
        Annotated[_Entry, BeforeValidator(lambda v: {"method": v} if isinstance(v, str) else v)]
    ]
    datasets: _Names[str]
    models: _Names[Annotated[str, _known(resolve)]] = Field(default=[])
    name: str = ""
    data: str = "sample"
    limit: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    set: _Options = Field(default_factory=dict)
    grid: _Options = Field(default_factory=dict)


def read_experiment(path: Path) -> Experiment:
    """The sweep that a YAML file describes; ``docs/sweeps.md`` has the schema.

    Values are YAML 1.2: ``on`` and ``1:8`` are text; a lone text under ``grid`` is read as on the command
    line. Raises ConfigError naming ``file:line``, the key and what was expected: for a file that is no YAML,
    an unknown or repeated key, and an unknown method, data set, model or option.
    """
    try:
        file = open_yaml(path, _Sweep, "sweep file")
    except DataError as error:
        raise ConfigError(str(error)) from None
    content = file.content
    for number, name in enumerate(content.datasets):
        try:
            card_for(name, content.data)
        except BenchError as error:
            raise ConfigError(f"{file.at('datasets', number)}: datasets.{number}: {error}") from None
    return Experiment(
        methods=tuple(_methods(file)),
        datasets=tuple(content.datasets),
        setting=CellRequest(
            data=content.data,
            limit=content.limit,
            seed=content.seed,
            dtype=content.dtype,
            model_named=bool(content.models),
        ),
        models=tuple(content.models) or ("tiny",),
        name=content.name,
    )


def _methods(file: YamlFile[_Sweep]) -> list[MethodGrid]:
    """Every entry of ``methods``, with the shared options that its method has."""
    content = file.content
    names = [entry.method for entry in content.methods]
    _check_options(file, (), content, names)
    grids = []
    for number, entry in enumerate(content.methods):
        where = ("methods", number)
        _check_options(file, where, entry, [entry.method])
        fields = load_method(entry.method).Config.model_fields
        own_options = {*entry.set, *entry.grid}
        places = {"": file.at(*where)}
        fixed: dict[str, JsonValue] = {}
        varied: dict[str, list[JsonValue]] = {}
        for place, part, options in (((), content, fields.keys() - own_options), (where, entry, own_options)):
            for key in [key for key in part.set if key in options]:
                fixed[key], places[key] = part.set[key], file.at(*place, "set", key)
            for key in [key for key in part.grid if key in options]:
                places[key] = file.at(*place, "grid", key)
                varied[key] = _axis(part.grid[key], f"{places[key]}: {key}")
        grids.append(MethodGrid(entry.method, fixed, varied, places))
    return grids


def _check_options(
    file: YamlFile[_Sweep], where: tuple[str | int, ...], part: _Entry | _Sweep, methods: Sequence[str]
) -> None:
    """Refuse an option that none of the methods has, or that is both fixed and varied."""
    options_of = {name: sorted(load_method(name).Config.model_fields) for name in methods}
    options = {option for several in options_of.values() for option in several}
    for kind, key in [*(("set", key) for key in part.set), *(("grid", key) for key in part.grid)]:
        place = file.at(*where, kind, key)
        if key not in options:
            near = difflib.get_close_matches(key, options, n=1, cutoff=0.5)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            listed = "; ".join(f"{name}: {', '.join(has) or 'none'}" for name, has in options_of.items())
            raise ConfigError(f"{place}: no method has the option {key!r}.{guess} Options of {listed}.")
        if kind == "grid" and key in part.set:
            raise ConfigError(f"{place}: {key}: under set and under grid; give it once.")


def _axis(value: JsonValue, place: str) -> list[JsonValue]:
    """The values of one option under ``grid``."""
    if isinstance(value, dict):
        raise ConfigError(f"{place} is a mapping; expected values, such as 1:8 or [0.3, 0.5].")
    if isinstance(value, str):
        value = parse_values(value, place)
    return checked_axis(value if isinstance(value, list) else [value], place)


def with_overrides(
    experiment: Experiment,
    models: Sequence[str] = (),
    data: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    dtype: str | None = None,
) -> Experiment:
    """The experiment of a file, overridden by the flags."""
    flags: Mapping[str, Any] = {"data": data, "limit": limit, "seed": seed, "dtype": dtype}
    changed = {key: value for key, value in flags.items() if value is not None}
    setting = replace(experiment.setting, **changed)
    if models:
        setting = replace(setting, model_named=True)
    return replace(experiment, setting=setting, models=tuple(models) or experiment.models)
