"""``bench rm``: remove cells with their records."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from bench.cli.cells import cell_line, cells_named, described_cells, named_folder
from bench.cli.options import results_option
from bench.cli.terminal import counted
from bench.data.own import name_of
from bench.errors import BenchError, ConfigError
from bench.results.finished import read_finished
from bench.results.json_lines import is_locked
from bench.results.models import CellDescription, read_description
from bench.tracking.content import read_sweeps
from bench.tracking.store import local_store, sqlite_path


@click.command(name="rm")
@click.argument("cells", nargs=-1)
@click.option("--dataset", default="", help="only cells on this data set; without CELLS all of them")
@click.option("--unfinished", is_flag=True, help="only unfinished cells; without CELLS all of them")
@results_option
@click.option("--dry-run", is_flag=True, help="only list what would be removed")
@click.option("--yes", is_flag=True, help="do not ask")
def command(
    cells: tuple[str, ...], dataset: str, unfinished: bool, results: Path, dry_run: bool, yes: bool
) -> None:
    """Remove cells: their records, which no command restores, and their runs in a local MLflow store.

    CELLS are folders of cells, or methods with options, such as bm25 or bm25:k=7: every cell that has these
    options. They are listed first, and nothing is removed before you agree. Indexes are kept: other cells may
    use them. Example: bench rm bm25:k=7 --dataset qasper
    """
    if not cells and not dataset and not unfinished:
        raise ConfigError("Name what to remove: cells (see: bench list cells), --dataset or --unfinished.")
    selected = _selected(cells, name_of(dataset) if any(map(str.isalnum, dataset)) else dataset, results)
    if unfinished:
        selected = {folder: about for folder, about in selected.items() if read_finished(folder) is None}
    if not selected:
        click.echo("There is nothing to remove.")
        return
    for folder, about in selected.items():
        click.echo(cell_line(folder, about))
    busy = [str(folder) for folder in selected if is_locked(folder)]
    if busy:
        raise BenchError(f"A run is writing {', '.join(busy)}. Stop it first; nothing was removed.")
    size = sum(path.lstat().st_size for cell in selected for path in cell.rglob("*") if path.is_file())
    count = f"{counted(len(selected), 'cell')}, {size / 1e6:.1f} MB"
    if dry_run:
        click.echo(f"{count}; nothing was removed.")
        return
    if not yes and not sys.stdin.isatty():
        raise BenchError(f"{count}; nothing was removed. Without a terminal to ask, say --yes.")
    if not yes:
        click.confirm(f"Remove {count}, with every recorded answer?", abort=True)
    sweeps = {name for folder in selected for name in read_sweeps(folder)}
    for folder in selected:
        if is_locked(folder):
            raise BenchError(f"A run has begun to write {folder}. It and what follows in the list are kept.")
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise BenchError(f"Cannot remove {folder}: {error.strerror or error}.") from error
    _forget(results, [about.cell_id for about in selected.values()], sweeps)
    click.echo(f"Removed {count}.")


def _selected(cells: tuple[str, ...], dataset: str, results: Path) -> dict[Path, CellDescription]:
    """The cells that are named, each once; folders may lie elsewhere than in the results folder."""
    named = {} if cells else dict(described_cells(results))
    for text in cells:
        folder = named_folder(text)
        named |= {folder: read_description(folder)} if folder else cells_named(text, results, dataset)
    kept = {folder.resolve(): folder for folder, about in named.items() if dataset in ("", about.dataset)}
    return {folder: named[folder] for folder in kept.values()}


def _forget(results: Path, cell_ids: list[str], sweeps: Iterable[str]) -> None:
    """Delete the runs of cells in the local MLflow store, and their points on the curves of their sweeps.

    A failure is a warning.
    """
    uri = local_store(results)
    database = sqlite_path(uri)
    if database is None or not database.is_file():
        return
    from bench.tracking.mirror import Mirror

    try:
        mirror = Mirror(uri, results)
        mirror.forget(cell_ids)
        for name in sorted(sweeps):
            mirror.show_sweep(name)
    except Exception as error:  # noqa: BLE001 -- MLflow and its layers raise many types
        click.echo(f"warning: MLflow still shows them ({error}). Run: bench ui --rebuild", err=True)
