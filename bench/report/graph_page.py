"""A method's graph as one self-contained HTML page: levels as rows, edges by weight, a path on top.

The page loads nothing and runs only its own script, allowed by its hash in the content security policy;
texts of documents and models are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.method.graph_view import DrawnEdge, DrawnNode, GraphView
from bench.tables.html_text import embedded_json, filled, own_file, printable, source_hash

MAX_EDGES = 6000
"""Maximum number of edges drawn; of more, each node's strongest are drawn."""

NODE_WIDTH, NODE_HEIGHT, GAP = 34, 24, 10
ROW_HEIGHT, MARGIN, LABEL_WIDTH = 170, 24, 84
MIN_WIDTH = 1100


@dataclass(frozen=True)
class _Box:
    """A node and its centre in the picture."""

    drawn: DrawnNode
    x: float
    y: float


@dataclass(frozen=True)
class _Line:
    """An edge with its ends in the picture."""

    edge: DrawnEdge
    start: tuple[float, float]
    end: tuple[float, float]
    strength: float
    """Among its upper node's edges: 0 (mean or below) to 1."""
    on_path: bool
    """Whether both ends were visited, the upper one first."""


def graph_page(view: GraphView, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """The page as HTML; ``facts`` are label and value pairs printed above the picture."""
    boxes, width = _layout(view.nodes)
    lines = _lines(view, boxes)
    path = sorted((node for node in view.nodes if node.visited is not None), key=lambda n: n.visited or 0)
    about = [*facts, ("graph", _sizes(view, len(lines)))]
    if view.outcome:
        about.append(("path", f"{len(path)} nodes read; {view.outcome}"))
    style, script = own_file("bench.report", "graph.css"), own_file("bench.report", "graph.js")
    rows = {box.drawn.level: box.y for box in boxes}
    return filled(
        own_file("bench.report", "graph.html.jinja"),
        title=title,
        about=about,
        path=path,
        boxes=boxes,
        lines=lines,
        rows=sorted(rows.items()),
        width=round(width),
        height=2 * MARGIN + NODE_HEIGHT + max(0, len(rows) - 1) * ROW_HEIGHT,
        margin=MARGIN,
        node_width=NODE_WIDTH,
        node_height=NODE_HEIGHT,
        policy=f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}",
        style=style,
        script=script,
        nodes=embedded_json(
            [{"id": node.id, "note": node.note, "text": printable(node.text)} for node in view.nodes]
        ),
    )


def _sizes(view: GraphView, drawn: int) -> str:
    levels = sorted({node.level for node in view.nodes}, reverse=True)
    counts = ", ".join(
        f"{sum(node.level == level for node in view.nodes)} on level {level}" for level in levels
    )
    edges = f"{len(view.edges)} edges"
    if drawn < len(view.edges):
        edges += f", the strongest {drawn} drawn"
    return (
        f"{len(view.nodes)} nodes ({counts}), {edges}" if view.nodes else "no nodes: the document has no text"
    )


def _lines(view: GraphView, boxes: Sequence[_Box]) -> list[_Line]:
    """The edges to draw, the weak ones first and those of the path last."""
    of_node: dict[int, list[DrawnEdge]] = {}
    for edge in view.edges:
        of_node.setdefault(edge.upper, []).append(edge)
    each = len(view.edges) if len(view.edges) <= MAX_EDGES else max(1, MAX_EDGES // len(of_node))
    lines: list[_Line] = []
    for edges in of_node.values():
        best = max(edge.weight for edge in edges)
        mean = sum(edge.weight for edge in edges) / len(edges)
        for edge in sorted(edges, key=lambda e: -e.weight)[:each]:
            upper, lower = boxes[edge.upper], boxes[edge.lower]
            visits = upper.drawn.visited, lower.drawn.visited
            lines.append(
                _Line(
                    edge,
                    (upper.x, upper.y + NODE_HEIGHT / 2),
                    (lower.x, lower.y - NODE_HEIGHT / 2),
                    max(0.0, edge.weight - mean) / (best - mean) if best > mean else 0.5,
                    visits[0] is not None and visits[1] is not None and visits[0] < visits[1],
                )
            )
    return sorted(lines, key=lambda line: (line.on_path, line.strength))


def _layout(nodes: Sequence[DrawnNode]) -> tuple[list[_Box], float]:
    """Every node with its centre, and the width of the picture; rows span all of it."""
    rows: dict[int, list[DrawnNode]] = {}
    for node in nodes:
        rows.setdefault(node.level, []).append(node)
    widest = max((len(row) for row in rows.values()), default=0)
    inner = max(MIN_WIDTH - LABEL_WIDTH - 2 * MARGIN, widest * (NODE_WIDTH + GAP))
    height_of = {
        level: MARGIN + NODE_HEIGHT / 2 + at * ROW_HEIGHT
        for at, level in enumerate(sorted(rows, reverse=True))
    }
    column = dict.fromkeys(rows, 0)
    boxes = []
    for node in nodes:
        step = inner / len(rows[node.level])
        x = MARGIN + LABEL_WIDTH + step * (column[node.level] + 0.5)
        boxes.append(_Box(node, x, height_of[node.level]))
        column[node.level] += 1
    return boxes, inner + LABEL_WIDTH + 2 * MARGIN
