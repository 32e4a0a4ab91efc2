"""Options that several commands share, below headings; each decorator parses a group of them into one object.

What few people need is not listed by ``--help``: such an option is taken as a flag as well, from the file of
``--config`` or from the environment as ``BENCH_<NAME>``.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from bench.cli.commands import COMMANDS
from bench.errors import ConfigError, UnknownNameError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

WHAT, MODEL, DATA, HOW, OUTPUT = "What", "Model", "Data", "How", "Output"
"""Headings of ``--help``."""
METHOD = "METHOD[:KEY=VALUE,...]"


class Option(click.Option):
    """An option below a heading; one that is not listed has an environment variable as well."""

    def __init__(self, flags: Sequence[str], *, group: str, listed: bool = True, **attributes: Any) -> None:
        """group: the heading."""
        super().__init__(flags, hidden=not listed, **attributes)
        self.group = group
        if not listed:
            self.envvar = f"BENCH_{flag_of(self).upper().replace('-', '_')}"

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """As click's; NaN, which passes every limit, is refused."""
        if (given := super().type_cast_value(ctx, value)) != given:
            raise click.BadParameter("nan is not a number.", ctx, self)
        return given


def option(*declarations: str, group: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """``click.option`` below a heading."""
    return click.option(*declarations, cls=Option, group=group, **attributes)


def refuse(names: Collection[str], why: str) -> None:
    """Raise ConfigError for the first of these options that stands on the command line."""
    context = click.get_current_context()
    for one in context.command.params:
        if one.name in names and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE:
            raise ConfigError(f"--{flag_of(one)} {why}")


def refuse_run_options(exported: Path | None) -> None:
    """Raise ConfigError for an option that chooses what runs, where --from shows what was recorded."""
    if exported is not None:
        names = ("model", "data", "limit", "seed", "dtype", "retry_failed")
        refuse(names, f"chooses what runs, and --from {exported} shows what was recorded: drop one.")


def flag_of(parameter: click.Parameter) -> str:
    """The name of an option without its dashes, as in a file of ``--config``."""
    return parameter.opts[0].lstrip("-")


class Command(click.Command):
    """A command whose options stand below headings and may come from a file."""

    def __init__(self, *arguments: Any, **values: Any) -> None:
        """As click's; --config is added."""
        super().__init__(*arguments, **values)
        config = Option(
            ["--config"],
            group=OUTPUT,
            type=click.Path(path_type=Path),
            envvar="BENCH_CONFIG",
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_configure,
            help="YAML with options by their names, such as timeout: 60; a flag goes before it",
        )
        self.params.append(config)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's; what to run is refused where it stands twice, of which click takes the last."""
        given = self.make_parser(ctx).parse_args(list(args))[2]
        for one in given:
            if getattr(one, "group", "") == WHAT and not one.multiple and given.count(one) > 1:
                raise click.UsageError(
                    f"--{flag_of(one)} stands there {given.count(one)} times; expected once. bench sweep "
                    "takes several methods and data sets.",
                    ctx,
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by their headings, and the names of those that are not listed."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (WHAT, MODEL, DATA, HOW, OUTPUT)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups[getattr(parameter, "group", OUTPUT)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        more = [flag_of(one) for one in self.params if isinstance(one, Option) and one.hidden]
        if more:
            names = ", ".join(f"--{name}" for name in more)
            formatter.write_paragraph()
            formatter.write_text(f"Also {names}, each as BENCH_<NAME>, too: see docs/guide.md.")


def _configure(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Take the options of this command from a file; one that no command has is an error."""
    if path is None:
        return
    from pydantic import RootModel

    from bench.files.yaml import read_yaml
    from bench.schema import JsonValue

    values = read_yaml(path, RootModel[dict[str, JsonValue]], "configuration").root
    own = {flag_of(one): one.name for one in context.command.params if isinstance(one, Option)}
    if values.keys() - own.keys():
        known = _options_of_all()
        for name in values:
            if name not in known:
                raise UnknownNameError("option", name, known, hint=f"{path} names options as flags do.")
    several = {one.name for one in context.command.params if getattr(one, "multiple", False)}
    context.default_map = {
        own[name]: _listed(value) if own[name] in several else _typed(value)
        for name, value in values.items()
        if own.get(name) and value is not None
    }


def _listed(value: Any) -> list[Any]:
    """The values of a repeatable flag; a mapping means NAME=VALUE of each."""
    from bench.method.options import as_typed

    if isinstance(value, dict):
        return [f"{name}={as_typed(one)}" for name, one in value.items()]
    return [_typed(one) for one in (value if isinstance(value, list) else [value])]


def _typed(value: Any) -> str | bool:
    """A value as a flag would give it, so that numbers are read as strictly as there."""
    return value if isinstance(value, str | bool) else json.dumps(value)


def _options_of_all() -> set[str]:
    """The names of every command's options."""
    commands = (importlib.import_module(f"bench.cli.{name}").command for name in COMMANDS)
    return {flag_of(one) for command in commands for one in command.params if isinstance(one, Option)}


model_option = option(
    "--model",
    group=MODEL,
    default="tiny",
    show_default=True,
    help="reader: preset, hub id, folder, or server:URL#MODEL",
)
data_options = (
    option(
        "--data", group=DATA, default="sample", show_default=True, help="sample, hub, or a file or folder"
    ),
    option(
        "--limit", group=DATA, type=click.IntRange(min=1), help="only the first N questions of each data set"
    ),
    option("--seed", group=DATA, listed=False, type=click.IntRange(min=0), default=0),
    option(
        "--dtype",
        group=MODEL,
        listed=False,
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="default: by device",
    ),
)
results_option = option(
    "--results",
    group=OUTPUT,
    type=click.Path(path_type=Path),
    default=Path("results"),
    envvar="BENCH_RESULTS",
    show_default=True,
    help="folder of records, indexes, tables and the MLflow store",
)
protocol_option = option(
    "--protocol",
    group=MODEL,
    listed=False,
    type=click.Choice(["both_orders", "paper"]),
    default="both_orders",
    help="how to ask the judge: both_orders, by four criteria, a win needs both orders; paper, one JSON "
    "verdict per pair (Graph of Records, App. D.3)",
)
render_only_option = option(
    "--render-only", group=HOW, is_flag=True, help="compute nothing; show finished cells only"
)
exported_option = option(
    "--from",
    "exported",
    group=DATA,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="show the cells of a bench table --export folder; needs neither data nor models",
)
first_option = option(
    "--first",
    group=HOW,
    listed=False,
    type=click.IntRange(min=0),
    default=12,
    metavar="N",
    help="ask the first N questions of every cell before the rest, and show the whole result; 0: do not",
)
retry_failed_option = option("--retry-failed", group=HOW, is_flag=True, help="ask failed questions again")
in_flight_option = option(
    "--in-flight",
    group=HOW,
    listed=False,
    type=click.IntRange(min=1),
    default=32,
    help="concurrent questions",
)
_running_options = (
    option(
        "--workers",
        group=HOW,
        type=click.IntRange(min=1),
        help="processes, each with its own models; without Ray a single cell is the work of one  "
        "[default: one per GPU, GPU share or idle core]",
    ),
    option(
        "--ray",
        group=HOW,
        metavar="ADDRESS",
        help="workers of a Ray cluster answer: HOST:PORT, auto (the running one), or local (this machine)",
    ),
    option(
        "--gpus-per-worker",
        "gpus",
        group=HOW,
        listed=False,
        type=click.FloatRange(min=0),
        metavar="SHARE",
        help="with --ray: 1, a fraction such as 0.5, or 0; default: 1 if there are GPUs",
    ),
    in_flight_option,
    option(
        "--timeout",
        "timeout_s",
        group=HOW,
        listed=False,
        type=click.FloatRange(min=0, max=1e9, min_open=True),
        metavar="SECONDS",
        help="time limit for one answer or the index of its documents; a question that exceeds it fails",
    ),
    retry_failed_option,
    option(
        "--threads",
        group=HOW,
        listed=False,
        type=click.IntRange(min=1),
        help="threads per process; default: 1, and one per idle core for a large reader that is alone",
    ),
    option("--track/--no-track", group=OUTPUT, listed=False, default=True, help="mirror to MLflow"),
    results_option,
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Decorator that adds these options, in the order of ``--help``."""

    def decorate(command: Decorated) -> Decorated:
        return functools.reduce(lambda decorated, one: one(decorated), reversed(options), command)

    return decorate


def takes_setting(command: Decorated) -> Decorated:
    """Decorator that passes --model, --data, --limit, --seed and --dtype, if present, as one ``setting``."""

    @functools.wraps(command)
    def with_setting(*arguments: Any, **values: Any) -> Any:
        from bench.run.cell import CellRequest

        names = [name for name in ("model", "data", "limit", "seed", "dtype") if name in values]
        source = click.get_current_context().get_parameter_source("model")
        setting = CellRequest(
            **{name: values.pop(name) for name in names},
            model_named=source is not ParameterSource.DEFAULT,
        )
        return command(*arguments, **values, setting=setting)

    return cast("Decorated", with_setting)


def setting_options(command: Decorated) -> Decorated:
    """--model, --data, --limit, --seed and --dtype; the command takes one ``setting``."""
    return with_options(model_option, *data_options)(takes_setting(command))


def session_options(command: Decorated) -> Decorated:
    """--results and the options for running and mirroring missing cells; the command takes one ``session``.

    The session shows its progress and is closed when the command ends.
    """

    @functools.wraps(command)
    def with_session(*arguments: Any, track: bool, threads: int | None, **values: Any) -> Any:
        from bench.run.executors import open_executor
        from bench.run.progress import Progress
        from bench.run.session import Session
        from bench.run.threads import Threads
        from bench.tracking.hooks import MlflowHooks

        executor = open_executor(*(values.pop(name) for name in ("ray", "workers", "gpus")))
        names = ("results", "in_flight", "timeout_s", "retry_failed")
        run = {name: values.pop(name) for name in names}
        hooks = [Progress(), *([MlflowHooks(run["results"])] if track else [])]
        session = Session(**run, hooks=hooks, executor=executor, threads=Threads.begin(threads))
        click.get_current_context().find_root().call_on_close(session.close)
        return command(*arguments, **values, session=session)

    return with_options(*_running_options)(cast("Decorated", with_session))
