"""A graph as a method shows it: nodes, weighted edges, and the path of a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DrawnNode:
    """A vertex as it is drawn."""

    id: str
    level: int
    """Its row, 1 at the bottom."""
    text: str
    note: str = ""
    """Its source, and the details of its visit."""
    visited: int | None = None
    """Position on the path, from 1; None if not visited."""


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
    outcome: str = ""
    """How the path ended."""
