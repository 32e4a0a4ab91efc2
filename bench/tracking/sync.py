"""``python -m bench.tracking.sync RESULTS [CELL ...]`` brings an MLflow store up to date with the records.

:class:`~bench.tracking.hooks.MlflowHooks` starts it during a run; ``bench ui`` calls :func:`sync` directly.
It has no state: each call compares the content of the store with the records. So the next call
repairs whatever was killed or refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from bench.errors import BenchError
from bench.tracking.content import begun_cells, content_digest, read_sweeps, sweep_cells, sweep_digest
from bench.tracking.mirror import Mirror
from bench.tracking.store import FAILED, REMEDY, advice_on, choose_store, is_server, is_shown, scrub

_UNANSWERED = ("Max retries exceeded", "timed out", "Timeout", "Connection refused", "Connection aborted")


class StoreError(BenchError):
    """A store that accepts no cells; the message says why and what to do."""


def sync(results: Path, cells: Iterable[Path], *, uri: str) -> Iterator[str]:
    """Write cells to a store, then the curves of their sweeps; yields what could not be shown: ``what: why``.

    results: folder with all cells of the sweeps. uri: the store. Raises StoreError, without secrets, as soon
    as the store accepts nothing.
    """
    cells = list(cells)
    if not cells:
        return
    try:
        mirror = Mirror(uri, results)
        for cell_dir in cells:
            try:
                mirror.show(cell_dir)
            except BenchError as error:  # concerns only this cell
                yield scrub(f"{cell_dir.name}: {error}", uri)
        for name in _sweeps_of(cells, results):
            try:
                mirror.show_sweep(name)
            except BenchError as error:
                yield scrub(f"{name}: {error}", uri)
    except Exception as error:  # MLflow and its layers raise many types
        raise StoreError(scrub(_explain(f"{type(error).__name__}: {error}", uri), uri)) from None


def not_shown(results: Path, uri: str, cells: Iterable[Path]) -> list[Path]:
    """Those of the cells that a store does not show as they are, with all of a sweep that has changed."""
    cells = list(cells)
    missing = [cell for cell in cells if not is_shown(uri, content_digest(cell))]
    for name, members in _sweeps_of(cells, results).items():
        if not is_shown(uri, sweep_digest(name, members)):
            missing += members
    return list(dict.fromkeys(missing))


def _sweeps_of(cells: Iterable[Path], results: Path) -> dict[str, list[Path]]:
    """The sweeps that these cells belong to, each with all its finished cells."""
    names = {name for cell in cells for name in read_sweeps(cell)}
    return {name: members for name, members in sweep_cells(results).items() if name in names} if names else {}


def _explain(error: str, uri: str) -> str:
    """An error of MLflow, with advice."""
    short = error if len(error) <= 300 else error[:299] + "…"
    if advice := advice_on(error):
        return f"{advice} ({short})"
    if is_server(uri) and any(sign in error for sign in _UNANSWERED):
        return f"the tracking server does not answer ({short}). {REMEDY}"
    return f"{short}. {REMEDY}"


@click.command()
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("cells", nargs=-1, type=click.Path(path_type=Path))
def main(results: Path, cells: tuple[Path, ...]) -> None:
    """Show CELLS, by default all of RESULTS, and print a line for each that cannot be shown."""
    with contextlib.suppress(OSError):
        os.nice(5)  # the run has priority
    begun = list(begun_cells(cells or [results]))
    try:
        failures = list(sync(results, begun, uri=choose_store(results)))
    except StoreError as error:
        failures = [f"{len(begun)} cell(s): {error}"]
    for failure in failures:
        click.echo(FAILED + " ".join(failure.split()))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
