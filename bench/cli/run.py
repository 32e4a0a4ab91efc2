"""``bench run``: one method on one data set; the same command resumes an interrupted run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import session_options, set_option, setting_options
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.results.models import Interval
    from bench.run.cell import Cell, CellRequest, Setting
    from bench.run.runner import CellResult
    from bench.run.session import Session


@click.command(name="run")
@click.argument("words", nargs=-1, metavar="")
@click.option("--method", default="", help="see: bench list methods  [required]")
@click.option(
    "--dataset", default="", help="see: bench list datasets; for data of your own any name, or none at all"
)
@setting_options
@set_option
@click.option("--out", type=click.Path(path_type=Path), help="folder of this cell's records.jsonl")
@session_options
def command(
    words: tuple[str, ...],
    method: str,
    dataset: str,
    setting: Setting,
    assignments: tuple[str, ...],
    out: Path | None,
    session: Session,
) -> None:
    """Answer the questions of a data set with one method and record every answer."""
    from bench.method.options import parse_assignments
    from bench.run.cell import plan_cell
    from bench.run.equal_cost import reference_cell

    session.require_one_process("bench run answers the questions of one cell")
    require_one_method(method, dataset, words)
    request = setting.request(method, dataset, parse_assignments(assignments))
    reference = reference_cell(request)
    cell = plan_cell(request) if reference is None else _matched(request, reference, session)
    result = session.run(cell, out)
    click.echo("\n".join(report_lines(cell, result)))
    if result.summary.all_failed:
        raise BenchError(f"All {_questions(result.summary.n)} failed.")


def _matched(request: CellRequest, reference: Cell, session: Session) -> Cell:
    """The cell of a request with ``k=auto:METHOD`` or ``n_nodes=auto:METHOD``.

    Raises ConfigError, with the command to run first, while METHOD's cell is not finished.
    """
    from bench.run.cell_folder import finished_summary
    from bench.run.equal_cost import NODES, command_of, match_k, match_nodes, waiting_option
    from bench.run.likely_cost import likely_cells

    waiting = waiting_option(request.options)
    assert waiting is not None
    auto_k = request.options[waiting.option]
    summary = finished_summary(reference, reference.folder(session.results))
    if summary is None:
        raise ConfigError(
            f"{waiting.option}={auto_k} needs the cell of {reference.request.method} on the same data and "
            "model. Run first: " + command_of(reference.request, session.results)
        )
    if waiting.option == NODES:
        cell = match_nodes(request, reference.folder(session.results))
        click.echo(f"{NODES}={auto_k}: {cell.identity.config[NODES]} on average")
        return cell
    target = summary.query_flops.mean
    likely = likely_cells(request, session)
    if likely:
        session.run_together([(one, None) for one in likely])
    matched = match_k(
        request, target, session.results, lambda tried: session.run(tried).summary.query_flops.mean
    )
    assert matched is not None
    click.echo(
        f"k={auto_k}: k={matched.identity.config['k']} is closest to {summary.tflops:.4g} TFLOPs per question"
    )
    return matched


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


def report_lines(cell: Cell, result: CellResult) -> Iterator[str]:
    """The few lines that close a run."""
    from bench.metrics import METRIC_LABELS
    from bench.metrics.retrieval import measure_in_words
    from bench.results.models import MeasureInterval
    from bench.run.fitness import caution

    summary, folder = result.summary, result.folder
    title = f"{cell.title}: {_questions(summary.n)}"
    if summary.n_failed:
        title += f", {summary.n_failed} failed" + ("" if summary.all_failed else " (they score 0)")
    if summary.n_truncated:
        title += f", {summary.n_truncated} with a truncated context"
    yield title
    scores: dict[str, Interval] = {}
    if not summary.all_failed:
        scores = {name: value for name, value in summary.metrics.items() if name != "bleu_4" or value.mean}
        scores |= summary.retrieval
        if summary.n_unscored:
            count = "none" if not summary.n_scored else f"of {_questions(summary.n_scored)}"
            has = "has" if summary.n_unscored == 1 else "have"
            yield f"  {'scores':<17} {count}: {summary.n_unscored} {has} no reference answer"
    for metric, value in scores.items():
        label = METRIC_LABELS[metric] if metric in summary.metrics else measure_in_words(metric)
        text = f"  {label:<17} {100 * value.mean:6.2f} %"
        if value.low is not None and value.high is not None:
            text += f"   95% interval {100 * value.low:.2f} to {100 * value.high:.2f}"
        if isinstance(value, MeasureInterval) and value.n < summary.n:
            text += f"   (defined for {_questions(value.n)})"
        yield text
    labelled = any(example.evidence for example in cell.data.examples)
    if labelled and scores and "evidence_recall" not in scores:
        yield f"  {'evidence recall':<17} not defined: summaries were read, not passages"
    yield (
        f"  {'TFLOPs':<17} {summary.tflops:.4g} per question, {summary.index_tflops:.4g} per document set "
        f"for its index (convention: {summary.flop_convention})"
    )
    yield f"  {'tokens':<17} {summary.tokens.prompt:.0f} prompt, {summary.tokens.forwarded:.0f} forwarded"
    yield from _failures(folder)
    yield f"  {'read them':<17} bench show {folder}"
    if cell.unfit:
        yield f"  {'warning':<17} {caution(cell.unfit)}"


def _failures(folder: Path) -> Iterator[str]:
    """The commonest error, and how often it came."""
    from bench.results.records import RECORDS_FILE, read_records

    errors = Counter(record.error for record in read_records(folder / RECORDS_FILE) if record.error)
    for error, count in errors.most_common(1):
        others = f", and {len(errors) - 1} other reason(s)" if len(errors) > 1 else ""
        yield f"  {'failed':<17} {count} x {error}{others}"


def _questions(count: int) -> str:
    return f"{count} question{'' if count == 1 else 's'}"
