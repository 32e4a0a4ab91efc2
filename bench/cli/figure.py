"""``bench figure``: the papers' figures and the Pareto plot; missing cells run first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import (
    WHAT,
    Command,
    exported_option,
    first_option,
    option,
    refuse_run_options,
    render_only_option,
    session_options,
    setting_options,
)

if TYPE_CHECKING:
    from bench.run.cell import CellRequest
    from bench.run.session import Session


@click.command(name="figure", cls=Command)
@click.argument("name", metavar="FIGURE")
@setting_options
@option("--dataset", "datasets", group=WHAT, multiple=True, help="only this data set; repeatable")
@render_only_option
@exported_option
@first_option
@session_options
def command(
    name: str,
    setting: CellRequest,
    datasets: tuple[str, ...],
    render_only: bool,
    exported: Path | None,
    first: int,
    session: Session,
) -> None:
    """Draw FIGURE as PNG, SVG and PDF, with its values as CSV; missing cells run first.

    FIGURE is an id (see: bench list figures) or your own YAML file (see paper_tables/README.md).
    """
    from bench.figures.definition import load_figure
    from bench.figures.make import make_figure

    refuse_run_options(exported)
    figure = load_figure(name).only(datasets, setting.data)
    session.compute = not render_only
    for _ in session.passes(first):
        drawn = make_figure(figure, setting, session, exported)
        paths = drawn.save(session.results / "figures", figure.id)
        so_far = session.so_far and f" ({session.so_far})"
        click.echo(f"Written{so_far}: {', '.join(str(path) for path in paths)}")
