"""``bench sweep``: methods, data sets and models over grids of options."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bench.cli.options import (
    HOW,
    METHOD,
    MODEL,
    WHAT,
    Command,
    data_options,
    first_option,
    option,
    session_options,
    takes_setting,
    with_options,
)
from bench.errors import BenchError
from bench.files.printable import printable

if TYPE_CHECKING:
    from bench.results.finished import FinishedCell
    from bench.run.cell import Cell, CellRequest
    from bench.run.session import Session
    from bench.sweeps.grid import GridCell


@click.command(name="sweep", cls=Command)
@option("--method", "methods", group=WHAT, multiple=True, metavar=METHOD, help="as in bench run; repeatable")
@option("--dataset", "datasets", group=WHAT, multiple=True, help="see: bench list datasets; repeatable")
@option(
    "--model",
    "models",
    group=MODEL,
    multiple=True,
    help="reader: preset, hub id or folder; repeatable  [default: tiny]",
)
@with_options(*data_options)
@takes_setting
@option("--set", "assignments", group=WHAT, multiple=True, metavar="[METHOD.]KEY=VALUE", help="fixed option")
@click.argument("axes", nargs=-1, metavar="[METHOD.]OPTION=VALUES...")
@first_option
@option("--dry-run", group=HOW, is_flag=True, help="only print the cells and what is known of their cost")
@session_options
def command(
    setting: CellRequest, first: int, dry_run: bool, session: Session, **swept: tuple[str, ...]
) -> None:
    """Run methods on data sets over grids of options.

    \b
    bench sweep --method bm25 --dataset qasper k=1:14
    bench sweep --method tfidf --method bm25 --dataset qasper --dataset musique
                k=1:14 k1=1.2,1.5

    An option applies to every method that has it, METHOD.OPTION to that method only. Cells that differ
    only in options that a method replays (such as k) share one run per question. Finished cells are
    skipped, so the same command resumes a sweep.
    """  # noqa: D301 - click's mark for lines that it must not wrap
    from bench.cli.terminal import print_sections, standard_output
    from bench.sweeps.cost import COLUMNS, cost_rows, survey
    from bench.sweeps.grid import from_flags, plan_experiment
    from bench.tables.formats import Section, TextTable

    experiment = from_flags(setting, **swept)
    groups = plan_experiment(experiment)
    rows = tuple(cost_rows(survey(groups, session)))
    title = f"{experiment.title}: {sum(map(len, groups))} cells"
    table = TextTable("", title, COLUMNS, (Section("", rows),), ())
    print_sections(standard_output(), table)
    if dry_run:
        click.echo(
            "to ask: questions, once for cells that share a run. to index: document sets. ?: none of these "
            "questions has been asked yet.\nNothing was run (--dry-run). The same command without it starts."
        )
        return
    failures: list[str] = []
    for _ in session.passes(first):
        failures = _run(session, groups, experiment.title)
    if failures:
        raise BenchError("Some cells could not run; the same command retries them:\n" + "\n".join(failures))


def _run(session: Session, groups: Sequence[Sequence[GridCell]], name: str) -> list[str]:
    """Run every group and print its cells; returns an error message for each group that could not run."""
    from bench.metrics import label_of
    from bench.run.progress import duration
    from bench.sweeps.cost import group_title

    begun, done, total = time.monotonic(), 0, sum(map(len, groups))
    of_cell = {member.cell.identity.cell_id: group for group in groups for member in group}
    failures: list[str] = []

    def title(cells: Sequence[Cell]) -> str:
        first = cells[0]
        named = group_title(of_cell[first.identity.cell_id])
        return f"{named} on {first.data.label} with {first.reader.label}"

    def failed(cells: Sequence[Cell], error: BenchError) -> None:
        failures.append(printable(f"{title(cells)}: {error}"))
        click.echo(f"\n{failures[-1]}", err=True)

    def show(cells: Sequence[Cell], finished: Sequence[FinishedCell]) -> None:
        nonlocal done
        group, metric = of_cell[cells[0].identity.cell_id], cells[0].card.metrics[0]
        label, width = f"{label_of(metric)} %", max(4, *(len(member.name) for member in group))
        click.echo(f"\n{title(cells)}\n{'':>9} {'cell':<{width}}  {label:>6}  TFLOPs per question  failed")
        for member, cell in zip(group, finished, strict=True):
            done += cell.is_whole
            questions = (
                "" if cell.is_whole else f"  {cell.summary.n} of {cell.description.n_examples} questions"
            )
            interval, at = cell.summary.interval(metric), f"{done}/{total}"
            score = "-" if interval is None else f"{100 * interval.mean:.2f}"
            click.echo(
                f"{at:>9} {member.name:<{width}}  {score:>6}  {cell.summary.tflops:<19.4g}  "
                f"{cell.summary.n_failed}{questions}"
            )

    cells = [[member.cell for member in group] for group in groups]
    session.run_all(cells, sweep=name, failed=failed, done=show)
    click.echo(f"\n{done} of {total} cells finished, in {duration(time.monotonic() - begun)}.")
    return failures
