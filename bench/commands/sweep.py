"""``bench sweep``: one method on one data set over a grid of options."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.shared_options import cell_options, results_option, running_options


@click.command(name="sweep")
@click.option("--method", required=True, help="see: bench list methods")
@click.option("--dataset", required=True, help="see: bench list datasets")
@cell_options
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="an option that stays fixed")
@click.option("--grid", "grid", is_flag=True, help="what follows are the axes, such as t_p=1:8 t_c=0.3,0.5")
@click.argument("axes", nargs=-1, metavar="[OPTION=VALUES]...")
@click.option("--out", type=click.Path(path_type=Path), help="folder with one folder per cell")
@results_option
@running_options
def command(
    method: str,
    dataset: str,
    model: str,
    data: str,
    assignments: tuple[str, ...],
    grid: bool,
    axes: tuple[str, ...],
    limit: int | None,
    seed: int,
    dtype: str | None,
    out: Path | None,
    results: Path,
    in_flight: int,
    retry_failed: bool,
    track: bool,
) -> None:
    """Run every point of a grid; options that the method replays are derived from one run per question.

    Example: bench sweep --method bm25 --dataset qasper --grid k=1:14
    """
    from bench.cell import CellRequest
    from bench.errors import ConfigError
    from bench.options import parse_assignments
    from bench.session import Session
    from bench.sweep import parse_grid, plan_sweep, shared_runs

    if not axes:
        raise ConfigError("a sweep needs a grid, such as: --grid t_p=1:8 t_c=0.3,0.5")
    base = CellRequest(method, dataset, model, data, parse_assignments(assignments), limit, seed, dtype)
    cells = plan_sweep(base, parse_grid(axes))
    groups = shared_runs(cells)
    session = Session(results, in_flight=in_flight, retry_failed=retry_failed, track=track)
    questions = len(cells[0].cell.data.examples)
    name = f"{method} on {cells[0].cell.data.label}: {' '.join(axes)}"
    click.echo(
        f"{len(cells)} cells of {questions} questions; {len(groups) * questions} searches to ask at most"
    )
    summaries = {}
    try:
        for group in groups:
            places = [(found.cell, None if out is None else out / found.name) for found in group]
            for found, result in zip(group, session.run_together(places, sweep=name), strict=True):
                summaries[found.name] = result.summary
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    metric = cells[0].cell.card.metrics[0]
    width = max(len(name) for name in summaries)
    click.echo(f"{'cell':<{width}}  {metric:>6}  TFLOPs per question  failed")
    for found in cells:
        summary = summaries[found.name]
        click.echo(
            f"{found.name:<{width}}  {100 * summary['metrics'][metric]['mean']:6.2f}  "
            f"{summary['query_flops']['mean'] / 1e12:<19.4g}  {summary['n_failed']}"
        )
