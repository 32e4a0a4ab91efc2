"""``bench figure``: the papers' figures, and all methods on one plane, from cells that are run if missing."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.shared_options import cell_options, results_option, running_options

FIGURES = {
    "pareto": "all methods of Table 1: score over TFLOPs, with the Pareto front",
    "fig3": "PECAN, Figure 3: how many nodes a search retrieves",
    "fig4": "PECAN, Figure 4: score and TFLOPs over the patience t_p",
}


@click.command(name="figure")
@click.argument("name", type=click.Choice(list(FIGURES)))
@cell_options
@results_option
@click.option("--render-only", is_flag=True, help="never compute: draw what is there")
@running_options
def command(
    name: str,
    model: str,
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    results: Path,
    render_only: bool,
    in_flight: int,
    retry_failed: bool,
    track: bool,
) -> None:
    """Draw NAME as PNG and SVG, with its values as CSV, running the cells that are missing.

    pareto: all methods of Table 1 on one plane. fig3, fig4: PECAN's figures.
    """
    from bench.cell import CellRequest
    from bench.figure_cells import draw
    from bench.session import Session

    base = CellRequest("pecan", "", model, data, {}, limit, seed, dtype)
    session = (
        None if render_only else Session(results, in_flight=in_flight, retry_failed=retry_failed, track=track)
    )
    try:
        drawn = draw(name, base, results, session)
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    paths = drawn.save(results / "figures", name)
    click.echo(f"Written: {', '.join(str(path) for path in paths)}")
