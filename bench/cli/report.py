"""``bench report``: finished cells as one HTML page with every question."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.options import DATA, OUTPUT, WHAT, Command, option, results_option
from bench.cli.terminal import counted
from bench.errors import BenchError
from bench.files.printable import printable


@click.command(name="report", cls=Command)
@results_option
@option("--out", group=OUTPUT, type=click.Path(path_type=Path), help="default: report.html of --results")
@option(
    "--questions",
    group=OUTPUT,
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="at most N questions per data set, in the order of the data",
)
@option(
    "--documents",
    group=DATA,
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="your own data that cells were run on, for the texts of their contexts  [default: where they were "
    "when they were run]; repeatable",
)
@option("--dataset", "datasets", group=WHAT, multiple=True, help="only cells on this data set; repeatable")
def command(
    results: Path, out: Path | None, questions: int, documents: tuple[Path, ...], datasets: tuple[str, ...]
) -> None:
    """Write one HTML page about finished cells; nothing is run, and the page needs no network.

    The page lists every finished cell of the results folder, or those on --dataset, and has all their
    questions. Tables and figures of the papers: bench table, bench figure.
    """
    from bench.data.own import name_of
    from bench.files.atomic import write_text
    from bench.report.content import collect_report
    from bench.report.page import report_page
    from bench.report.questions import Limits

    report = collect_report(results, documents, Limits(questions=questions), tuple(map(name_of, datasets)))
    page = report_page(report)
    path = out or results / "report.html"
    try:
        write_text(path, page)
    except OSError as error:
        raise BenchError(f"Cannot write {path}: {error.strerror or error}. Choose another --out.") from error
    click.echo(
        f"{path}: {len(page) / 1e6:.1f} MB, {counted(report.browser.questions, 'question')}, "
        f"{counted(len(report.runs), 'cell')}"
    )
    for warning in report.warnings:
        click.echo(printable(f"warning: {warning}"))
    for note in report.notes:
        click.echo(printable(f"- {note}"))
