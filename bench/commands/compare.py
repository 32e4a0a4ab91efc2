"""``bench compare``: two methods on the same questions, with intervals and the questions that differ most."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.shared_options import cell_options, results_option
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.cell import CellRequest
    from bench.comparison import Comparison, Pair
    from bench.records import Record

WIDTH = 100
"""Characters of a line on the terminal."""
SIGNIFICANT = 0.05


@click.command(name="compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--dataset", help="see: bench list datasets (needed where A or B is a method)")
@click.option("--metric", default="f1", show_default=True, help="a metric with a value per question")
@cell_options
@click.option("--show", type=click.IntRange(min=0), default=4, show_default=True, metavar="N",
              help="how many questions to show of those on which they differ most")  # fmt: skip
@results_option
def command(
    first: str,
    second: str,
    dataset: str | None,
    metric: str,
    model: str,
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    show: int,
    results: Path,
) -> None:
    """Compare A with B, question by question, from finished cells; nothing is run.

    A and B are methods with their options, such as pecan, bm25:k=7 or pecan:t_p=2,t_c=0.5, or folders of
    cells. Example: bench compare pecan bm25:k=7 --dataset musique
    """
    from bench.cell import CellRequest
    from bench.comparison import compare

    base = CellRequest("", dataset or "", model, data, {}, limit, seed, dtype)
    found = [found_records(text, base, results) for text in (first, second)]
    comparison = compare(found[0], found[1], metric)
    click.echo(describe(comparison, first, second))
    for pair in most_different(comparison, show):
        click.echo("\n" + side_by_side(pair, metric, first, second))


def options_of(text: str) -> dict[str, object]:
    """The options in ``METHOD:KEY=VALUE,KEY=VALUE``."""
    from bench.options import parse_assignments

    _, _, assignments = text.partition(":")
    return parse_assignments(assignments.split(",")) if assignments else {}


def found_records(text: str, base: CellRequest, results: Path) -> list[Record]:
    """The records of what A or B stands for: the folder of a cell, or a method with its options.

    base: gives data set, model, data, limit and seed. Raises ConfigError for a method without a data set, and
    BenchError as :func:`records_of` does.
    """
    if Path(text).is_dir():
        return records_of(text, None, results)
    if not base.dataset:
        raise ConfigError(f"{text}: no folder of that name; for a method, say --dataset as well.")
    request = replace(base, method=text.partition(":")[0], options=options_of(text))
    return records_of(text, request, results)


def records_of(text: str, request: object, results: Path) -> list[Record]:
    """The records of a finished cell; raises BenchError with the command that runs it where it is not."""
    from bench.cell import CellRequest, plan_cell
    from bench.cell_folder import finished_summary
    from bench.matching import command_of, matched_cell, reference_method
    from bench.records import RECORDS_FILE, SUMMARY_FILE, read_records

    if not isinstance(request, CellRequest):
        folder = Path(text)
        if not (folder / SUMMARY_FILE).is_file():
            raise BenchError(f"{folder} is not the folder of a finished cell: it has no {SUMMARY_FILE}.")
        return list(read_records(folder / RECORDS_FILE))
    matched = reference_method(request.options.get("k")) is not None
    cell = matched_cell(request, results) if matched else plan_cell(request)
    if cell is None or finished_summary(cell, cell.folder(results)) is None:
        options = "".join(f" --set {key}={value}" for key, value in request.options.items())
        raise BenchError(
            f"{text} on {request.dataset} ({request.data}) has not been run yet. "
            f"Run: {command_of(request, results)}{options}"
        )
    return list(read_records(cell.folder(results) / RECORDS_FILE))


def describe(found: Comparison, first: str, second: str) -> str:
    """The comparison in a few lines."""
    d, r = found.difference, found.flop_ratio
    interval = (
        f" [{100 * d.low:+.1f}, {100 * d.high:+.1f}], 95 %, documents resampled"
        if d.low is not None and d.high is not None
        else f", without an interval: {d.reason}"
    )
    spread = f" [{r.low:.2f}, {r.high:.2f}]" if r.low is not None and r.high is not None else ""
    lines = [
        f"{first}  {100 * found.first:.1f}    {second}  {100 * found.second:.1f}    ({found.metric}, mean of "
        f"{d.n} questions on {_counted(d.clusters, 'document')})",
        f"difference  {100 * d.mean:+.1f}{interval}; permutation test p = {found.p_value:.3f}",
        f"            {verdict(found, first, second)}",
        f"questions   {found.better} better, {found.equal} equal, {found.worse} worse",
        f"FLOPs       {r.mean:.2f}{spread} times those of {second}, per question, index apart",
    ]
    if found.only_first or found.only_second:
        lines.append(
            f"left out    {found.only_first} questions that only {first} has, {found.only_second} that only "
            f"{second} has"
        )
    return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def verdict(found: Comparison, first: str, second: str) -> str:
    """Whether the questions tell the two apart: only where the interval and the test agree that they do."""
    low, high = found.difference.low, found.difference.high
    if low is None or high is None:
        return "Too few documents to tell the two apart."
    outside, rejected = low > 0 or high < 0, found.p_value < SIGNIFICANT
    if outside and rejected:
        return f"{first} scores {'higher' if low > 0 else 'lower'} than {second}."
    if outside or rejected:
        return "On the border: the interval and the test do not agree. More documents would tell."
    return "These questions do not tell the two apart."


def most_different(found: Comparison, count: int) -> Sequence[Pair]:
    """The largest differences first; equal ones in the order of the data, those of either sign in turn."""
    by_size: dict[float, tuple[list[Pair], list[Pair]]] = {}
    for pair in found.pairs:
        difference = pair.difference(found.metric)
        if difference:
            by_size.setdefault(round(abs(difference), 9), ([], []))[difference < 0].append(pair)
    in_turn = [
        pair
        for size in sorted(by_size, reverse=True)
        for both in zip_longest(*by_size[size])
        for pair in both
        if pair is not None
    ]
    return in_turn[:count]


def side_by_side(pair: Pair, metric: str, first: str, second: str) -> str:
    """One question with both answers in two columns: what each scored, cost and had read."""
    label = 12
    column = (WIDTH - label - 2) // 2
    asked = pair.first
    lines = [
        asked.example_id,
        *textwrap.wrap(asked.question, WIDTH - 2, initial_indent="  ", subsequent_indent="  "),
    ]
    lines += textwrap.wrap(
        f"{'  references':<{label}}  {' | '.join(asked.answers)}", WIDTH, subsequent_indent=" " * (label + 2)
    )
    told = [_told(record, metric) for record in (pair.first, pair.second)]
    rows = [("", first, second), *((name, told[0][name], told[1][name]) for name in told[0])]
    for name, *texts in rows:
        wrapped = [textwrap.wrap(text, column, break_long_words=True) or [""] for text in texts]
        for at, (left, right) in enumerate(zip_longest(*wrapped, fillvalue="")):
            head = f"  {name}" if at == 0 else ""
            lines.append(f"{head:<{label}}  {left:<{column}}  {right}".rstrip())
    return "\n".join(lines)


def _told(record: Record, metric: str) -> dict[str, str]:
    """What a column says of one answer."""
    measured = [
        f"{name.replace('_', ' ')} {100 * value:.0f} %" for name, value in (record.retrieval or {}).items()
    ]
    return {
        "answer": f"FAILED: {record.error}" if record.error is not None else repr(record.prediction),
        metric: f"{100 * record.scores[metric]:.0f}",
        "cost": f"{record.flops.query / 1e12:.3g} TFLOPs",
        "read": ", ".join([f"{len(record.context)} passages or nodes", *measured]),
    }
