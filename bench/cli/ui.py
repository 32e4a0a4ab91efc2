"""``bench ui``: a results folder in MLflow's web interface, on this machine only."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.errors import BenchError


@click.command(name="ui")
@click.option(
    "--open",
    "browse",
    is_flag=True,
    help="open the newest run's data set in a browser: its curves, else its runs",
)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--rebuild", is_flag=True, help="first delete mlflow.db, artifacts and notes in MLflow")
@results_option
def command(browse: bool, port: int, rebuild: bool, results: Path) -> None:
    """Show the finished cells in the MLflow UI on 127.0.0.1 until Ctrl-C.

    What MLflow does not show yet, or shows otherwise than the records have it, is written first. With a
    tracking server (BENCH_TRACKING_URI or MLFLOW_TRACKING_URI) that is all: open its address.
    """
    from bench.packages import require
    from bench.tracking.content import begun_cells
    from bench.tracking.store import local_store, public_uri, remove_local_store, sqlite_path, store_to_show
    from bench.tracking.sync import not_shown, sync
    from bench.tracking.ui import experiment_urls, require_port, serve

    require("bench ui", "mlflow")
    uri = store_to_show(results)
    database = sqlite_path(uri)
    if database is not None:
        require_port(port)
    if rebuild and database != (own := sqlite_path(local_store(results))):
        raise BenchError(f"--rebuild deletes {own} alone, not {public_uri(uri)}, which may hold other runs.")
    if rebuild and database is not None:
        remove_local_store(database)
    missing = not_shown(results, uri, begun_cells([results]))
    if missing:
        click.echo(f"Writing {len(missing)} cell(s) to MLflow ...", err=True)
    for failure in sync(results, missing, uri=uri):
        click.echo(f"warning: {failure}", err=True)
    if database is None:
        click.echo(f"MLflow at {public_uri(uri)} shows the finished cells of {results}.")
        return
    if not database.is_file():
        where = f" --results {results}" if results != Path("results") else ""
        raise BenchError(
            f"There is nothing to show: {results} has no MLflow store and no finished cell. Run first, for "
            f"example: bench run --method bm25 --dataset qasper{where}"
        )

    def on_up(url: str) -> None:
        first = url
        for name, (table, curves) in experiment_urls(database, url).items():
            click.echo(f"  {name:<28} {table}")
            if curves:
                click.echo(f"  {'  curves of its sweeps':<28} {curves}")
            first = curves or table
        click.echo(f"MLflow is at {url} (Ctrl-C stops it)")
        if browse:
            webbrowser.open(first)

    click.echo(f"Starting MLflow for {database.parent} ...", err=True)
    serve(database, port, on_up)
    click.echo("Stopped.", err=True)
