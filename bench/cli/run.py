"""``bench run``: one method on one data set; the same command resumes an interrupted run."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from bench.cli.options import METHOD, WHAT, Command, option, session_options, setting_options
from bench.cli.terminal import counted
from bench.errors import BenchError, ConfigError
from bench.files.printable import printable

if TYPE_CHECKING:
    from bench.metrics.statistics import Interval
    from bench.results.finished import FinishedCell
    from bench.run.cell import Cell, CellRequest
    from bench.run.session import Session


@click.command(name="run", cls=Command)
@click.argument("words", nargs=-1, metavar="")
@option("--method", group=WHAT, default="", metavar=METHOD, help="see: bench list methods  [required]")
@option(
    "--dataset",
    group=WHAT,
    default="",
    help="see: bench list datasets; for data of your own any name, or none at all",
)
@setting_options
@option(
    "--set",
    "assignments",
    group=WHAT,
    multiple=True,
    metavar="KEY=VALUE",
    help="an option of the method (see: bench list methods NAME); repeatable",
)
@session_options
def command(
    words: tuple[str, ...],
    method: str,
    dataset: str,
    setting: CellRequest,
    assignments: tuple[str, ...],
    session: Session,
) -> None:
    """Answer the questions of a data set with one method and record every answer."""
    from bench.method.options import parse_assignments, parse_method
    from bench.run.equal_cost import planned, waiting_option

    session.require_one_process()
    method, options = parse_method(method)
    require_one_method(method, dataset, words)
    fixed = parse_assignments(assignments)
    if twice := sorted(options.keys() & fixed.keys()):
        raise ConfigError(f"{twice[0]} stands in --method and in --set, or in a file's; give it once.")
    request = setting.of(method, dataset, {**options, **fixed})
    cell = planned(request, session)
    option = waiting_option(request.options)
    if option is not None:
        asked, found = str(request.options[option]), cell.identity.config[option]
        other = asked.removeprefix("auto:")
        click.echo(f"{option}={asked}: {option}={found} is closest to what {other} costs or reads")
    finished = session.run(cell)
    click.echo(printable("\n".join(report_lines(cell, finished))))
    if finished.summary.all_failed:
        raise BenchError(f"All {counted(finished.summary.n, 'question')} failed.")


def require_one_method(method: str, dataset: str = "", words: Sequence[str] = ()) -> None:
    """Raise ConfigError for no method, several in one word, or words without their option."""
    if words:
        rest = list(words)
        method, dataset = method or rest.pop(0), dataset or (rest.pop(0) if rest else "DATASET")
        raise ConfigError(
            f"bench run takes options only, not {' '.join(words)!r}. Did you mean: "
            f"bench run --method {method} --dataset {dataset}"
        )
    if not method:
        raise ConfigError("--method is missing. Methods: bench list methods")
    if "," in method:
        raise ConfigError(
            f"--method {method}: one method at a time. Several: bench sweep "
            + " ".join(f"--method {name.strip()}" for name in method.split(","))
        )


def report_lines(cell: Cell, finished: FinishedCell) -> Iterator[str]:
    """The few lines that close a run."""
    from bench.metrics import label_of
    from bench.metrics.retrieval import RETRIEVAL_MEASURES, measure_in_words
    from bench.run.fitness import caution

    summary = finished.summary
    title = f"{cell.title}: {counted(summary.n, 'question')}"
    if summary.n_failed:
        title += f", {summary.n_failed} failed" + ("" if summary.all_failed else " (they score 0)")
    if summary.n_truncated:
        title += f", {summary.n_truncated} with a truncated context"
    yield title
    scores: dict[str, Interval] = {}
    if not summary.all_failed:
        found = summary.metrics | summary.retrieval
        order = [name for name in (*cell.card.metrics, *RETRIEVAL_MEASURES) if name in found]
        scores = {name: found[name] for name in order if name != "bleu_4" or found[name].mean}
        if summary.n_unscored:
            count = "none" if not summary.n_scored else f"of {counted(summary.n_scored, 'question')}"
            has = "has" if summary.n_unscored == 1 else "have"
            yield f"  {'scores':<17} {count}: {summary.n_unscored} {has} no reference answer"
    for metric, value in scores.items():
        label = label_of(metric) if metric in summary.metrics else measure_in_words(metric)
        text = f"  {label:<17} {100 * value.mean:6.2f} %"
        if value.low is not None and value.high is not None:
            text += f"   95% interval {100 * value.low:.2f} to {100 * value.high:.2f}"
        if value.n is not None and value.n < summary.n:
            text += f"   (defined for {counted(value.n, 'question')})"
        yield text
    labelled = any(example.evidence for example in cell.data.examples)
    if labelled and scores and "evidence_recall" not in scores:
        yield f"  {'evidence recall':<17} not defined: summaries were read, not passages"
    yield (
        f"  {'TFLOPs':<17} {summary.tflops:.4g} per question, {summary.index_tflops:.4g} per document set "
        f"for its index (convention: {summary.flop_convention})"
    )
    yield f"  {'tokens':<17} {summary.tokens.prompt:.0f} prompt, {summary.tokens.forwarded:.0f} forwarded"
    errors = Counter(record.error for record in finished.records if record.error)
    for error, times in errors.most_common(1):
        others = f", and {len(errors) - 1} other reason(s)" if len(errors) > 1 else ""
        yield f"  {'failed':<17} {times} x {error}{others}; --retry-failed asks them again"
    yield f"  {'read them':<17} bench show {shlex.quote(str(finished.folder))}"
    if cell.unfit:
        yield f"  {'warning':<17} {caution(cell.unfit)}"
