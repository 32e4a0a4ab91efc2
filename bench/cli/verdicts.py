"""A judge's verdicts on two methods, as ``bench compare --judge`` prints them."""

from __future__ import annotations

from bench.run.judging import Judgement


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
