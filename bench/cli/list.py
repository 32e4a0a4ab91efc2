"""``bench list``: what there is by name, and the finished cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.cli.terminal import counted, print_rows, standard_output

_NO_PAPER = "in no paper"


@click.group(name="list", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List methods with their options, data sets, models, tables, figures or finished cells."""
    if ctx.invoked_subcommand is None:
        rows = (("", f"bench list {name}", one.help or "") for name, one in command.commands.items())
        print_rows(standard_output(), rows)


def _print_by_paper(rows: Iterable[tuple[str, str, str]]) -> None:
    """(source, name, text) by paper; last those of none, whose source begins with a small letter."""
    papers = [(row[0].partition(", ")[0] if row[0][:1].isupper() else _NO_PAPER, *row[1:]) for row in rows]
    print_rows(standard_output(), sorted(papers, key=lambda row: row[0] == _NO_PAPER))


@command.command()
@click.argument("name", required=False)
@click.option("--markdown", "as_markdown", is_flag=True, help="docs/methods.md: all with their options")
def methods(name: str | None, as_markdown: bool) -> None:
    """Methods by family; of NAME all options with values, default, meaning and source."""
    from bench.method.reference import FAMILIES, described, family_place, markdown
    from bench.method.registry import BrokenPluginError, load_method, registered_methods

    if name is not None:
        click.echo(described(load_method(name)))
        return
    found, shipped = [], []
    for key, entry in registered_methods().items():
        own = entry.distribution.startswith("longdoc-bench ")
        try:
            method = entry.load()
        except BrokenPluginError as error:
            found.append((len(FAMILIES), key, f"BROKEN: {error}"))
            continue
        shipped += [method] if own else []
        text = method.summary + ("" if own else f"  [{entry.distribution}]")
        found.append((family_place(method), key, text))
    if as_markdown:
        click.echo(markdown(shipped), nl=False)
        return
    headings, in_order = (*FAMILIES, "broken"), sorted(found, key=itemgetter(0))
    print_rows(standard_output(), ((headings[place], key, text) for place, key, text in in_order))
    click.echo("Options of one: bench list methods NAME (all: docs/methods.md)")


_TASKS: Mapping[str, str] = {"qa": "question answering", "summarization": "summarisation"}
_KINDS: Mapping[str, str] = {"causal": "readers (--model)", "encoder": "encoders, which rankers load"}


@command.command()
def datasets() -> None:
    """Data sets by task, with their sources."""
    from bench.data.cards import list_cards
    from bench.files.paths import SAMPLE_SETS

    rows = []
    for card in list_cards():
        sample = ["sample"] if (SAMPLE_SETS / f"{card.name}.jsonl").exists() else []
        sources = " or ".join([*sample, *(["hub"] if card.hub else []), "PATH"])
        text = f"{card.title}  [{card.task}; --data {sources}]"
        rows.append((_TASKS.get(card.task, card.task), card.name, text))
    print_rows(standard_output(), sorted(rows))


@command.command()
def models() -> None:
    """Model presets; any hub id or local folder works as well."""
    from bench.models.presets import presets

    rows = ((_KINDS[p.kind], name, p.description) for name, p in presets().items())
    print_rows(standard_output(), rows)


@command.command()
def tables() -> None:
    """Tables by paper, with their titles."""
    from bench.tables.definition import list_tables

    _print_by_paper((table.source, table.id, table.title) for table in list_tables())


@command.command()
def figures() -> None:
    """Figures by paper, with their titles and sources."""
    from bench.figures.definition import list_figures

    _print_by_paper((f.source, f.id, f"{f.title}  [{f.source}]") for f in list_figures())


@command.command()
@results_option
def cells(results: Path) -> None:
    """Finished cells of the results folder, with their folders."""
    from bench.results.curves import cell_label
    from bench.results.finished import find_finished

    rows = []
    finished, _ = find_finished(results)
    for cell in finished:
        about = cell.description
        heading = f"{about.data}, {about.model_label}"
        rows.append((heading, cell_label(about), f"{counted(about.n_examples, 'question')}, {cell.folder}"))
    if not rows:
        click.echo(f"{results} has no finished cell. Run one, for example: bench table table1 --limit 4")
        return
    print_rows(standard_output(), sorted(rows))
    click.echo("A question of one: bench show FOLDER")
