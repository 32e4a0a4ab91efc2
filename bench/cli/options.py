"""Options that several commands share; each decorator parses a group of them into one object."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from bench.run.hooks import RunHooks

Command = TypeVar("Command", bound=Callable[..., Any])

model_option = click.option(
    "--model",
    default="tiny",
    show_default=True,
    help="reader: preset, hub id, folder, or server:URL#MODEL",
)
data_option = click.option(
    "--data", default="sample", show_default=True, help="sample, hub, or a file or folder"
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="only the first N questions of each data set"
)
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
dtype_option = click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="default: by device"
)
results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    envvar="BENCH_RESULTS",
    show_default=True,
    help="folder of records, indexes, tables and the MLflow store",
)
protocol_option = click.option(
    "--protocol",
    type=click.Choice(["both_orders", "paper"]),
    default="both_orders",
    show_default=True,
    help="how to ask the judge: both_orders, by four criteria, a win needs both orders; paper, one JSON "
    "verdict per pair (Graph of Records, App. D.3)",
)
set_option = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="an option of the method (see: bench list methods NAME); repeatable",
)
retry_failed_option = click.option("--retry-failed", is_flag=True, help="ask failed questions again")
in_flight_option = click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="concurrent questions",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="threads per process  [default: 1; more for a large reader on the CPU if they speed it up]",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="time limit for one answer or the index of its documents; a question that exceeds it fails",
)
track_option = click.option(
    "--track/--no-track", default=True, show_default=True, help="mirror cells into MLflow"
)


def _with(command: Callable[..., Any], *options: Callable[[Any], Any]) -> Any:
    """The command with these options, in the order of ``--help``."""
    for option in reversed(options):
        command = option(command)
    return command


def gathered(name: str, kind: type[Any]) -> Callable[[Command], Command]:
    """Decorator that passes the options named like the fields of dataclass ``kind`` as one ``name``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_one(*arguments: Any, **values: Any) -> Any:
            own = {field.name: values.pop(field.name) for field in dataclasses.fields(kind)}
            return command(*arguments, **values, **{name: kind(**own)})

        return cast("Command", with_one)

    return decorate


def takes_setting(command: Command) -> Command:
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

    return cast("Command", with_setting)


def setting_options(command: Command) -> Command:
    """--model, --data, --limit, --seed and --dtype; the command takes one ``setting``."""
    options = (model_option, data_option, limit_option, seed_option, dtype_option)
    return cast("Command", _with(takes_setting(command), *options))


def session_options(command: Command) -> Command:
    """--results and the options for running and mirroring missing cells; the command takes one ``session``.

    The session shows its progress and is closed when the command ends.
    """

    @functools.wraps(command)
    def with_session(*arguments: Any, track: bool, executor: Any, threads: int | None, **values: Any) -> Any:
        from bench.run.progress import Progress
        from bench.run.session import Session
        from bench.run.threads import Threads

        names = ("results", "in_flight", "timeout_s", "retry_failed")
        run = {name: values.pop(name) for name in names}
        hooks = [Progress(), *(_mlflow_hooks(run["results"]) if track else [])]
        session = Session(**run, hooks=hooks, executor=executor, threads=Threads.begin(threads))
        click.get_current_context().find_root().call_on_close(session.close)
        return command(*arguments, **values, session=session)

    options = (
        results_option,
        in_flight_option,
        timeout_option,
        retry_failed_option,
        threads_option,
        track_option,
    )
    return cast("Command", _with(executor_options(with_session), *options))


def _mlflow_hooks(results: Path) -> list[RunHooks]:
    from bench.tracking.hooks import MlflowHooks

    return [MlflowHooks(results)]


def executor_options(command: Command) -> Command:
    """--executor, --address, --workers and --gpus-per-worker; the command takes one ``executor``."""
    from bench.run.executors import EXECUTORS, LOCAL, ExecutorOptions

    @functools.wraps(command)
    def with_executor(*arguments: Any, **values: Any) -> Any:
        names = ("executor", "address", "workers", "gpus_per_worker")
        options = ExecutorOptions(*(values.pop(name) for name in names))
        return command(*arguments, **values, executor=options.open())

    options = (
        click.option(
            "--executor",
            type=click.Choice(EXECUTORS),
            default=LOCAL,
            show_default=True,
            help="where questions are answered: on this machine, or by workers of a Ray cluster",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="with ray: a running cluster, or auto  [default: only this machine]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="processes, each with its own models; without Ray a single cell is the work of one  "
            "[default: one per GPU, GPU share or idle core]",
        ),
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(min=0),
            metavar="SHARE",
            help="with ray: 1, a fraction such as 0.5, or 0  [default: 1 if there are GPUs]",
        ),
    )
    return cast("Command", _with(with_executor, *options))
