"""Tables of plain text, for tables that do not show one cell per line, with their CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.tables.formats import Rendered, Section, TextTable


@dataclass(frozen=True)
class PlainTable:
    """Text cells in rows under columns, with sentences below; the first column is aligned left."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def render(self) -> Rendered:
        """The table in all formats."""
        sections = (Section("", self.rows),)
        table = TextTable(self.id, self.title, self.columns, sections, self.caption, self.notes)
        return Rendered(table, csv_text((self.columns, *self.rows)))


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """The rows, headings first, as CSV with line feeds as line ends."""
    from pandas import DataFrame

    head, *body = map(list, rows)
    frame = DataFrame(body, columns=head, dtype=object)
    return str(frame.to_csv(index=False, lineterminator="\n"))
