"""A judge's verdicts on two methods, as ``bench compare --judge`` prints them."""

from __future__ import annotations

from bench.run.judging import CriterionSummary, Judgement
from bench.tables.formats import in_brackets


def described(judged: Judgement, first: str, second: str, judge: str) -> str:
    """The outcome by every criterion, what failed, the cost, and the path of the replies."""
    summary = judged.summary
    errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
    return "\n".join(
        [
            f"{first} against {second}, judged by {judge}: {summary.n} questions, {judged.asked} new replies",
            f"  {'':<18} {'win':>5} {'tie':>5} {'loss':>5} {'unparsable':>11} {'orders disagree':>16}  "
            "preference, win rate",
            *(f"  {name:<18} {_outcome(criterion)}" for name, criterion in summary.criteria.items()),
            "  Shown in both orders, a win needs both. Preference: wins less losses in percent of the "
            "questions; win rate: wins among wins and losses; 95 %, documents resampled.",
            *([f"  failed requests: {errors}; --retry-failed repeats them"] if errors else []),
            f"  cost {summary.tflops:.4g} TFLOPs for {summary.replies} replies, of which "
            f"{summary.unparsable_replies} have no verdict",
            f"  verdicts {judged.folder / 'verdicts.jsonl'}",
        ]
    )


def _outcome(criterion: CriterionSummary) -> str:
    p, rate = criterion.preference, criterion.win_rate
    interval = in_brackets(p.low, p.high, lambda end: f"{100 * end:+.0f}")
    won = ", -"
    if rate is not None:
        bounds = in_brackets(rate.low, rate.high, lambda end: f"{100 * end:.1f}")
        won = f", {100 * rate.mean:.1f} %{bounds}"
    return (
        f"{criterion.win:>5} {criterion.tie:>5} {criterion.loss:>5} {criterion.unparsable:>11} "
        f"{criterion.inconsistent:>16}  {100 * p.mean:+.0f}{interval}{won}"
    )
