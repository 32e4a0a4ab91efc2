"""``bench score``: scores a file of predictions and references; prints one JSON document."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from bench.errors import ConfigError
from bench.metrics import METRICS, get_metrics
from bench.metrics.scoring import DEFAULT_METRICS, parse_answered, read_answered, score_questions

log = logging.getLogger(__name__)

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
    references); the records of bench run are such lines. Other fields are ignored. FILE may be the
    folder of a cell: scores in its records that do not follow from them are put right, and so is
    the summary of a finished cell.

    Prints one JSON document:

    \b
      lines         [{"line": 1, "example_id": ..., "scores": {"f1": ...}}, ...]
      mean          metric -> mean over all lines with a reference, in 0..1
      corpus_level  the keys of "mean" that are one value for the whole file (bleu_4)
      n, failed     number of lines, and of failed ones; unscored: of those without a reference

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
        questions = read_answered(_records_of(Path(file)))
    click.echo(json.dumps(score_questions(questions, chosen).to_json(), indent=2))


def _records_of(path: Path) -> Path:
    """The file to score; for the folder of a cell its records, put right before."""
    from bench.results.finished import changed_since_summary, write_summary
    from bench.results.models import read_description, read_summary
    from bench.results.records import RECORDS_FILE, SUMMARY_FILE, RecordStore

    if not (path / RECORDS_FILE).is_file():
        return path
    with RecordStore(path) as store:
        was_finished = (path / SUMMARY_FILE).is_file() and read_summary(path).n == len(store.done)
        store.set_right()
        if was_finished and changed_since_summary(path) and any(r.answers for r in store.done.values()):
            about = read_description(path)
            store.put_in_order(list(store.done))
            write_summary(path, list(store.done.values()), about.metrics, about.cell_id)
            log.warning("%s: the summary is written again", path)
    return path / RECORDS_FILE
