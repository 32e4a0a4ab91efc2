"""``bench list``: list methods, datasets, models, tables or figures."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.options import results_option


@click.group(name="list")
def command() -> None:
    """List methods, datasets, models, tables or figures."""


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


@command.command()
def methods() -> None:
    """Registered methods with their packages."""
    from bench.method.registry import BrokenPluginError, registered_methods

    rows = []
    for name, entry in registered_methods().items():
        try:
            text = entry.load().summary
        except BrokenPluginError as error:
            text = f"BROKEN: {error}"
        rows.append((name, f"{text}  [{entry.distribution}]"))
    _print_rows(rows)


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
    from bench.results.curves import cell_label
    from bench.results.finished import find_finished

    _print_rows(
        [
            (
                str(cell.folder),
                f"{cell_label(cell.description)} on {cell.description.data}, "
                f"{cell.description.model_label}, {cell.summary.n} questions",
            )
            for cell in find_finished(results).finished
        ]
    )
