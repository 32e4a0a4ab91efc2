"""``bench show``: one record in readable form."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.cells import named_folder, one_cell, warn_if_changed
from bench.cli.options import refuse, results_option
from bench.cli.terminal import print_labelled, standard_output
from bench.errors import BenchError
from bench.method.trace import described
from bench.metrics import label_of
from bench.metrics.retrieval import measure_in_words
from bench.results.records import RECORDS_FILE, Record, read_records


@click.command(name="show")
@click.argument("cell", metavar="CELL")
@click.argument("example", required=False)
@click.option("--dataset", default="", help="of a method's cell")
@click.option("--model", default="", help="reader of a method's cell")
@results_option
def command(cell: str, example: str | None, dataset: str, model: str, results: Path) -> None:
    """Show a question of CELL, by its id or its line number in the records; by default the first.

    CELL is a folder, a records.jsonl, or a method with options: of all its finished cells the one nearest to
    the defaults. Example: bench show bm25:k=5 --dataset hotpotqa
    """
    path = Path(cell) if Path(cell).is_file() else named_folder(cell)
    if path is not None:
        refuse(("dataset", "model"), "chooses among cells, and one is named by its path: leave it out.")
    path = path or one_cell(cell, results, dataset, model)
    path = path / RECORDS_FILE if path.is_dir() else path
    if not path.is_file() or not path.stat().st_size:
        raise BenchError(f"{path.parent} has no answered question yet.")
    warn_if_changed(path.parent)
    lines = list(enumerate(read_records(path), start=1))
    # An id goes before a line number; of a question asked again the last line counts.
    places = {str(n): (n, record) for n, record in lines} | {line[1].example_id: line for line in lines}
    match = places.get(lines[0][1].example_id if example is None else example)
    if match is None:
        raise BenchError(f"{path} has no question {example!r}: pass an id, or a line up to {len(lines)}.")
    line, record = match
    text = f"cell        {path.parent}, line {line}{_taken_as(example, line, record)}"
    print_labelled(standard_output(), f"{text}\n{describe_record(record)}")


def _taken_as(example: str | None, line: int, record: Record) -> str:
    """For a number: whether it was an id or a line."""
    if example is None or not example.isdigit():
        return ""
    return f" ({example} is its id)" if example == record.example_id else " (a line number, no id)"


def describe_record(record: Record) -> str:
    """The record as text: question, answers, scores, context, cost and trace."""
    scores = ", ".join(f"{label_of(m)} {100 * v:.1f} %" for m, v in record.scores.items())
    measured = ", ".join(f"{measure_in_words(m)} {100 * of:.1f} %" for m, of in record.retrieval.items())
    lines = [
        f"example     {record.example_id}",
        f"question    {record.question}",
        f"references  {' | '.join(record.answers) or ('left out' if record.scores else 'none: not scored')}",
        f"prediction  {record.prediction if record.error is None else 'FAILED: ' + record.error}",
        *(f"drawn       {text}" for text in record.drawn),
        f"scores      {scores or 'none'}",
        *([f"retrieval   {measured}"] if measured else []),
        f"cost        {record.flops.query_tflops:.4g} TFLOPs for the question, "
        f"{record.flops.index_tflops:.4g} for its index ({record.flops.convention})",
        f"tokens      {record.tokens.prompt} prompt, {record.tokens.completion} answer, "
        f"{record.tokens.forwarded} forwarded; {record.wall_s:.2f} s",
    ]
    if record.truncated or record.flags:
        lines.append("flags       " + ", ".join(["truncated"] * record.truncated + [*record.flags]))
    lines.append(f"context     {len(record.context)} item(s), in the reader's order")
    for position, item in enumerate(record.context, start=1):
        place = item.node or f"document {item.document} [{item.start}:{item.end}]"
        score = "" if item.score is None else f"  score {item.score:.4f}"
        title = f"  {item.title}" if item.title else ""
        lines.append(f"  {position:>3}. {place}{title}{score}")
        if item.text is not None:
            lines.append(f"       {item.text}")
    return "\n".join([*lines, described(record.trace or {})]).rstrip()
