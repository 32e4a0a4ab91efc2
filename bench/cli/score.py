"""``bench score``: scores a file of predictions and references; prints one JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.errors import ConfigError
from bench.metrics import METRICS, get_metrics
from bench.metrics.scoring import DEFAULT_METRICS, parse_answered, read_answered, score_questions

_DEFAULT = ",".join(DEFAULT_METRICS)


@click.command("score")
@click.argument("file")
@click.option(
    "--metrics",
    default=_DEFAULT,
    show_default=True,
    help=f"Metrics, separated by commas, among {', '.join(METRICS)}.",
)
def command(file: str, metrics: str) -> None:
    """Score the predictions in FILE (JSON Lines; - reads standard input).

    Each line is an object with "prediction" (a string) and "answers" (a list of strings, the
    references); the records of bench run are such lines. Other fields are ignored.

    Prints one JSON document:

    \b
      lines         [{"line": 1, "example_id": ..., "scores": {"f1": ...}}, ...]
      mean          metric -> mean over all lines, in 0..1
      corpus_level  the keys of "mean" that are one value for the whole file (bleu_4)
      n, failed     number of lines, and of failed ones

    A line with an "error" is a failed question: marked "failed", it scores 0 in every metric and
    stays in every mean.
    """  # noqa: D301 -- click needs the backspace itself, to keep the list's lines
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--metrics {metrics!r} names no metric; expected for example {_DEFAULT}.")
    chosen = get_metrics(names)
    if file == "-":
        with click.open_file("-", "rb") as stream:
            questions = parse_answered(stream, "standard input")
    else:
        questions = read_answered(Path(file))
    click.echo(json.dumps(score_questions(questions, chosen).to_json(), indent=2))
