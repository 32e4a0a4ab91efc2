"""``python -m bench.tracking.sync RESULTS [CELL ...]`` brings an MLflow store up to date with the records.

:class:`~bench.tracking.hooks.MlflowHooks` starts it during a run; ``bench ui`` calls :func:`sync` directly.
It has no state: each call compares the content of the store with the records. So the next call
repairs whatever was killed or refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from bench.errors import BenchError
from bench.tracking.content import begun_cells, content_digest, read_sweeps, sweep_cells, sweep_digest
from bench.tracking.mirror import Mirror, State
from bench.tracking.store import (
    FAILED,
    REMEDY,
    advice_on,
    choose_store,
    is_server,
    is_shown,
    scrub,
)

_UNANSWERED = ("Max retries exceeded", "timed out", "Timeout", "Connection refused", "Connection aborted")


class StoreError(BenchError):
    """A store that accepts no cells; the message says why and what to do."""


@dataclass(frozen=True)
class SyncResult:
    """The outcome for a cell, or for a sweep whose curves could not be drawn."""

    name: str
    """Name of the cell's folder or the sweep."""
    state: State | Literal["failed"]
    message: str = ""
    """For ``failed``: the reason."""


def sync(results: Path, cells: Iterable[Path], *, uri: str) -> Iterator[SyncResult]:
    """Write cells to a store, then the curves of their sweeps.

    results: folder with all cells of the sweeps. uri: the store. Raises StoreError, without secrets, as soon
    as the store accepts nothing.
    """
    cells, sweeps = list(cells), set[str]()
    if not cells:
        return
    try:
        mirror = Mirror(uri, results)
        for cell_dir in cells:
            try:
                yield SyncResult(cell_dir.name, mirror.show(cell_dir))
                sweeps.update(read_sweeps(cell_dir))
            except BenchError as error:  # concerns only this cell
                yield SyncResult(cell_dir.name, FAILED, scrub(str(error), uri))
        for name, members in sweep_cells(results).items() if sweeps else ():
            try:
                if name in sweeps:
                    mirror.show_sweep(name, members)
            except BenchError as error:
                yield SyncResult(name, FAILED, scrub(str(error), uri))
    except Exception as error:  # MLflow and its layers raise many types
        raise StoreError(scrub(_explain(f"{type(error).__name__}: {error}", uri), uri)) from None


def not_shown(results: Path, uri: str) -> list[Path]:
    """The cells that a store does not show as they are, with those of sweeps that have changed."""
    cells = [cell for cell in begun_cells([results]) if not is_shown(uri, content_digest(cell))]
    for name, members in sweep_cells(results).items():
        if not is_shown(uri, sweep_digest(name, members)):
            cells += members
    return list(dict.fromkeys(cells))


def _explain(error: str, uri: str) -> str:
    """An error of MLflow, with advice."""
    short = error if len(error) <= 300 else error[:299] + "…"
    if advice := advice_on(error):
        return f"{advice} ({short})"
    if is_server(uri) and any(sign in error for sign in _UNANSWERED):
        return f"the tracking server does not answer ({short}). {REMEDY}"
    return f"{short}. {REMEDY}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


@click.command()
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("cells", nargs=-1, type=click.Path(path_type=Path))
def main(results: Path, cells: tuple[Path, ...]) -> None:
    """Show CELLS, by default all of RESULTS, and print a line for each; exit code 1 if any failed."""
    with contextlib.suppress(OSError):
        os.nice(5)  # the run has priority
    begun = list(begun_cells(cells or [results]))
    failed = 0
    try:
        for result in sync(results, begun, uri=choose_store(results)):
            failed += result.state == FAILED
            click.echo(f"{result.state} {result.name}: {_one_line(result.message)}")
    except StoreError as error:
        failed += 1
        click.echo(f"{FAILED} {len(begun)} cell(s): {_one_line(str(error))}")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
