"""``bench list``: what there is by name, and the finished cells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import results_option
from bench.errors import ConfigError

if TYPE_CHECKING:
    from bench.method.contract import Method

DISTRIBUTION = "longdoc-bench"
"""The package whose methods need no mark of origin."""


class _Lists(click.Group):
    """Takes the singular as well, and says where options of methods are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "options":
            raise ConfigError("Options of a method: bench list methods NAME")
        return super().resolve_command(ctx, [args[0] + "s" * (args[0] + "s" in self.commands), *args[1:]])


@click.group(name="list", cls=_Lists)
def command() -> None:
    """List methods with their options, data sets, models, tables, figures, formats or finished cells."""


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


@command.command()
@click.argument("name", required=False)
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="docs/methods.md: all of them with their options"
)
def methods(name: str | None, as_markdown: bool) -> None:
    """Methods by family; of NAME all options with values, default, meaning and source."""
    from bench.method.reference import FAMILIES, described, family_place, markdown
    from bench.method.registry import BrokenPluginError, load_method, registered_methods

    if name is not None:
        click.echo(described(load_method(name)))
        return
    families: dict[int, list[tuple[str, str]]] = {}
    shipped = []
    for key, entry in registered_methods().items():
        own = entry.distribution.startswith(f"{DISTRIBUTION} ")
        try:
            method = entry.load()
        except BrokenPluginError as error:
            families.setdefault(len(FAMILIES), []).append((key, f"BROKEN: {error}"))
            continue
        shipped += [method] if own else []
        text = method.summary + ("" if own else f"  [{entry.distribution}]") + _to_fetch(method)
        families.setdefault(family_place(method), []).append((key, text))
    if as_markdown:
        click.echo(markdown(shipped), nl=False)
        return
    width = max(len(key) for rows in families.values() for key, _ in rows)
    for place, rows in sorted(families.items()):
        click.echo((*FAMILIES, "broken")[place])
        _print_rows([(f"  {key:<{width}}", text) for key, text in rows])
    click.echo("Options of one: bench list methods NAME (all: docs/methods.md)")


def _to_fetch(method: type[Method[Any]]) -> str:
    """The models besides the reader that its defaults need and that are not on this machine."""
    from bench.cli.model import is_here
    from bench.errors import BenchError
    from bench.models.spec import resolve

    try:
        named = method(method.Config(), resolve("tiny").geometry).models().values()
    except (BenchError, ValueError):  # options without which it cannot be made
        return ""
    missing = [model for model in dict.fromkeys(named) if model and not is_here(resolve(model))]
    return f"  (first: bench model fetch {' '.join(missing)})" if missing else ""


@command.command()
def datasets() -> None:
    """Data sets with task and sources."""
    from bench.data.cards import list_cards
    from bench.files.paths import SAMPLE_SETS

    rows = []
    for card in list_cards():
        sample = ["sample"] if (SAMPLE_SETS / f"{card.name}.jsonl").exists() else []
        sources = " or ".join([*sample, *(["hub"] if card.hub else []), "PATH"])
        rows.append((card.name, f"{card.title}  [{card.task}; --data {sources}]"))
    _print_rows(rows)


@command.command()
def models() -> None:
    """Model presets; any hub id or local folder works as well."""
    from bench.models.presets import PRESETS

    _print_rows([(name, preset.description) for name, preset in PRESETS.items()])


@command.command()
def tables() -> None:
    """Tables with their titles."""
    from bench.tables.definition import list_tables

    _print_rows([(table.id, table.title) for table in list_tables()])


@command.command()
def figures() -> None:
    """Figures with their titles and sources."""
    from bench.figures.definition import list_figures

    _print_rows([(figure.id, f"{figure.title}  [{figure.source}]") for figure in list_figures()])


@command.command()
def formats() -> None:
    """Formats of data files that --data reads."""
    from bench.data.formats import FORMATS

    _print_rows([(format.name, format.title) for format in FORMATS if format.parse])


@command.command()
@results_option
def cells(results: Path) -> None:
    """Finished cells of the results folder, with their folders."""
    from bench.cli.cells import cell_line
    from bench.results.finished import find_finished

    for cell in find_finished(results).finished:
        click.echo(cell_line(cell.folder, cell.description))
