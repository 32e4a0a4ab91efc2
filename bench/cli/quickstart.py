"""``bench quickstart``: a first table and picture in a minute, with every column explained."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from bench.cli.options import Command, session_options

if TYPE_CHECKING:
    from bench.run.session import Session
    from bench.tables.cells import TableData

NAME = "quickstart"
"""Of the table and the figure, defined in paper_tables/."""

BEFORE = """\
Ten questions about two stories, answered in three ways by one small reader,
tiny. Both the stories and the reader are this project's own and ship with it:
nothing is downloaded, and nothing leaves this machine.
"""
COLUMNS = """\
F1       words that answer and reference share, in percent: 100 is the
         reference itself. In brackets a 95 % interval of the mean over many
         such stories; two stories say little about it.
TFLOPs   trillions of floating-point operations per question. What is made once
         for a document, such as a graph of summaries, is not in it: bench show
         prints it.
n        questions answered
"""
AFTER = """\
Next:
  bench ask "Who signed it?" FILES   an answer from files of your own, with sources
  bench table table1                 thirteen ways on four data sets; some minutes
  bench list methods                 all of them, in a line each
  bench report                       everything that has run, as one HTML page
  bench ui                           the same in MLflow
"""


@click.command(name="quickstart", cls=Command)
@session_options
def command(session: Session) -> None:
    """Answer ten questions in three ways, and print what each way is worth and what it costs."""
    from bench.cli.terminal import print_sections, standard_output
    from bench.figures.definition import load_figure
    from bench.figures.make import make_figure
    from bench.packages import READER, require
    from bench.run.cell import CellRequest
    from bench.tables.cells import plan_table, table_cells
    from bench.tables.definition import load_table
    from bench.tables.render import render

    require("The quickstart", *READER)
    setting, definition = CellRequest(), load_table(NAME)
    click.echo(BEFORE)
    table = table_cells(definition, plan_table(definition, setting), session)
    click.echo()
    print_sections(standard_output(), render(table, {}))
    click.echo("\n".join(["", *definition.notes, "", COLUMNS]))
    click.echo(_one_question(table))
    figure = load_figure(NAME)
    paths = make_figure(figure, setting, session).save(session.results / "figures", figure.id)
    click.echo(
        f"The table as a picture: {paths[0]}\nAll that was recorded:  {session.results / 'cells'}\n\n{AFTER}"
    )


def _one_question(table: TableData) -> str:
    """The question on which the answers differ most, with the answer of each row."""
    rows = [(cell.row.label, cell.finished) for cell in table.cells.values() if cell.finished is not None]
    answers = [{r.example_id: r for r in cell.records} for _, cell in rows]
    metric = table.definition.metrics[0]

    def spread(example_id: str) -> float:
        scores = [of_row[example_id].scores[metric] for of_row in answers]
        return max(scores) - min(scores)

    chosen = max(answers[0], key=spread)
    record = answers[0][chosen]
    width = max(len(label) for label, _ in rows)
    lines = [
        f"One of the questions: {record.question}",
        f"  {'reference':<{width}}  {' / '.join(record.answers)}",
    ]
    for (label, _), of_row in zip(rows, answers, strict=True):
        answer = of_row[chosen].prediction or "no answer"
        lines.append(f"  {label:<{width}}  {textwrap.shorten(answer, 100)}")
    return "\n".join(lines) + "\n"
