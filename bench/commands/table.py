"""``bench table``: run the cells that a table misses, then render it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.shared_options import cell_options, executor_options, results_option, running_options

if TYPE_CHECKING:
    from bench.executors.local_workers import LocalWorkers
    from bench.executors.ray_executor import RayExecutor
    from bench.table_formats import Rendered


@click.command(name="table")
@click.argument("table_id", metavar="TABLE")
@cell_options
@results_option
@click.option("--dataset", "datasets", multiple=True, help="only this data set of the table; several times")
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
@click.option(
    "--simulate-costs",
    is_flag=True,
    help="only the cost column, from published lengths and the model's config: no weights, no records",
)
@click.option("--judge", help="who compares, in tables of judgements: a model; default: --model")
@click.option("--render-only", is_flag=True, help="never compute: render what is there")
@running_options
@executor_options
def command(
    table_id: str,
    model: str,
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    results: Path,
    datasets: tuple[str, ...],
    columns: str,
    rows: tuple[str, ...],
    simulate_costs: bool,
    judge: str | None,
    render_only: bool,
    in_flight: int,
    retry_failed: bool,
    timeout_s: float | None,
    track: bool,
    executor: RayExecutor | LocalWorkers,
) -> None:
    """Make TABLE (see: bench list tables) from its cells, running those that are missing."""
    from bench.amortised import amortised_table
    from bench.cell import Cell, CellRequest
    from bench.data_lengths import lengths_table
    from bench.judged_table import judged_table
    from bench.published import published
    from bench.query_time import timed_table
    from bench.rendering import render
    from bench.session import Session
    from bench.tables import collect, load_table, plan_table, retrieval_view, with_rows

    definition = with_rows(load_table(table_id), rows).on(data, datasets)
    if simulate_costs:
        from bench.simulated_costs import render_simulated, table_name

        _write(render_simulated(definition, model), results / "tables", table_name(definition))
        return
    if definition.kind == "lengths":
        lengths = lengths_table(
            definition.id,
            definition.title,
            definition.datasets,
            model,
            data,
            limit,
            kept=results / "lengths",
            measure=not render_only,
        )
        _write(lengths.render(), results / "tables", definition.id)
        return
    base = CellRequest("", "", model, data, {}, limit, seed, dtype)
    planned = plan_table(definition, base)
    session = Session(
        results,
        in_flight=in_flight,
        retry_failed=retry_failed,
        timeout_s=timeout_s,
        track=track,
        executor=executor,
    )
    try:
        alone = [] if render_only else [[(one, None)] for one in planned.values() if isinstance(one, Cell)]
        with session.helped(alone):
            found = collect(definition, planned, results, None if render_only else session.run)
        shown = retrieval_view(found) if columns == "retrieval" else found
        match definition.kind:
            case "amortised":
                rendered = amortised_table(found).render()
            case "timed":
                timing = None if render_only else session
                rendered = timed_table(found, planned, published(definition.id), timing, results).render()
            case "judged":
                asking = None if render_only else session
                rendered = judged_table(found, planned, asking, results, judge or model, dtype).render()
            case _:
                rendered = render(shown, published(definition.id))
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    _write(rendered, results / "tables", shown.definition.id)


def _write(rendered: Rendered, folder: Path, name: str) -> None:
    """A file for each format, and the Markdown on the terminal."""
    from bench.files import write_text

    files = rendered.files()
    for suffix, text in files.items():
        write_text(folder / f"{name}.{suffix}", text)
    click.echo(rendered.markdown)
    click.echo(f"Written: {folder / name}{', '.join(f'.{suffix}' for suffix in files)}")
