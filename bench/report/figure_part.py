"""A figure on the report page, with the values that it shows."""

from __future__ import annotations

from dataclasses import dataclass

from bench.figures.drawing import Drawn


@dataclass(frozen=True)
class FigurePart:
    """A figure with the values that it shows, or why it is missing."""

    id: str
    title: str
    about: str
    svg: bytes = b""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    missing: str = ""


def drawn_part(name: str, title: str, about: str, drawn: Drawn) -> FigurePart:
    """The part that shows a drawn figure."""
    rows = tuple(tuple(value_text(value) for value in row) for row in drawn.rows)
    return FigurePart(name, title, about, drawn.picture("svg"), drawn.header, rows)


def value_text(value: object) -> str:
    """A value below a figure; empty for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
