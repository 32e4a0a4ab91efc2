"""``bench sweep``: methods, data sets and models over grids of options, with a cost estimate first."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bench.cli.options import (
    data_option,
    dtype_option,
    gathered,
    limit_option,
    seed_option,
    session_options,
    takes_setting,
)
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.run.cell import Setting
    from bench.run.session import Session
    from bench.sweeps.cost import GroupCost, Timing
    from bench.sweeps.grid import Experiment, GridCell

CONFIRM_ABOVE_S = 600.0
"""At a terminal, a sweep that takes longer than this, or an unknown time, needs a confirmation."""

PROBE_QUESTIONS = 3
"""Questions timed per method and data set, after one that loads the models.  # our choice"""
_FILE = (".yaml", ".yml")


@dataclass(frozen=True)
class SweptFlags:
    """The command line's options about the grid."""

    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    assignments: tuple[str, ...]
    axes: tuple[str, ...]
    """Axes of the grid, or one file."""


@dataclass(frozen=True)
class StartFlags:
    """The command line's options about the cost estimate and the start."""

    probe: int
    """Questions timed per method and data set."""
    dry_run: bool
    yes: bool
    rate: float | None
    """TFLOP/s of one GPU."""


@click.command(name="sweep")
@click.option("--method", "methods", multiple=True, help="see: bench list methods; repeatable")
@click.option("--dataset", "datasets", multiple=True, help="see: bench list datasets; repeatable")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="reader: preset, hub id or folder; repeatable  [default: tiny]",
)
@data_option
@limit_option
@seed_option
@dtype_option
@takes_setting
@click.option("--set", "assignments", multiple=True, metavar="[METHOD.]KEY=VALUE", help="a fixed option")
@click.option(
    "--grid",
    is_flag=True,
    expose_value=False,
    help="every argument OPTION=VALUES is an axis, such as t_p=1:8 t_c=0.3,0.5; --grid may be left out",
)
@click.argument("axes", nargs=-1, metavar="[FILE.yaml | [METHOD.]OPTION=VALUES...]")
@gathered("swept", SweptFlags)
@click.option("--out", type=click.Path(path_type=Path), help="folder with one folder per cell")
@click.option(
    "--probe",
    type=click.IntRange(min=0),
    default=PROBE_QUESTIONS,
    show_default=True,
    metavar="QUESTIONS",
    help="timed first per method and data set, to estimate the cost; their records count",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="print the cells and what is known of their cost, then stop; asks nothing without --probe",
)
@click.option("--yes", is_flag=True, help="start long sweeps without asking")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TFLOP/S",
    help="rate of one GPU, for the GPU-hours of what is left  [default: from the timed questions]",
)
@gathered("start", StartFlags)
@session_options
@click.pass_context
def command(
    context: click.Context,
    swept: SweptFlags,
    setting: Setting,
    out: Path | None,
    start: StartFlags,
    session: Session,
) -> None:
    """Run methods on data sets over grids of options, after an estimate of the cost.

    \b
    bench sweep --method bm25 --dataset qasper --grid k=1:14
    bench sweep --method tfidf --method bm25 --dataset qasper --dataset musique
                --grid k=1:14 k1=1.2,1.5
    bench sweep experiment.yaml --dry-run

    An option applies to every method that has it, METHOD.OPTION to that method only. Cells that differ
    only in options that a method replays (such as k) share one run per question. Finished cells are
    skipped, so the same command resumes a sweep.

    A file has these keys; methods and datasets are required, flags override the file:

    \b
    name: rankers                  # of the sweep in MLflow
    methods:
      - tfidf                      # a name, or a method with its own options
      - method: bm25
        set: {b: 0.5}              # fixed
        grid: {k1: [1.2, 1.5]}
    datasets: [hotpotqa, qasper]
    models: [tiny]
    data: sample                   # as --data; so are limit, seed and dtype
    set: {order: rank}             # for every method that has the option
    grid: {k: 1:14}
    """  # noqa: D301 - click's mark for lines that it must not wrap
    from bench.cli.terminal import for_people, print_sections, print_sentences
    from bench.sweeps.cost import TEXT_COLUMNS, all_known, cost_rows, cost_table
    from bench.sweeps.grid import folders_below, plan_experiment
    from bench.tables.formats import Section, TextTable

    begun = time.monotonic()
    experiment = _experiment(context, swept, setting)
    if start.dry_run and context.get_parameter_source("probe") is ParameterSource.DEFAULT:
        start = replace(start, probe=0)
    groups = plan_experiment(experiment)
    folders = folders_below(out, groups) if out is not None else {}

    def place(planned: GridCell) -> Path:
        return (
            folders[planned.cell.identity.cell_id]
            if out is not None
            else planned.cell.folder(session.results)
        )

    costs = _costs(session, groups, place, start.probe)
    title = f"{experiment.title}: {sum(map(len, groups))} cells"
    remarks = _remarks(costs, start)
    if console := for_people():
        names = (", ".join(filter(None, row[:TEXT_COLUMNS])) for row in cost_rows(costs))
        head, *rows = ((name, *row[TEXT_COLUMNS:]) for name, row in zip(names, cost_rows(costs), strict=True))
        print_sections(console, TextTable("", title, head, (Section("", tuple(rows)),), ()))
        print_sentences(console, remarks.splitlines())
    else:
        click.echo(title)
        click.echo(cost_table(costs))
        click.echo(remarks)
    if start.dry_run:
        asked = (
            f"{start.probe} questions of each line were asked as a probe; nothing else"
            if start.probe
            else "Nothing"
        )
        click.echo(f"{asked} was run (--dry-run). The same command without it starts.")
        return
    seconds = sum(cost.seconds or 0.0 for cost in costs)
    long = seconds > CONFIRM_ABOVE_S or not all_known(costs)
    if long and not start.yes and sys.stdin.isatty() and sys.stdout.isatty():
        click.confirm("Start?", abort=True)
    with session.with_helpers([_places(cost) for cost in costs]):
        failures = _run(session, costs, experiment.title, begun)
    if failures:
        raise BenchError("Some cells could not run; the same command retries them:\n" + "\n".join(failures))


def _experiment(context: click.Context, swept: SweptFlags, setting: Setting) -> Experiment:
    """The experiment from the file or the flags; raises ConfigError for neither and for both."""
    from bench.data.own import NOT_PATHS, card_for
    from bench.sweeps.file import read_experiment, with_overrides
    from bench.sweeps.grid import from_flags

    files = [axis for axis in swept.axes if axis.endswith(_FILE) and "=" not in axis]
    if files:
        if len(swept.axes) > 1 or swept.methods or swept.datasets or swept.assignments:
            raise ConfigError(
                f"{files[0]} defines the sweep: move --method, --dataset, --set and --grid into it, and pass "
                "one file at a time. --model, --data, --limit, --seed and --dtype can override it."
            )
        flags: dict[str, Any] = {
            name: getattr(setting, name)
            for name in ("data", "limit", "seed", "dtype")
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT
        }
        return with_overrides(read_experiment(Path(files[0])), swept.models, **flags)
    datasets = swept.datasets or ((card_for("", setting.data).name,) if setting.data not in NOT_PATHS else ())
    for flag, names in (("--method", swept.methods), ("--dataset", datasets)):
        if not names:
            raise ConfigError(f"a sweep needs {flag}, or one YAML file: bench sweep experiment.yaml")
    if not swept.axes and len(swept.methods) * len(datasets) * max(1, len(swept.models)) == 1:
        raise ConfigError("a sweep needs a grid, such as: --grid t_p=1:8 t_c=0.3,0.5")
    models = swept.models or ("tiny",)
    setting = replace(setting, model_named=bool(swept.models))
    return from_flags(swept.methods, datasets, models, swept.assignments, swept.axes, setting)


def _costs(
    session: Session, groups: Sequence[Sequence[GridCell]], place: Any, questions: int
) -> list[GroupCost]:
    """Every group with its finished cells and the estimated cost of the rest, after the probe."""
    from bench.results.json_lines import is_locked
    from bench.sweeps.cost import group_title, measure, survey, with_timing

    def survey_now() -> list[GroupCost]:
        return survey(groups, place, session.indexes, session.retry_failed)

    def ask(cost: GroupCost, count: int) -> Any:
        return session.probe(_places(cost), count)

    timings: list[Timing | None] = []
    loaded: set[str] = set()
    asked = False
    for number, cost in enumerate(before := survey_now(), start=1):
        models = {spec.name for spec in cost.first.roles.values()}
        if questions and cost.to_ask and any(map(is_locked, cost.folders)):  # the probe would wait for them
            timings.append(None)
            click.echo(f"probe {number}/{len(before)}: another run has locked these cells", err=True)
            continue
        if questions and cost.to_ask and not cost.learns:
            where = f"{group_title(cost)} on {cost.first.data.label}"
            click.echo(f"probe {number}/{len(before)}: {where}", err=True)
            asked = True
        try:
            timings.append(measure(cost, ask, questions, warm=models <= loaded))
            loaded |= models
        except BenchError as error:  # the run reports it again, but runs the other cells
            timings.append(None)
            click.echo(f"probe {number}/{len(before)}: {error}", err=True)
    after = survey_now() if asked else before
    return [with_timing(cost, timing) for cost, timing in zip(after, timings, strict=True)]


def _remarks(costs: Sequence[GroupCost], start: StartFlags) -> str:
    """Explanations of the estimates, and their sum in GPU-hours."""
    from bench.sweeps.cost import gpu_hours

    questions = start.probe
    remarks = [
        "finished: cells that are complete. to ask: questions, once for cells that share a run. "
        "to index: document sets."
    ]
    if questions:
        remarks.append(
            "TFLOPs and time: estimates of what is left, from existing records and from "
            f"{questions} timed questions per line; with more of them in flight it usually takes less."
        )
    if any(cost.learns and cost.to_ask for cost in costs):
        remarks.append("?: the method learns from the documents before its first question.")
    elif not questions:
        remarks.append("?: unknown without a probe, which asks a few questions: --probe 3.")
    if questions and any(cost.seconds is None and not cost.learns for cost in costs):
        remarks.append("?: its questions could not be asked; the reason is above.")
    hours = gpu_hours(costs, start.rate)
    return "\n".join([*remarks, *([hours] if hours else [])])


def _places(cost: GroupCost) -> list[tuple[Any, Path | None]]:
    return [(planned.cell, folder) for planned, folder in zip(cost.cells, cost.folders, strict=True)]


def _run(session: Session, costs: Sequence[GroupCost], name: str, begun: float) -> list[str]:
    """Run every group and print its cells; returns an error message for each group that could not run.

    begun: when the command did, by the monotonic clock; its probe answered questions as well.
    """
    from bench.metrics import METRIC_LABELS
    from bench.sweeps.cost import duration, group_title

    failures: list[str] = []
    folders: list[Path] = []
    done = 0
    total = sum(len(cost.cells) for cost in costs)
    # Cells locked by another process come last: by then they are finished or free.
    for cost in session.unlocked_first(costs, lambda group: group.folders):
        first = cost.first
        title = f"{group_title(cost)} on {first.data.label} with {first.reader.label}"
        try:
            results = session.run_together(_places(cost), sweep=name)
        except BenchError as error:
            failures.append(f"{title}: {error}")
            click.echo(f"\n{title}: {error}", err=True)
            continue
        metric = first.card.metrics[0]
        label = f"{METRIC_LABELS[metric]} %"
        width = max(len("cell"), *(len(cell.name) for cell in cost.cells))
        click.echo(f"\n{title}\n{'':>9} {'cell':<{width}}  {label:>6}  TFLOPs per question  failed")
        for cell, result in zip(cost.cells, results, strict=True):
            done += 1
            interval = result.summary.interval(metric)
            score = "-" if interval is None else f"{100 * interval.mean:.2f}"
            tflops = result.summary.tflops
            click.echo(
                f"{f'{done}/{total}':>9} {cell.name:<{width}}  {score:>6}  {tflops:<19.4g}  "
                f"{result.summary.n_failed}"
            )
        folders += [result.folder for result in results]
    session.finish_sweep(name, folders)
    click.echo(f"\n{done} of {total} cells finished, in {duration(time.monotonic() - begun)}.")
    return failures
