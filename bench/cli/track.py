"""``bench track``: rebuild the MLflow mirror from the records if it is out of date or lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.errors import BenchError


@click.group(name="track")
def command() -> None:
    """Rebuild the MLflow mirror from the records."""


@command.command(name="sync")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@results_option
@click.option("--uri", help="another store; default: BENCH_TRACKING_URI, MLFLOW_TRACKING_URI, the results'")
@click.option(
    "--trace", is_flag=True, help="also show how each question was answered, one span per visited node"
)
@click.option(
    "--documents",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="your own data file, for the texts in the traces; repeatable",
)
@click.option("--rebuild", is_flag=True, help="first delete mlflow.db and its artifacts (not the records)")
@click.option("--yes", is_flag=True, help="do not ask before deleting")
def sync_command(
    folders: tuple[Path, ...],
    results: Path,
    uri: str | None,
    trace: bool,
    documents: tuple[Path, ...],
    rebuild: bool,
    yes: bool,
) -> None:
    """Mirror every finished cell of the results folder, and of FOLDERS written with bench run --out."""
    from bench.tracking.content import finished_cells, note_display
    from bench.tracking.store import OFF, choose_store, public_uri
    from bench.tracking.sync import sync

    store = choose_store(uri, results)
    if store == OFF:
        raise BenchError("Tracking is switched off by BENCH_TRACKING_URI=off; unset it, or pass --uri.")
    cells = list(finished_cells([results, *folders]))
    if not cells:
        raise BenchError(
            f"No finished cells below {results}. Pass their folder: bench track sync --results DIR"
        )
    if rebuild:
        _delete(store, yes)
    if trace:
        for cell in cells:
            note_display(cell, traces=True)
    states: Counter[str] = Counter()
    for result in sync(results, cells, uri=store, own_files=documents):
        states[result.state] += 1
        click.echo(f"{result.state:<10} {result.name}")
        if result.message:
            click.echo(result.message, err=True)
    click.echo(f"{public_uri(store)}: " + ", ".join(f"{n} {state}" for state, n in sorted(states.items())))
    if states["failed"]:
        raise SystemExit(1)


def _delete(store: str, yes: bool) -> None:
    """Delete a local store, after asking; raises BenchError for any other."""
    from bench.tracking.store import public_uri, remove_local_store, sqlite_path

    database = sqlite_path(store)
    if database is None:
        raise BenchError(f"--rebuild only works on local SQLite stores, not on {public_uri(store)}.")
    if not yes and database.exists():
        click.confirm(
            f"Delete {database} and {database.parent / 'mlflow-artifacts'}? Cells are restored from their "
            "records; your own notes and runs are not.",
            abort=True,
        )
    try:
        remove_local_store(database)
    except OSError as error:
        raise BenchError(f"Cannot delete {database}: {error.strerror or error}") from error
