"""Options that several commands share, worded once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])

model_option = click.option(
    "--model", default="tiny", show_default=True, help="reader: preset, hub id or folder"
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
    help="where records, indexes, tables and the MLflow store lie",
)
trace_option = click.option(
    "--trace", is_flag=True, help="show in MLflow how each question was answered, one span per visited node"
)
set_option = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="an option of the method"
)


def cell_options(command: Command) -> Command:
    """--model, --data, --limit, --seed and --dtype: what of a cell its method does not say."""
    for option in (dtype_option, seed_option, limit_option, data_option, model_option):
        command = option(command)
    return command


def running_options(command: Command) -> Command:
    """--in-flight, --timeout, --retry-failed and --track: how missing cells are run."""
    options = (
        click.option("--track/--no-track", default=True, show_default=True, help="mirror cells into MLflow"),
        click.option("--retry-failed", is_flag=True, help="ask failed questions again"),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="most for one answer, or for the index of its documents; what takes longer has failed",
        ),
        click.option(
            "--in-flight",
            type=click.IntRange(min=1),
            default=32,
            show_default=True,
            help="questions worked on at a time",
        ),
    )
    for option in options:
        command = option(command)
    return command


def executor_options(command: Command) -> Command:
    """--executor, --address, --workers and --gpus-per-worker; the command takes one ``executor``."""
    from bench.executors import EXECUTORS, LOCAL, ExecutorOptions

    @functools.wraps(command)
    def gathered(*arguments: Any, **given: Any) -> Any:
        names = ("executor", "address", "workers", "gpus_per_worker")
        options = ExecutorOptions(*(given.pop(name) for name in names))
        return command(*arguments, **given, executor=options.open())

    options = (
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(min=0),
            metavar="SHARE",
            help="with ray: 1, a part of one such as 0.5, or 0  [default: 1 where there are GPUs]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="processes with models of their own  [default: one for each GPU, or share of one]",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="with ray: a running cluster, or auto  [default: this machine alone]",
        ),
        click.option(
            "--executor",
            type=click.Choice(EXECUTORS),
            default=LOCAL,
            show_default=True,
            help="where questions are answered: on this machine, or by workers of a Ray cluster",
        ),
    )
    for option in options:
        gathered = option(gathered)
    return cast("Command", gathered)
