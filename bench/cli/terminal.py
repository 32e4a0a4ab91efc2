"""What the commands print: tables and labelled lines that fit the terminal, or plain text in a pipe.

Every function takes a console of :func:`standard_output`. No text is taken for markup or a command.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bench.files.printable import printable

if TYPE_CHECKING:
    from bench.tables.formats import TextTable

WIDE = 10_000
"""Columns of a file or a pipe."""
SIDE_BY_SIDE = 100
"""Columns there of texts side by side."""
LABEL = 12
"""Columns of the label of a labelled line."""
_GAP = 2
"""Columns between those of a table."""
_ASIDE = re.compile(r"\[[^]]*\]|\([^)]*\)$")
"""What stands behind a value: an interval, or a difference."""


def counted(count: int, what: str) -> str:
    """``1 question``, ``2 questions``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def standard_output() -> Console:
    """A console on standard output; in a file or a pipe nothing is wrapped but texts side by side."""
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else WIDE)


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def print_table(console: Console, table: TextTable, whole: Path) -> None:
    """A table with its short caption; one wider than the console continues below, with its first column.

    whole: the file with the whole caption and all notes.
    """
    print_sections(console, table)
    console.print()
    for sentence in table.brief or table.caption[:2]:
        console.print(_text(sentence, "bold yellow" if sentence.startswith("WARNING") else ""))
    more = len(table.notes) - sum(note in table.brief for note in table.notes)
    notes = f" and {counted(more, 'more note')}" if more else ""
    console.print(_text(f"Whole caption{notes}: {whole}", "dim"))


def print_sections(console: Console, table: TextTable) -> None:
    """A table without its caption."""
    console.print(_text(table.title, "bold"))
    for section in table.sections:
        console.print()
        if section.heading:
            console.print(_text(section.heading, "bold cyan"))
        groups = column_groups(table, [table.columns, *section.rows], console.width)
        for part, columns in enumerate(groups):
            if part:
                console.print()
            rows = [[row[i] for i in columns] for row in section.rows]
            _print_grid(console, [table.columns[i] for i in columns], rows)


def column_groups(table: TextTable, rows: Sequence[Sequence[str]], room: int) -> list[list[int]]:
    """The columns of each grid, with the first in all of them, so that none is wider than ``room``.

    Columns under one heading stay together where they fit.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]

    def width(columns: Iterable[int]) -> int:
        return sum(widths[i] + _GAP for i in columns) - _GAP

    every = list(range(len(table.columns)))
    if width(every) <= room:
        return [every]
    groups: list[list[int]] = []
    counts = [count for _, count in table.spans] or [len(every) - 1]
    starts = itertools.accumulate(counts, initial=1)
    for span in itertools.starmap(range, itertools.pairwise(starts)):
        group = [0]
        for column in span:
            if len(group) > 1 and width([*group, column]) > room:
                groups.append(group)
                group = [0]
            group.append(column)
        groups.append(group)
    return groups


def _print_grid(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    grid = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), header_style="bold"
    )
    for i, name in enumerate(columns):
        style = "dim" if name.endswith(" publ.") else None
        grid.add_column(_text(name), justify="right" if i else "left", no_wrap=i > 0, style=style)
    for first, *others in rows:
        grid.add_row(_text(first), *map(_value, others))
    console.print(grid)


def _value(text: str) -> Text:
    """A value whose interval or difference is less prominent than itself."""
    styled = _text(text)
    styled.highlight_regex(_ASIDE, "dim")
    return styled


def print_rows(console: Console, rows: Iterable[tuple[str, str, str]]) -> None:
    """(Heading, name, text), by headings in the order of the first of each; a heading may be empty."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for heading, name, text in rows:
        groups.setdefault(heading, []).append((name, text))
    width = max((len(name) for named in groups.values() for name, _ in named), default=0)
    for heading, named in groups.items():
        if heading:
            console.print(_text(heading, "bold cyan"))
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True, width=min(width, console.width // 2) + 2 * bool(heading))
        grid.add_column(overflow="fold")
        for name, text in named:
            grid.add_row(_text("  " * bool(heading) + name, "bold"), _value(text))
        console.print(grid)


def print_labelled(console: Console, text: str) -> None:
    """Lines ``label       text``, the text wrapped beside its label; others keep their indentation."""
    for line in printable(text).splitlines():
        label, rest = line[:LABEL].rstrip(), line[LABEL:]
        labelled = rest[:1].strip() and line[LABEL - 1] == " " and (not label or not line.startswith(" "))
        if len(line) <= console.width or console.width == WIDE:
            parts = (line[:LABEL], "bold cyan" if labelled else ""), rest
            console.print(Text.assemble(*parts), soft_wrap=True)
        elif labelled:
            grid = Table.grid()
            grid.add_column(width=LABEL, no_wrap=True)
            grid.add_column()
            grid.add_row(_text(label, "bold cyan"), _text(rest))
            console.print(grid)
        else:
            indent = min(len(line) - len(line.lstrip()), console.width // 2)
            console.print(Padding(_text(line.strip()), (0, 0, 0, indent)))


def print_columns(console: Console, heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Texts side by side under their heads, wrapped, with a label before each line."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(width=LABEL, no_wrap=True)
    for _ in heads:
        grid.add_column(ratio=1)
    grid.width = console.width if console.width < WIDE else SIDE_BY_SIDE
    grid.add_row("", *(_text(head, "bold") for head in heads))
    for label, texts in rows.items():
        grid.add_row(_text(f"  {label}", "cyan"), *map(_text, texts))
    console.print(grid)
