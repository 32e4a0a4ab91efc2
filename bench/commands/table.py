"""``bench table``: run the cells that a table misses, then render it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.shared_options import cell_options, results_option, running_options

if TYPE_CHECKING:
    from bench.rendering import Rendered


@click.command(name="table")
@click.argument("table_id", metavar="TABLE")
@cell_options
@results_option
@click.option(
    "--columns",
    type=click.Choice(["scores", "retrieval"]),
    default="scores",
    show_default=True,
    help="retrieval: how much of the evidence and of the answers the contexts hold",
)
@click.option(
    "--row",
    "rows",
    multiple=True,
    metavar="METHOD[:KEY=VALUE,...]",
    help="one more row; may be given several times",
)
@click.option("--render-only", is_flag=True, help="never compute: render what is there")
@running_options
def command(
    table_id: str,
    model: str,
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    results: Path,
    columns: str,
    rows: tuple[str, ...],
    render_only: bool,
    in_flight: int,
    retry_failed: bool,
    track: bool,
) -> None:
    """Make TABLE (see: bench list tables) from its cells, running those that are missing."""
    from bench.amortised import amortised_table
    from bench.cell import CellRequest
    from bench.data_lengths import lengths_table
    from bench.published import published
    from bench.rendering import render
    from bench.session import Session
    from bench.tables import collect, load_table, plan_table, retrieval_view, with_rows

    definition = with_rows(load_table(table_id), rows)
    if definition.kind == "lengths":
        lengths = lengths_table(definition.id, definition.title, definition.datasets, model, data, limit)
        _write(lengths.render(), results / "tables", definition.id)
        return
    base = CellRequest("", "", model, data, {}, limit, seed, dtype)
    planned = plan_table(definition, base)
    session = Session(results, in_flight=in_flight, retry_failed=retry_failed, track=track)
    try:
        found = collect(definition, planned, results, None if render_only else session.run)
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    shown = retrieval_view(found) if columns == "retrieval" else found
    if definition.kind == "amortised":
        rendered = amortised_table(found).render()
    else:
        rendered = render(shown, published(definition.id))
    _write(rendered, results / "tables", shown.definition.id)


def _write(rendered: Rendered, folder: Path, name: str) -> None:
    """The three files, and the Markdown on the terminal."""
    from bench.files import write_text

    for suffix, text in (("md", rendered.markdown), ("tex", rendered.latex), ("csv", rendered.csv)):
        write_text(folder / f"{name}.{suffix}", text)
    click.echo(rendered.markdown)
    click.echo(f"Written: {folder / name}.md, .tex, .csv")
