"""``bench figure``: the papers' figures, and all methods on one plane, from cells that are run if missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import session_options, setting_options

if TYPE_CHECKING:
    from bench.run.cell import Setting
    from bench.run.session import Session


@click.command(name="figure")
@click.argument("name", metavar="FIGURE")
@setting_options
@click.option("--render-only", is_flag=True, help="never compute: draw what is there")
@click.option(
    "--from",
    "exported",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="draw the cells that bench table --export wrote there; needs neither data nor models",
)
@session_options
def command(name: str, setting: Setting, render_only: bool, exported: Path | None, session: Session) -> None:
    """Draw FIGURE as PNG, SVG and PDF, with its values as CSV, running the cells that are missing.

    FIGURE is an id that bench list figures names, or a YAML file of yours: see paper_tables/README.md.
    """
    from bench.figures.definition import load_figure
    from bench.figures.make import make_figure

    figure = load_figure(name)
    drawn = make_figure(figure, setting, session.results, None if render_only else session, exported)
    paths = drawn.save(session.results / "figures", figure.id)
    click.echo(f"Written: {', '.join(str(path) for path in paths)}")
