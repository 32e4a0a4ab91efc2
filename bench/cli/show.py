"""``bench show``: one record in readable form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.errors import BenchError
from bench.run.cell_folder import method_of

if TYPE_CHECKING:
    from bench.method.contract import Method
    from bench.results.records import Record


@click.command(name="show")
@click.argument("records", type=click.Path(exists=True, path_type=Path))
@click.argument("example", required=False)
def command(records: Path, example: str | None) -> None:
    """Show a question of RECORDS (a records.jsonl or its folder): EXAMPLE id or line number."""
    from bench.results.records import RECORDS_FILE, read_records
    from bench.tables.html_text import printable

    path = records / RECORDS_FILE if records.is_dir() else records
    match: Record | None = None
    n = 0
    for n, record in enumerate(read_records(path), start=1):
        if example is None or example in (record.example_id, str(n)):
            match = record
            break
    if match is None:
        raise BenchError(f"{path} has no question {example!r}: pass an example id or a line from 1 to {n}.")
    shown = describe_record(match, method_of(path.parent))
    click.echo(printable(shown).replace("\r", "\ufffd"))  # no terminal commands from documents


def describe_record(record: Record, method: type[Method[Any]] | None = None) -> str:
    """The record as text: question, answers, scores, context, cost and trace."""
    lines = [
        f"example     {record.example_id}",
        f"question    {record.question}",
        f"references  {' | '.join(record.answers)}",
        f"prediction  {record.prediction if record.error is None else 'FAILED: ' + record.error}",
        *(f"drawn       {text}" for text in record.drawn),
        "scores      " + ", ".join(f"{name} {100 * value:.1f}" for name, value in record.scores.items()),
        *_retrieval_line(record),
        f"cost        {record.flops.query_tflops:.4g} TFLOPs for the question, "
        f"{record.flops.index_tflops:.4g} for its index ({record.flops.convention})",
        f"tokens      {record.tokens.prompt} prompt, {record.tokens.completion} answer, "
        f"{record.tokens.forwarded} forwarded; {record.wall_s:.2f} s",
    ]
    if record.truncated or record.flags:
        lines.append(
            "flags       " + ", ".join([*(["truncated"] if record.truncated else []), *record.flags])
        )
    lines.append(f"context     {len(record.context)} item(s), in the reader's order")
    for position, item in enumerate(record.context, start=1):
        place = item.node or f"document {item.document} [{item.start}:{item.end}]"
        score = "" if item.score is None else f"  score {item.score:.4f}"
        title = f"  {item.title}" if item.title else ""
        lines.append(f"  {position:>3}. {place}{title}{score}")
        if item.text is not None:
            lines.append(f"       {item.text}")
    trace = record.trace or {}
    described = method.describe_trace(trace) if method is not None else ""
    lines += [described] if described else [f"trace       {name}: {value}" for name, value in trace.items()]
    return "\n".join(lines)


def _retrieval_line(record: Record) -> list[str]:
    """The measures of the context, if it has any."""
    measured = ", ".join(f"{name} {100 * value:.1f}" for name, value in (record.retrieval or {}).items())
    return [f"retrieval   {measured}"] if measured else []
