"""The content of the report page, from finished cells; nothing is run for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.report.cells import DataGroup, NamedCell, grouped
from bench.report.overview import Plane, planes
from bench.report.questions import Browser, Limits, browse
from bench.results.finished import find_finished
from bench.run.fitness import caution


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    facts: tuple[tuple[str, str], ...]
    overview: tuple[Plane, ...]
    """Score over cost of what was run, a picture for each data set."""
    runs: tuple[tuple[str, NamedCell], ...]
    """Every finished cell with its data, by data and then by score, the highest first."""
    warnings: tuple[str, ...]
    """What makes scores on the page meaningless."""
    browser: Browser
    notes: tuple[str, ...]
    """What is missing from the page, and why."""


def collect_report(
    results: Path, own_files: Sequence[Path] = (), limits: Limits | None = None, datasets: Sequence[str] = ()
) -> Report:
    """The report on the cells below ``results``.

    own_files: see :func:`bench.report.questions.browse`. datasets: only cells on these; empty: on all.
    Raises BenchError if no cell is finished.
    """
    finished, unfinished = find_finished(results)
    cells = [cell for cell in finished if not datasets or cell.description.dataset in datasets]
    missing = [name for name in datasets if name not in {cell.description.dataset for cell in cells}]
    if missing or not cells:
        on = f" on {', '.join(missing)}" if missing else ""
        raise BenchError(
            f"{results} has no finished cell{on} ({unfinished} unfinished), so there is nothing to "
            "report. Run some first, for example: bench table table1, or pass their folder: --results DIR."
        )
    not_shown = f"Unfinished cells of the results folder, not shown: {unfinished}."
    groups = grouped(cells)
    browser = browse(groups, own_files, limits or Limits())
    return Report(
        facts=_facts(groups),
        overview=tuple(planes(groups)),
        runs=tuple((group.label, named) for group in groups for named in group.cells),
        warnings=tuple(_warnings(groups)),
        browser=browser,
        notes=(*((not_shown,) if unfinished else ()), *browser.notes),
    )


def _warnings(groups: Sequence[DataGroup]) -> Iterator[str]:
    """One line for all data that a small model read without being able to."""
    labels, models = [], []
    for group in groups:
        unfit = [name for named in group.cells for name in named.cell.description.unfit_models]
        models += unfit
        labels += [group.label] if unfit else []
    if models:
        yield f"{', '.join(labels)}: {caution(tuple(dict.fromkeys(models)))}"


def _facts(groups: Sequence[DataGroup]) -> tuple[tuple[str, str], ...]:
    """Label and value pairs for the top of the page."""
    described = [named.cell.description for group in groups for named in group.cells]
    small = " (a small stand-in trained by this project)"
    readers = sorted({d.model_label + (small if d.model_small else "") for d in described})
    return (
        ("Cells", f"{len(described)} finished, on {', '.join(group.label for group in groups)}"),
        ("Readers", ", ".join(readers)),
    )
