"""``bench ui``: the MLflow web interface for a results folder, on this machine only."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from bench.cli.options import results_option


@click.command(name="ui")
@click.option(
    "--open",
    "browse",
    is_flag=True,
    help="open the newest run's data set in a browser: its curves, else its runs",
)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@results_option
def command(browse: bool, port: int, results: Path) -> None:
    """Serve the MLflow UI on 127.0.0.1 until Ctrl-C."""
    from bench.tracking.ui import UiServer, require_port, require_store, stop_on_signals

    database = require_store(results)
    require_port(port)
    with stop_on_signals() as stop, UiServer(database, port) as server:
        click.echo(f"Starting MLflow for {database.parent} ...", err=True)
        if server.wait_until_up(stop):
            first = server.url
            for name, (table, curves) in server.experiment_urls().items():
                click.echo(f"  {name:<28} {table}")
                if curves:
                    click.echo(f"  {'  curves of its sweeps':<28} {curves}")
                first = curves or table
            click.echo(f"MLflow is at {server.url} (Ctrl-C stops it)")
            if browse:
                webbrowser.open(first)
            server.serve(stop)
    click.echo("Stopped.", err=True)
