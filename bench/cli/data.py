"""``bench data``: check a data file, or fetch the full sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

import click

from bench.data import hub
from bench.data.cards import card_names, load_card
from bench.data.checking import Report, check
from bench.data.entries import Problem
from bench.data.folder import questions_file
from bench.data.loading import by_kind
from bench.data.own import card_for
from bench.data.source import data_files, open_source
from bench.errors import DataError
from bench.files.printable import printable

_SHOWN_KINDS = 40
"""Kinds of problems that are printed, of errors and of warnings."""


@click.group("data")
def command() -> None:
    """Check data, or fetch data sets."""


@command.command("check")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dataset", help="Also check that the file belongs to this data set.")
@click.pass_context
def check_command(ctx: click.Context, path: Path, dataset: str | None) -> None:
    """Describe the data at PATH: format, examples, documents, lengths, problems with file:line.

    A folder that is not a data set itself is checked file by file. Exit code 0 if everything is
    usable, 2 if not.
    """
    card = card_for(dataset, str(path)) if dataset else None
    reports = [check(part, card) for part in _parts(path) or [path]]
    click.echo(printable("\n\n".join("\n".join(_lines(report)) for report in reports)))
    if not all(report.usable for report in reports):
        ctx.exit(2)


@command.command("fetch")
@click.option("--dataset", help="One data set; default: all that have a card.")
def fetch_command(dataset: str | None) -> None:
    """Download the full sets at their pinned revisions, and verify what has a known checksum."""
    for name in [dataset] if dataset else card_names():
        card = load_card(name)
        if card.hub is None and not dataset:
            click.echo(f"{name}: left out. {card.obtain}")
            continue
        files = hub.fetch(card)
        assert card.hub is not None  # else nothing could be fetched
        size = sum(file.stat().st_size for file in files) / 1e6
        known = [hub.known_checksum(*one) is not None for one in zip(card.hub.files, files, strict=True)]
        verified = "verified" if all(known) else f"{sum(known)} verified" if any(known) else "not verified"
        click.echo(f"{name}: {len(files)} file(s), {size:,.1f} MB, revision {card.hub.revision}, {verified}")


def _parts(path: Path) -> list[Path]:
    """The path itself; for a folder that is not a data set itself, all data files in it."""
    if path.is_dir():
        try:
            if questions_file(path, data_files(path)) is None:
                open_source(path)
        except DataError:
            folders = (one for one in sorted(path.iterdir()) if one.is_dir() and one.name[0] != ".")
            return [*data_files(path), *(part for folder in folders for part in _parts(folder))]
    return [path]


def _lines(report: Report) -> Iterator[str]:
    yield str(report.path)
    if report.format:
        yield f"  format     {report.format}: {report.description}"
    if report.examples:
        evidence = f"{report.evidence:,} with evidence" if report.evidence else "no evidence labels"
        splits = f"; splits: {_counted(report.splits)}" if report.splits else ""
        words = report.words
        yield f"  data set   {_counted(report.datasets)}{splits}"
        yield f"  examples   {report.examples:,} ({report.questions:,} different questions, {evidence})"
        yield (
            f"  documents  {report.documents:,} different; {min(words):,} to {max(words):,} words per "
            f"example, mean {fmean(words):,.0f}"
        )
    yield from _problem_lines(report.problems)
    yield f"  usable     {'yes' if report.usable else 'no'}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({n:,})" for name, n in counts.items())


def _problem_lines(problems: tuple[Problem, ...]) -> Iterator[str]:
    if not problems:
        yield "  problems   none"
        return
    errors = sum(problem.severity == "error" for problem in problems)
    yield f"  problems   {errors} error(s), {len(problems) - errors} warning(s)"
    for severity in ("error", "warning"):
        lines = by_kind(problem for problem in problems if problem.severity == severity)
        yield from (f"    {severity}: {line}" for line in lines[:_SHOWN_KINDS])
        if len(lines) > _SHOWN_KINDS:
            yield f"    ... and {len(lines) - _SHOWN_KINDS} more kinds of {severity}"
