"""A graph as a method shows it: nodes and weighted edges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DrawnNode:
    """A vertex as it is drawn."""

    id: str
    level: int
    """Its row, 1 at the bottom."""
    text: str


@dataclass(frozen=True)
class DrawnEdge:
    """An edge between positions in ``GraphView.nodes``."""

    upper: int
    lower: int
    weight: float


@dataclass(frozen=True)
class GraphView:
    """A graph to be drawn; nodes of a level stand in their given order."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
