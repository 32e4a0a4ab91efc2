"""``bench table``: run the missing cells of a table, then render it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import (
    DATA,
    METHOD,
    MODEL,
    OUTPUT,
    WHAT,
    Command,
    exported_option,
    first_option,
    option,
    protocol_option,
    refuse,
    refuse_run_options,
    render_only_option,
    session_options,
    setting_options,
)
from bench.errors import ConfigError

if TYPE_CHECKING:
    from bench.run.cell import CellRequest
    from bench.run.session import Session
    from bench.tables.cells import TableData
    from bench.tables.make import TableRequest


COLUMNS = ("scores", "retrieval", "costs", "price", "paired", "published")


@click.command(name="table", cls=Command)
@click.argument("table_id", metavar="TABLE")
@setting_options
@option("--dataset", "datasets", group=WHAT, multiple=True, help="only this data set of it; repeatable")
@option(
    "--columns",
    "view",
    group=WHAT,
    type=click.Choice(COLUMNS),
    default="scores",
    show_default=True,
    help="retrieval: how much of the evidence and of the answers the contexts contain; costs: with and "
    "without probes, of the reader and of the other models; price: dollars, by a price card; paired: every "
    "row against one, question by question; published: the values that the paper prints, alone, which need "
    "neither data nor weights",
)
@option("--row", "rows", group=WHAT, multiple=True, metavar=METHOD, help="an additional row; repeatable")
@option("--judge", group=MODEL, help="the judge model in tables of judgements; default: --model")
@protocol_option
@render_only_option
@option(
    "--export",
    group=OUTPUT,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="also write the finished cells there, with every question but without any text of the data",
)
@exported_option
@option(
    "--prices",
    group=DATA,
    listed=False,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="price card of --columns price, in the format of bench/models/prices.yaml",
)
@option(
    "--per-document",
    "questions_per_document",
    group=DATA,
    listed=False,
    type=click.IntRange(min=1),
    help="of --columns price: questions that share an index; default: 1, 2, 4 and 8",
)
@first_option
@option("--open", "browse", group=OUTPUT, listed=False, is_flag=True, help="show the figure of the rows")
@session_options
def command(
    table_id: str,
    setting: CellRequest,
    datasets: tuple[str, ...],
    rows: tuple[str, ...],
    render_only: bool,
    prices: Path | None,
    questions_per_document: int | None,
    first: int,
    browse: bool,
    session: Session,
    export: Path | None,
    **content: Any,  # the options that are fields of TableRequest
) -> None:
    """Make TABLE (see: bench list tables) from its cells; missing ones run first.

    The first questions of every cell are asked first, and the whole table is printed; then the rest, and the
    final table.
    """
    from bench.cli.board import show_while_made
    from bench.cli.terminal import print_table, standard_output
    from bench.files.atomic import write_text
    from bench.models.prices import read_prices
    from bench.tables.definition import load_table, with_rows
    from bench.tables.export import export_table
    from bench.tables.make import TableRequest, make_table, plan_cells, run_cells
    from bench.tables.price import QUESTIONS

    refuse_run_options(content["exported"])
    if content["view"] != "price":
        refuse(("prices", "questions_per_document"), "is of --columns price: add it.")
    session.compute = not render_only
    # What the paper prints is of its own data sets, which "hub" stands for, not of the sample ones.
    data = "hub" if content["view"] == "published" else setting.data
    if content["exported"] and datasets:
        data = str(content["exported"])  # which may have any
    request = TableRequest(
        with_rows(load_table(table_id), rows).on(data, datasets),
        setting,
        session,
        prices=read_prices(prices) if content["view"] == "price" else None,
        questions=(questions_per_document,) if questions_per_document else QUESTIONS,
        **content,
    )
    path = session.results / "tables" / request.name
    if export is not None and request.definition.kind != "cells":
        raise ConfigError(f"{request.definition.id}: --export is for tables of scores, such as table1.")
    if export is not None and (request.exported or request.view in ("price", "published")):
        raise ConfigError(f"--export {export} is of a table's records: leave out --columns and --from.")
    planned = plan_cells(request)
    show_while_made(request)
    for _ in session.passes(first):
        table = run_cells(request, planned)
        rendered = make_table(request, planned, table)
        files = rendered.files()
        for suffix, text in files.items():
            write_text(path.with_name(f"{path.name}.{suffix}"), text)
        print_table(standard_output(), rendered, path.with_name(f"{path.name}.md"))
        click.echo(f"Written: {path}{', '.join(f'.{suffix}' for suffix in files)}")
    if export is not None:
        export_table(table, export)
    picture = _picture(request, table) if session.compute or browse else None
    if picture is not None:
        click.echo(f"Score over cost, as a figure: {picture}")
        if browse:
            click.launch(str(picture))


def _picture(request: TableRequest, table: TableData) -> Path | None:
    """The file with the table's rows, score over cost; None for a table that is no such rows."""
    from bench.figures.make import rows_on_a_plane
    from bench.files.atomic import write_bytes
    from bench.tables.price import dollars_per_1000

    if request.definition.kind != "cells" or request.view not in ("scores", "costs", "price"):
        return None
    if request.prices is not None:
        card, shared = request.prices, request.questions[-1]
        drawn = rows_on_a_plane(
            table,
            dollars_per_1000(table, card, shared),
            unit=f"dollars for 1,000 questions, {shared} per document",
            bars="Bars of scores: 95 %, documents resampled; of dollars: least and most. "
            f"Prices: {card.source}, {card.date}.",
        )
    else:
        drawn = rows_on_a_plane(table)
    if drawn is None:
        return None
    name = request.name if request.view == "price" else request.definition.id
    path = request.session.results / "figures" / f"{name}.png"
    write_bytes(path, drawn.picture("png"))
    return path
