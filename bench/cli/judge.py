"""``bench judge``: two methods' answers to the same questions compared by a model, from stored records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.cli.compare import CellPair, pair_options

if TYPE_CHECKING:
    from bench.run.judging import Judgement


@click.command(name="judge")
@pair_options
@click.option(
    "--judge", "judge", help="the model that compares: preset, hub id or folder; default: the reader, --model"
)
@click.option("--in-flight", type=click.IntRange(min=1), default=32, show_default=True,
              help="comparisons worked on at a time")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="ask again where the judge could not be asked")
def command(pair: CellPair, judge: str | None, in_flight: int, retry_failed: bool) -> None:
    """Have a model compare the answers of A and B, by four criteria and in both orders.

    A and B are finished cells, as in bench compare: methods with their options, such as tfidf or bm25:k=6, or
    folders. Verdicts are kept below RESULTS/judgements; the same command again asks only what is missing.
    Example: bench judge tfidf bm25:k=6 --dataset qmsum --judge llama-3.1-8b
    """
    from bench.tables.judged import judge_cells

    model = judge or pair.setting.model
    judged = judge_cells(
        *pair.records(),
        names=(pair.first, pair.second),
        judge=model,
        dtype=pair.setting.dtype,
        results=pair.results,
        in_flight=in_flight,
        retry_failed=retry_failed,
    )
    click.echo(describe(judged, pair.first, pair.second, model))


def describe(judged: Judgement, first: str, second: str, judge: str) -> str:
    """The outcome in a few lines."""
    summary = judged.summary
    lines = [
        f"{first} against {second}, judged by {judge}: {summary.n} questions, {judged.asked} replies new"
    ]
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
    if summary.errors:
        errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
        lines.append(f"  not asked: {errors}; --retry-failed asks again")
    lines.append(
        f"  cost {summary.tflops:.4g} TFLOPs for {summary.replies} replies, of which "
        f"{summary.unparsable_replies} name no verdict"
    )
    lines.append(f"  verdicts {judged.folder / 'verdicts.jsonl'}")
    return "\n".join(lines)
