"""``bench judge``: a model compares two methods' answers to the same questions, from stored records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.cli.compare import CellPair, pair_options
from bench.cli.options import protocol_option

if TYPE_CHECKING:
    from bench.run.judge_protocol import ProtocolName
    from bench.run.judging import Judgement


@click.command(name="judge")
@pair_options
@click.option("--judge", "judge", help="the judge: preset, hub id or folder; default: the reader, --model")
@protocol_option
@click.option("--in-flight", type=click.IntRange(min=1), default=32, show_default=True,
              help="concurrent comparisons")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="repeat requests to the judge that failed")
def command(
    pair: CellPair, judge: str | None, protocol: ProtocolName, in_flight: int, retry_failed: bool
) -> None:
    """Have a model compare the answers of A and B, by four criteria and in both orders.

    With --protocol paper, as in Graph of Records: one verdict per pair, win rates in percent.

    A and B are finished cells, as in bench compare: methods with their options, such as tfidf or bm25:k=6, or
    folders. Verdicts are stored in RESULTS/judgements; the same command asks only for missing ones.
    Example: bench judge tfidf bm25:k=6 --dataset qmsum --judge llama-3.1-8b
    """
    from bench.run.judge_protocol import PROTOCOLS
    from bench.tables.judged import judge_cells

    model = judge or pair.setting.model
    judged = judge_cells(
        *pair.records(),
        names=(pair.first, pair.second),
        judge=model,
        dtype=pair.setting.dtype,
        results=pair.results,
        protocol=PROTOCOLS[protocol],
        in_flight=in_flight,
        retry_failed=retry_failed,
    )
    describe = described_as_paper if protocol == "paper" else described
    click.echo(describe(judged, pair.first, pair.second, model))


def described(judged: Judgement, first: str, second: str, judge: str) -> str:
    """The outcome in a few lines."""
    summary = judged.summary
    lines = [_heading(judged, first, second, judge)]
    lines.append(
        f"  {'':<18} {'win':>5} {'tie':>5} {'loss':>5} {'unparsable':>11} {'orders disagree':>16}  preference"
    )
    for name, outcome in summary.criteria.items():
        p = outcome.preference
        interval = "" if p.low is None or p.high is None else f" [{100 * p.low:+.0f}, {100 * p.high:+.0f}]"
        lines.append(
            f"  {name:<18} {outcome.win:>5} {outcome.tie:>5} {outcome.loss:>5} {outcome.unparsable:>11} "
            f"{outcome.inconsistent:>16}  {100 * p.mean:+.0f}{interval}"
        )
    lines.append(
        "  A win needs both orders; preference: wins less losses in percent of the questions, 95 %, "
        "documents resampled."
    )
    return "\n".join([*lines, *_ending(judged)])


def described_as_paper(judged: Judgement, first: str, second: str, judge: str) -> str:
    """Both win rates in percent, and the number of failures."""
    (overall,) = judged.summary.criteria.values()
    rate = overall.win_rate
    lines = [_heading(judged, first, second, judge)]
    if rate is None:
        lines.append("  no pair has an overall winner")
    else:
        low, high = rate.low, rate.high
        interval = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
        lines += [
            f"  {first} wins {100 * rate.mean:.1f} %{interval}, {second} {100 * (1 - rate.mean):.1f} %, "
            f"of the {overall.win + overall.loss} pairs with an overall winner",
            f"  failed, and left out: {overall.unparsable} pairs without a JSON object that names it",
        ]
    return "\n".join([*lines, *_ending(judged)])


def _heading(judged: Judgement, first: str, second: str, judge: str) -> str:
    n = judged.summary.n
    return f"{first} against {second}, judged by {judge}: {n} questions, {judged.asked} new replies"


def _ending(judged: Judgement) -> list[str]:
    """Failed requests, the cost, and the path of the replies."""
    summary = judged.summary
    errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
    return [
        *([f"  failed requests: {errors}; --retry-failed repeats them"] if errors else []),
        f"  cost {summary.tflops:.4g} TFLOPs for {summary.replies} replies, of which "
        f"{summary.unparsable_replies} have no verdict",
        f"  verdicts {judged.folder / 'verdicts.jsonl'}",
    ]
