"""``bench compare``: two methods on the same questions, with intervals and the questions that differ most."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import click
from rich.console import Console

from bench.cli.cells import named_folder, one_cell, warn_if_changed
from bench.cli.options import (
    HOW,
    OUTPUT,
    WHAT,
    Command,
    in_flight_option,
    option,
    protocol_option,
    refuse,
    results_option,
    retry_failed_option,
    setting_options,
)
from bench.cli.terminal import counted, print_columns, print_labelled, standard_output
from bench.data.cards import card_names
from bench.data.own import NOT_PATHS, card_for
from bench.errors import BenchError, ConfigError
from bench.method.options import as_typed, parse_method
from bench.metrics import label_of
from bench.metrics.retrieval import measure_in_words
from bench.results.comparison import Comparison, Pair, compare
from bench.results.finished import records_so_far
from bench.results.power import LEVEL, Power
from bench.results.records import RECORDS_FILE, SUMMARY_FILE, Record, index_costs
from bench.tables.formats import in_brackets, percent

if TYPE_CHECKING:
    from bench.run.cell import CellRequest
    from bench.run.judge_protocol import ProtocolName
    from bench.run.judging import CriterionSummary, Judgement

PLAN = 5.0
"""Points of difference that a comparison says the number of questions for."""


@click.command(name="compare", cls=Command)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@option("--dataset", group=WHAT, help="see: bench list datasets (needed where A or B is a method)")
@option("--metric", group=WHAT, default="f1", show_default=True,
        help="f1, rouge_l or another one that the records have")  # fmt: skip
@option("--show", group=OUTPUT, type=click.IntRange(min=0), default=4, show_default=True, metavar="N",
        help="how many questions to show of those on which they differ most")  # fmt: skip
@option("--plan", group=OUTPUT, type=click.FloatRange(min=0.01, max=100), default=PLAN, show_default=True,
        metavar="POINTS", help="say how many questions would show this difference")  # fmt: skip
@option("--judge", group=HOW, metavar="MODEL",
        help="this model compares the answers instead, by four criteria and in both orders")  # fmt: skip
@retry_failed_option
@protocol_option
@in_flight_option
@setting_options
@results_option
def command(
    first: str,
    second: str,
    dataset: str | None,
    setting: CellRequest,
    results: Path,
    metric: str,
    show: int,
    plan: float,
    judge: str | None,
    protocol: ProtocolName,
    in_flight: int,
    retry_failed: bool,
) -> None:
    """Compare A with B, question by question, from recorded cells; only a judge is run.

    A and B are methods with their options, such as tfidf, bm25:k=7 or bm25:k=7,order=document, or folders of
    cells, finished or not. Example: bench compare tfidf bm25:k=7 --dataset musique
    """
    if judge is None:
        refuse(("protocol", "retry_failed", "in_flight"), "is of a judge's comparison: add --judge MODEL.")
    else:
        refuse(("metric", "show", "plan"), "is of a comparison by scores, and --judge makes none: drop one.")
    if all(map(named_folder, (first, second))):
        choosing = ("dataset", "data", "model", "limit", "seed", *(() if judge else ("dtype",)))
        refuse(choosing, "chooses among cells, and two folders are named: leave it out.")
    folders = list(_folders((first, second), dataset, setting, results))
    one, other = (list(records_so_far(folder).values()) for folder in folders)
    first, second = _called(first, second)
    if judge is not None:
        from bench.models.spec import resolve
        from bench.run.judge_protocol import PROTOCOLS
        from bench.run.session import Session
        from bench.tables.judged import judge_cells

        judged = judge_cells(
            one,
            other,
            Session(results, in_flight=in_flight, retry_failed=retry_failed),
            names=(first, second),
            judge=resolve(judge, dtype=setting.dtype),
            protocol=PROTOCOLS[protocol],
        )
        assert judged is not None
        click.echo(describe_judgement(judged, first, second, judge))
        return
    comparison = compare(one, other, metric)
    console = standard_output()
    print_labelled(console, describe(comparison, first, second, plan))
    for question in most_different(comparison, show):
        console.print()
        print_pair(console, question, metric, first, second)


def _called(*named: str) -> Sequence[str]:
    """Short names of the two: of a folder its method, or its own name where that does not tell them apart."""
    names = [Path(text).name if named_folder(text) else text for text in named]
    methods = [name.partition("--")[0] for name in names]
    return next((short for short in (methods, names) if len(set(short)) == len(named)), named)


def _folders(
    named: tuple[str, str], dataset: str | None, setting: CellRequest, results: Path
) -> Iterator[Path]:
    """The folders of both cells; for a missing one raises BenchError with the command that runs it."""
    if dataset is None and setting.data not in NOT_PATHS:
        dataset = card_for("", setting.data).name
    for text in named:
        folder = named_folder(text)
        if folder is not None:
            if not (folder / RECORDS_FILE).is_file():
                raise BenchError(f"{folder} has no {RECORDS_FILE}: no question of this cell has been asked.")
            if not (folder / SUMMARY_FILE).is_file():
                click.echo(f"{folder} has no {SUMMARY_FILE}: what it has answered is compared.", err=True)
            warn_if_changed(folder)
            yield folder
        elif dataset is None:
            raise ConfigError(
                f"{text}: no folder of that name; for a method, say on which data: bench compare "
                f"{' '.join(named)} --dataset NAME (what has been run: bench list cells)"
            )
        elif setting.data == "sample" and dataset not in card_names():  # the user's own, by its name
            model, seed = setting.model if setting.model_named else "", setting.seed or None
            yield one_cell(text, results, dataset, model, limit=setting.limit, seed=seed, dtype=setting.dtype)
        else:
            method, options = parse_method(text)
            yield _finished_folder(text, setting.of(method, dataset, options), results)


def _finished_folder(text: str, request: CellRequest, results: Path) -> Path:
    """The folder of a finished cell; raises BenchError with the command that runs it where it is not."""
    from bench.run.cell import plan_cell
    from bench.run.equal_cost import cost_match, match_costs
    from bench.run.session import Session

    session, match = Session(results, compute=False), cost_match(request)
    cell = plan_cell(request) if match is None else match_costs([match], session)[0]
    finished = None if cell is None else session.finished(cell)
    if finished is None:
        raise BenchError(
            f"{text} on {request.dataset} ({request.data}) has not been run yet, or with another --limit or "
            f"model. What has: bench list cells. Run: {command_of(request, results)}"
        )
    return finished.folder


def command_of(request: CellRequest, results: Path) -> str:
    """The ``bench run`` command of a request."""
    parts = ["bench", "run", "--method", request.method, "--dataset", request.dataset]
    parts += ["--model", request.model, "--data", request.data]
    for name, value in (("limit", request.limit), ("seed", request.seed or None), ("dtype", request.dtype)):
        parts += [f"--{name}", str(value)] if value is not None else []
    parts += ["--results", str(results)] if results != Path("results") else []
    for name, value in request.options.items():
        parts += ["--set", f"{name}={as_typed(value)}"]
    return shlex.join(parts)


def describe(comparison: Comparison, first: str, second: str, plan: float = PLAN) -> str:
    """The comparison in a few lines; plan: points of difference that it says the number of questions for."""
    c = comparison
    d, r = c.difference, c.flop_ratio
    interval = in_brackets(d, lambda end: f"{100 * end:+.1f}")
    interval = f"{interval} (95 %, documents resampled)" if interval else f", without an interval: {d.reason}"
    cost = f"{r.mean:.2f}{in_brackets(r, '{:.2f}'.format)} times" if r else "no ratio to"
    p_value = "p < 0.001" if c.p_value < 0.001 else f"p = {c.p_value:.3f}"
    answered = [p.first for p in c.pairs], [p.second for p in c.pairs]
    indexes = [fmean(index.index_tflops for index in index_costs(records)) for records in answered]
    lines = [
        f"{label_of(c.metric):<11} {first} {100 * c.first:.1f} %, {second} "
        f"{100 * c.second:.1f} %; mean of {counted(len(c.pairs), 'question')} on "
        f"{counted(c.documents, 'document')}",
        f"difference  {100 * d.mean:+.1f} points{interval}; permutation test {p_value}",
        f"            {verdict(comparison, first, second)}",
        _power(comparison.power, plan),
        f"questions   {c.better} better, {c.equal} equal, {c.worse} worse",
        f"FLOPs       {cost} those of {second}, per question, without the index",
        f"index       {first} {indexes[0]:.3g}, {second} {indexes[1]:.3g} TFLOPs per document set",
    ]
    failed = [sum(record.error is not None for record in records) for records in answered]
    if any(failed):
        lines.append(
            f"failed      scored 0: {failed[0]} of {first}, {failed[1]} of {second}; bench run "
            "--retry-failed asks them again"
        )
    if c.only_first or c.only_second:
        lines.append(
            f"left out    {counted(c.only_first, 'question')} that only {first} has, {c.only_second} "
            f"that only {second} has"
        )
    return "\n".join(lines)


def describe_judgement(judged: Judgement, first: str, second: str, judge: str) -> str:
    """The outcome by every criterion, what failed, the cost, and the path of the replies."""
    summary = judged.summary
    errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
    return "\n".join(
        [
            f"{first} against {second}, judged by {judge}: {summary.n} questions, {judged.asked} new replies",
            f"  {'':<18} {'win':>5} {'tie':>5} {'loss':>5} {'unparsable':>11} {'orders disagree':>16}  "
            "preference, win rate",
            *(f"  {name:<18} {_outcome(criterion)}" for name, criterion in summary.criteria.items()),
            "  Preference: wins less losses in percent of the questions; win rate: wins among wins and "
            "losses; 95 %, documents resampled.",
            *([f"  failed requests: {errors}; --retry-failed repeats them"] if errors else []),
            f"  cost {summary.tflops:.4g} TFLOPs for {summary.replies} replies, of which "
            f"{summary.unparsable_replies} have no verdict",
            f"  verdicts {judged.folder / 'verdicts.jsonl'}",
        ]
    )


def _outcome(criterion: CriterionSummary) -> str:
    p, rate = criterion.preference, criterion.win_rate
    interval = in_brackets(p, lambda end: f"{100 * end:+.0f}")
    won = ", -"
    if rate is not None:
        won = f", {percent(rate.scaled(100))}"
    return (
        f"{criterion.win:>5} {criterion.tie:>5} {criterion.loss:>5} {criterion.unparsable:>11} "
        f"{criterion.inconsistent:>16}  {100 * p.mean:+.0f}{interval}{won}"
    )


def _power(power: Power | None, plan: float) -> str:
    """What these questions could have shown, and how many would show ``plan`` points."""
    if power is None:
        return "power       unknown: too few documents, or no spread, to plan from; ask more questions"
    return (
        f"power       a true difference of {100 * power.detectable:.1f} points would be found 4 times in 5; "
        f"for {plan:g} points ask {power.questions_for(plan / 100):,} questions"
    )


def verdict(comparison: Comparison, first: str, second: str) -> str:
    """Whether the questions tell the two apart: only where the interval and the test agree that they do."""
    low, high = comparison.difference.low, comparison.difference.high
    if low is None or high is None:
        return "Too few documents to tell the two apart."
    outside, rejected = low > 0 or high < 0, comparison.p_value < LEVEL
    if outside and rejected:
        return f"{first} scores {'higher' if low > 0 else 'lower'} than {second}."
    if outside or rejected:
        return "On the border: the interval and the test do not agree. More documents would tell."
    return "These questions do not tell the two apart."


def most_different(comparison: Comparison, count: int) -> Sequence[Pair]:
    """The pairs with the largest differences, equal ones in the order of the data."""
    differing = [pair for pair in comparison.pairs if pair.difference(comparison.metric)]
    differing.sort(key=lambda pair: round(-abs(pair.difference(comparison.metric)), 9))
    return differing[:count]


def print_pair(console: Console, pair: Pair, metric: str, first: str, second: str) -> None:
    """One question with both answers in two columns: what each scored, cost and had read."""
    one = pair.first
    asked = {"example": one.example_id, "question": one.question, "references": " | ".join(one.answers)}
    print_labelled(console, "\n".join(f"{what:<12}{text}" for what, text in asked.items() if text))
    measures = list(dict.fromkeys([*one.retrieval, *pair.second.retrieval]))
    left, right = (_column(record, metric, measures) for record in (one, pair.second))
    print_columns(console, (first, second), {label: (left[label], right[label]) for label in left})


def _column(record: Record, metric: str, measures: Sequence[str]) -> dict[str, str]:
    """What a column says of one answer; measures: of the contexts, those that either answer has."""
    held = record.retrieval
    measured = [f"{measure_in_words(m)} {100 * held[m]:.0f} %" for m in measures if m in held]
    undefined = " and ".join(measure_in_words(m) for m in measures if m not in held)
    if undefined:
        measured.append(f"{undefined} not defined")
    nodes = sum(item.node is not None for item in record.context)
    passages = len(record.context) - nodes
    kinds = [counted(n, what) for n, what in ((passages, "passage"), (nodes, "node")) if n]
    return {
        "answer": f"FAILED: {record.error}" if record.error is not None else repr(record.prediction),
        label_of(metric): f"{100 * record.scores[metric]:.0f} %",
        "cost": f"{record.flops.query_tflops:.3g} TFLOPs",
        "read": ", ".join([*(kinds or ["nothing"]), *measured]),
    }
