"""``bench data``: check a data file, or fetch the full sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import click

from bench.data.cards import card_names, load_card
from bench.data.checking import WORDS, Report, TextCounter, check
from bench.data.entries import Problem
from bench.data.loading import Tally
from bench.data.own import card_for
from bench.data.source import data_files, open_source
from bench.errors import DataError, ModelUnavailableError

_SHOWN_KINDS = 20
"""Kinds of problems that are printed; --json has every problem."""


@click.group("data")
def command() -> None:
    """Check data, write data files, or fetch data sets."""


@command.command("check")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dataset", help="Also check that the file belongs to this data set.")
@click.option("--model", default="tiny", show_default=True, help="Whose tokenizer measures lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def check_command(ctx: click.Context, path: Path, dataset: str | None, model: str, as_json: bool) -> None:
    """Describe the data at PATH: format, examples, documents, lengths, problems with file:line.

    A folder that is not a data set itself is checked file by file. Exit code 0 if everything is
    usable, 2 if not.
    """
    card = card_for(dataset, str(path)) if dataset else None
    counter, remark = _counter(model)
    reports = [check(part, counter, card) for part in _parts(path) or [path]]
    if as_json:
        parts = [report.to_json() for report in reports]
        click.echo(json.dumps(parts[0] if len(parts) == 1 else parts, indent=2, ensure_ascii=False))
    else:
        if remark:
            click.echo(remark, err=True)
        click.echo("\n\n".join("\n".join(_lines(report)) for report in reports))
    if not all(report.usable for report in reports):
        ctx.exit(2)


@command.command("lengths")
@click.option("--dataset", default="hotpotqa", show_default=True,
              help="several documents a question, with labels")  # fmt: skip
@click.option("--data", default="sample", show_default=True, help="sample, hub, or a file or folder")
@click.option("--tokens", "lengths", type=click.IntRange(min=1), multiple=True, required=True,
              help="length of the documents; may be repeated")  # fmt: skip
@click.option("--questions", type=click.IntRange(min=1), default=24, show_default=True,
              help="asked at every length")  # fmt: skip
@click.option("--model", default="tiny", show_default=True, help="whose tokenizer measures lengths")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="the file to write, JSON lines")  # fmt: skip
def lengths_command(
    dataset: str, data: str, lengths: tuple[int, ...], questions: int, model: str, seed: int, out: Path
) -> None:
    """Write the same questions at several document lengths, for --data.

    A question keeps the documents that answer it; documents of other questions fill up to the length, as in
    RULER's QA tasks.
    """
    from bench.data.lengths import at_lengths, write_lines
    from bench.data.loading import load

    counter, remark = _counter(model)
    if remark:
        click.echo(remark, err=True)
    loaded = load(card_for(dataset, data), data)
    made = at_lengths(loaded.examples, lengths, questions, counter.count, seed)
    if not made.examples:
        raise DataError(
            f"No question of {loaded.label} fits in {min(lengths):,} {counter.unit}: with the documents that "
            f"answer them {made.passed_over} are longer, or they have no labels. Pass a larger --tokens."
        )
    write_lines(out, made.examples)
    per_length = len(made.examples) // len(set(lengths))
    click.echo(
        f"{out}: {per_length} questions of {loaded.label} at {len(set(lengths))} lengths, "
        f"{min(lengths):,} to {max(lengths):,} {counter.unit} ({counter.name})"
        + (f"; {made.passed_over} passed over (longer, or no labels)" if made.passed_over else "")
        + f"\nRun: bench figure lengths --data {out}"
    )


@command.command("fetch")
@click.option("--dataset", help="One data set; default: all that have a card.")
def fetch_command(dataset: str | None) -> None:
    """Download the full sets at their pinned revisions, and verify what has a known checksum."""
    from bench.data import hub

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
            open_source(path)
        except DataError:
            folders = (folder for folder in sorted(path.iterdir()) if folder.is_dir())
            return [*data_files(path), *(part for folder in folders for part in _parts(folder))]
    return [path]


def _counter(model: str) -> tuple[TextCounter, str]:
    """The model's tokenizer as a counter; falls back to words, with a remark, if it is unavailable."""
    from bench.models.loader import load_tokenizer
    from bench.models.spec import resolve

    try:
        tokenizer = load_tokenizer(resolve(model))
    except ModelUnavailableError as error:
        return WORDS, f"lengths are in words: {error}"
    return TextCounter(model, "tokens", lambda text: len(tokenizer.encode(text).ids)), ""


def _lines(report: Report) -> Iterator[str]:
    yield report.path
    if report.format:
        yield f"  format     {report.format}: {report.description}"
    if report.examples:
        named = ", ".join(f"{name} ({count:,})" for name, count in report.datasets.items())
        yield f"  data set   {named}" + _list("splits", report.splits)
        evidence = f"{report.evidence:,} with evidence" if report.evidence else "no evidence labels"
        yield f"  examples   {report.examples:,} ({report.questions:,} different questions, {evidence})"
        each = f"{report.documents / report.examples:.1f} per example"
        yield f"  documents  {report.documents:,} ({report.unique_documents:,} different), {each}"
    if report.lengths:
        size = report.lengths
        yield (
            f"  {size.unit:<9}  min {size.minimum:,}  mean {size.mean:,.0f}  median {size.median:,.0f}"
            f"  max {size.maximum:,} per example ({size.counter})"
        )
    if report.unread:
        yield f"  not read   the fields {_fields(report)}"
    yield from _problem_lines(report.problems)
    yield f"  usable     {'yes' if report.usable else 'no'}"


def _fields(report: Report) -> str:
    """The fields that nothing reads, those of some examples only with their number."""
    some = {name: f" ({n:,})" if n < report.examples else "" for name, n in report.unread.items()}
    listed = ", ".join(f"{name}{count}" for name, count in islice(some.items(), _SHOWN_KINDS))
    return listed + (f" and {len(some) - _SHOWN_KINDS} more" if len(some) > _SHOWN_KINDS else "")


def _list(title: str, counts: Mapping[str, int]) -> str:
    return f"; {title}: " + ", ".join(f"{name} ({n:,})" for name, n in counts.items()) if counts else ""


def _problem_lines(problems: tuple[Problem, ...]) -> Iterator[str]:
    if not problems:
        yield "  problems   none"
        return
    errors = sum(problem.severity == "error" for problem in problems)
    yield f"  problems   {errors} error(s), {len(problems) - errors} warning(s)"
    for severity in ("error", "warning"):
        kinds = Tally()
        for problem in problems:
            if problem.severity == severity:
                kinds.add(problem.place, problem.message)
        lines = kinds.lines()
        yield from (f"    {severity}: {line}" for line in lines[:_SHOWN_KINDS])
        if len(lines) > _SHOWN_KINDS:
            yield f"    ... and {len(lines) - _SHOWN_KINDS} more kinds of {severity} (all: --json)"
