"""``bench sweep``: methods, data sets and models over grids of options, costed before it starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.commands.shared_options import (
    data_option,
    dtype_option,
    executor_options,
    limit_option,
    results_option,
    running_options,
    seed_option,
    trace_option,
)
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.executors.local_workers import LocalWorkers
    from bench.executors.ray_executor import RayExecutor
    from bench.session import Session
    from bench.sweep import Experiment, GridCell
    from bench.sweep_cost import GroupCost, Timing

ASK_ABOVE_S = 600.0
"""A sweep that takes longer, or nobody knows how long, is started at a terminal only when confirmed."""

PROBE_QUESTIONS = 3
"""Questions timed for each method on each data set, after one that loads the models.  # our choice"""
_FILE = (".yaml", ".yml")


@click.command(name="sweep")
@click.option(
    "--method", "methods", multiple=True, help="see: bench list methods; may be given several times"
)
@click.option(
    "--dataset", "datasets", multiple=True, help="see: bench list datasets; may be given several times"
)
@click.option(
    "--model",
    "models",
    multiple=True,
    help="reader: preset, hub id or folder; may be given several times  [default: tiny]",
)
@data_option
@limit_option
@seed_option
@dtype_option
@click.option(
    "--set", "assignments", multiple=True, metavar="[METHOD.]KEY=VALUE", help="an option that stays fixed"
)
@click.option("--grid", "grid", is_flag=True, help="what follows are the axes, such as t_p=1:8 t_c=0.3,0.5")
@click.argument("axes", nargs=-1, metavar="[FILE.yaml | [METHOD.]OPTION=VALUES...]")
@click.option("--out", type=click.Path(path_type=Path), help="folder with one folder per cell")
@click.option(
    "--probe",
    type=click.IntRange(min=0),
    default=PROBE_QUESTIONS,
    show_default=True,
    metavar="QUESTIONS",
    help="asked first for each method and data set, to estimate the cost; their records are kept",
)
@click.option("--dry-run", is_flag=True, help="print the cells and their cost, then stop")
@click.option("--yes", is_flag=True, help="start long sweeps without asking")
@results_option
@running_options
@executor_options
@trace_option
@click.pass_context
def command(
    context: click.Context,
    methods: tuple[str, ...],
    datasets: tuple[str, ...],
    models: tuple[str, ...],
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    assignments: tuple[str, ...],
    grid: bool,
    axes: tuple[str, ...],
    out: Path | None,
    probe: int,
    dry_run: bool,
    yes: bool,
    results: Path,
    in_flight: int,
    retry_failed: bool,
    timeout_s: float | None,
    track: bool,
    trace: bool,
    executor: RayExecutor | LocalWorkers,
) -> None:
    """Run methods on data sets over grids of options, after saying what that will cost.

    \b
    bench sweep --method bm25 --dataset qasper --grid k=1:14
    bench sweep --method pecan --method bm25 --dataset qasper --dataset musique
                --grid t_p=1:8 t_c=0.3,0.9 k=1:14
    bench sweep experiment.yaml --dry-run

    An option goes to every method that has it, METHOD.OPTION to that method alone. Options that a
    method replays (t_p, t_c, k) are derived from one run per question. Finished cells are not run again,
    so the same command continues.

    A file has these keys; methods and datasets are needed, flags go before what it says:

    \b
    name: patience                 # of the sweep in MLflow
    methods:
      - bm25                       # a name, or a method with options of its own
      - method: pecan
        set: {variant: pecan}      # fixed
        grid: {t_p: 1:8, t_c: [0.3, 0.9]}
    datasets: [hotpotqa, qasper]
    models: [tiny]
    data: sample                   # as --data; so are limit, seed and dtype
    set: {order: rank}             # for every method that has the option
    grid: {k: 1:14}
    """  # noqa: D301 - click's own mark for lines to be left as they are
    from bench.session import Session
    from bench.sweep import folders_below, plan_experiment
    from bench.sweep_cost import all_known, cost_table

    experiment = _experiment(context, methods, datasets, models, assignments, axes)
    groups = plan_experiment(experiment)
    folders = folders_below(out, groups) if out is not None else {}
    session = Session(
        results,
        in_flight=in_flight,
        retry_failed=retry_failed,
        timeout_s=timeout_s,
        track=track,
        trace=trace,
        executor=executor,
    )

    def place(found: GridCell) -> Path:
        return folders[found.cell.identity.cell_id] if out is not None else found.cell.folder(results)

    try:
        costs = _costs(session, groups, place, probe)
        click.echo(f"{experiment.title}: {sum(map(len, groups))} cells")
        click.echo(cost_table(costs))
        click.echo(_remarks(costs, probe))
        if dry_run:
            click.echo("Nothing more was run (--dry-run); the same command without it goes on from here.")
            return
        seconds = sum(cost.seconds or 0.0 for cost in costs)
        long = seconds > ASK_ABOVE_S or not all_known(costs)
        if long and not yes and sys.stdin.isatty() and sys.stdout.isatty():
            click.confirm("Start?", abort=True)
        with session.helped([_places(cost) for cost in costs]):
            failures = _run(session, costs, experiment.title)
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    finally:
        session.close()
    if failures:
        raise BenchError("Not everything could be run; the same command tries again:\n" + "\n".join(failures))


def _experiment(
    context: click.Context,
    methods: Sequence[str],
    datasets: Sequence[str],
    models: Sequence[str],
    assignments: Sequence[str],
    axes: Sequence[str],
) -> Experiment:
    """What the file or the flags ask for; raises ConfigError when they ask for nothing, or both do."""
    from click.core import ParameterSource

    from bench.cell import CellRequest
    from bench.sweep import from_flags
    from bench.sweep_file import read_experiment, with_overrides

    flags: dict[str, Any] = {name: context.params[name] for name in ("data", "limit", "seed", "dtype")}
    files = [axis for axis in axes if axis.endswith(_FILE) and "=" not in axis]
    if files:
        if len(files) > 1 or len(axes) > 1 or methods or datasets or assignments:
            raise ConfigError(
                f"{files[0]} says what is swept: --method, --dataset, --set and --grid belong into it. "
                "--model, --data, --limit, --seed and --dtype may stand beside it; give one file at a time."
            )
        given = {
            name: value
            for name, value in flags.items()
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT
        }
        return with_overrides(read_experiment(Path(files[0])), models, **given)
    for flag, names in (("--method", methods), ("--dataset", datasets)):
        if not names:
            raise ConfigError(f"a sweep needs {flag}, or one YAML file: bench sweep experiment.yaml")
    if not axes and len(methods) * len(datasets) * max(1, len(models)) == 1:
        raise ConfigError("a sweep needs a grid, such as: --grid t_p=1:8 t_c=0.3,0.5")
    base = CellRequest("", "", **flags)
    return from_flags(methods, datasets, models or ("tiny",), assignments, axes, base)


def _costs(
    session: Session, groups: Sequence[Sequence[GridCell]], place: Any, questions: int
) -> list[GroupCost]:
    """Every group with what is there and what the rest will take, after the probe."""
    from bench.json_lines import held
    from bench.sweep_cost import group_title, measure, survey, with_timing

    def look() -> list[GroupCost]:
        return survey(groups, place, session.indexes, session.retry_failed)

    def ask(cost: GroupCost, count: int) -> Any:
        return session.probe(_places(cost), count)

    timings: list[Timing | None] = []
    loaded: set[str] = set()
    asked = False
    for number, cost in enumerate(before := look(), start=1):
        models = {spec.name for spec in cost.first.roles.values()}
        if questions and cost.to_ask and any(map(held, cost.folders)):  # the probe would wait for them
            timings.append(None)
            click.echo(f"probe {number}/{len(before)}: another run is at work on these cells", err=True)
            continue
        if questions and cost.to_ask and not cost.learns:
            where = f"{group_title(cost)} on {cost.first.data.label}"
            click.echo(f"probe {number}/{len(before)}: {where}", err=True)
            asked = True
        try:
            timings.append(measure(cost, ask, questions, warm=models <= loaded))
            loaded |= models
        except BenchError as error:  # the run will come to it, and to what can be run beside it
            timings.append(None)
            click.echo(f"probe {number}/{len(before)}: {error}", err=True)
    after = look() if asked else before
    return [with_timing(cost, timing) for cost, timing in zip(after, timings, strict=True)]


def _remarks(costs: Sequence[GroupCost], questions: int) -> str:
    """How the estimates came about."""
    remarks = [
        "finished: cells that need nothing. to ask: questions, once for all cells that replay them. "
        "to index: document sets."
    ]
    if questions:
        remarks.append(
            "TFLOPs and time: estimates of what is left, from the records that are there and from "
            f"{questions} timed questions per line; with more in flight it usually takes less."
        )
    if any(cost.learns and cost.to_ask for cost in costs):
        remarks.append("?: the method learns from the documents before its first question.")
    elif not questions:
        remarks.append("?: not known without a probe (--probe 0).")
    if questions and any(cost.seconds is None and not cost.learns for cost in costs):
        remarks.append("?: its questions could not be asked; why is said above.")
    return "\n".join(remarks)


def _places(cost: GroupCost) -> list[tuple[Any, Path | None]]:
    return [(found.cell, folder) for found, folder in zip(cost.cells, cost.folders, strict=True)]


def _run(session: Session, costs: Sequence[GroupCost], name: str) -> list[str]:
    """Run every group and print its cells; returns what went wrong with those that could not be run."""
    from bench.json_lines import held
    from bench.sweep_cost import duration, group_title

    failures: list[str] = []
    folders: list[Path] = []
    started, done = time.monotonic(), 0
    total = sum(len(cost.cells) for cost in costs)
    waiting = list(costs)
    while waiting:
        # Cells that another process is at work on come last: by then they are finished, or nobody's.
        free = (at for at, one in enumerate(waiting) if not any(map(held, one.folders)))
        cost = waiting.pop(next(free, 0))
        first = cost.first
        title = f"{group_title(cost)} on {first.data.label} with {first.reader.label}"
        try:
            found = session.run_together(_places(cost), sweep=name)
        except BenchError as error:
            failures.append(f"{title}: {error}")
            click.echo(f"\n{title}: {error}", err=True)
            continue
        metric = first.card.metrics[0]
        width = max(len("cell"), *(len(cell.name) for cell in cost.cells))
        click.echo(f"\n{title}\n{'':>9} {'cell':<{width}}  {metric:>6}  TFLOPs per question  failed")
        for cell, result in zip(cost.cells, found, strict=True):
            done += 1
            score = 100 * result.summary["metrics"][metric]["mean"]
            tflops = result.summary["query_flops"]["mean"] / 1e12
            click.echo(
                f"{f'{done}/{total}':>9} {cell.name:<{width}}  {score:6.2f}  {tflops:<19.4g}  "
                f"{result.summary['n_failed']}"
            )
        folders += [result.folder for result in found]
    session.draw_sweep(name, folders)
    click.echo(f"\n{done} of {total} cells finished, in {duration(time.monotonic() - started)}.")
    return failures
