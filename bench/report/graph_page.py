"""A method's graph as one self-contained HTML page: levels as rows, edges by weight, a path on top.

The page loads nothing and runs only its own script, allowed by its hash in the content security policy;
texts of documents and models are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.method.graph_view import DrawnEdge, DrawnNode, GraphView
from bench.tables.html_text import embedded_json, escaped, filled, printable, source_hash

MAX_EDGES = 6000
"""Maximum number of edges drawn; of more, each node's strongest are drawn."""

NODE_WIDTH, NODE_HEIGHT, GAP = 34, 24, 10
ROW_HEIGHT, MARGIN, LABEL_WIDTH = 170, 24, 84
MIN_WIDTH = 1100


@dataclass(frozen=True)
class _Place:
    """Centre of a node in the picture."""

    x: float
    y: float


def graph_page(view: GraphView, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """The page as HTML; ``facts`` are label and value pairs printed above the picture."""
    drawn = _strongest(view)
    path = sorted((node for node in view.nodes if node.visited is not None), key=lambda n: n.visited or 0)
    about = [*facts, ("graph", _sizes(view, len(drawn)))]
    if view.outcome:
        about.append(("path", f"{len(path)} nodes read; {view.outcome}"))
    data = [{"id": node.id, "note": node.note, "text": printable(node.text)} for node in view.nodes]
    policy = f"default-src 'none'; style-src {source_hash(STYLE)}; script-src {source_hash(SCRIPT)}"
    return filled(
        _PAGE,
        title=title,
        about=about,
        path=path,
        picture=_svg(view, drawn),
        policy=policy,
        style=STYLE,
        script=SCRIPT,
        nodes=embedded_json(data),
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">
<title>{{ title }}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<h1>{{ title }}</h1>
<dl>{% for label, value in about %}<dt>{{ label }}</dt><dd>{{ value }}</dd>{% endfor %}</dl>
<div id="picture">{{ picture|safe }}</div>
<section id="panel"><h2>Node</h2><p>Point at a node to read it.</p></section>
{% if path -%}
<section id="path"><h2>Path, in reading order</h2><ol>
{%- for node in path -%}
<li value="{{ node.visited }}"><b>{{ node.id }}</b> <i>{{ node.note }}</i><p>{{ node.text }}</p></li>
{%- endfor %}</ol></section>
{% endif -%}
<script type="application/json" id="nodes">{{ nodes|safe }}</script>
<script>{{ script|safe }}</script>
</body>
</html>
"""


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


def _strongest(view: GraphView) -> list[tuple[DrawnEdge, float]]:
    """The edges to draw, each with its strength among its upper node's edges: 0 (mean or below) to 1."""
    of_node: dict[int, list[DrawnEdge]] = {}
    for edge in view.edges:
        of_node.setdefault(edge.upper, []).append(edge)
    each = len(view.edges) if len(view.edges) <= MAX_EDGES else max(1, MAX_EDGES // len(of_node))
    strongest: list[tuple[DrawnEdge, float]] = []
    for edges in of_node.values():
        best = max(edge.weight for edge in edges)
        mean = sum(edge.weight for edge in edges) / len(edges)
        for edge in sorted(edges, key=lambda e: -e.weight)[:each]:
            strongest.append((edge, max(0.0, edge.weight - mean) / (best - mean) if best > mean else 0.5))
    return strongest


def _svg(view: GraphView, drawn: Sequence[tuple[DrawnEdge, float]]) -> str:
    """The picture as SVG: weak edges first, strong ones above them, nodes on top."""
    places, width, height = _layout(view.nodes)
    on_path = {at: node.visited for at, node in enumerate(view.nodes) if node.visited is not None}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="graph">'
    ]
    for level in sorted({node.level for node in view.nodes}):
        y = next(places[at].y for at, node in enumerate(view.nodes) if node.level == level)
        name = f"level {level}" if level > 1 else "chunks"
        parts.append(f'<text class="level" x="{MARGIN}" y="{y + 4:.1f}">{name}</text>')
    ranked = sorted(drawn, key=lambda pair: (_on_path(pair[0], on_path), pair[1]))
    for edge, share in ranked:
        a, b = places[edge.upper], places[edge.lower]
        top, bottom = a.y + NODE_HEIGHT / 2, b.y - NODE_HEIGHT / 2
        kind = "edge path" if _on_path(edge, on_path) else "edge"
        parts.append(
            f'<path class="{kind}" data-a="{edge.upper}" data-b="{edge.lower}" '
            f'd="M{a.x:.1f} {top:.1f}L{b.x:.1f} {bottom:.1f}" '
            f'stroke-width="{0.5 + 2.3 * share:.2f}" stroke-opacity="{0.06 + 0.6 * share**1.5:.2f}">'
            f"<title>{edge.weight:.4f}</title></path>"
        )
    for at, node in enumerate(view.nodes):
        place = places[at]
        kind = "node visited" if node.visited is not None else "node"
        label = node.id.partition(".")[2] or node.id
        badge = ""
        if node.visited is not None:
            badge = f'<circle cx="{NODE_WIDTH}" r="9"/>'
            badge += f'<text class="badge" x="{NODE_WIDTH}" y="3.5">{node.visited}</text>'
        parts.append(
            f'<g class="{kind}" data-n="{at}" tabindex="0" '
            f'transform="translate({place.x - NODE_WIDTH / 2:.1f} {place.y - NODE_HEIGHT / 2:.1f})">'
            f'<rect width="{NODE_WIDTH}" height="{NODE_HEIGHT}" rx="6"/>'
            f'<text x="{NODE_WIDTH / 2}" y="{NODE_HEIGHT / 2 + 4}">{escaped(label)}</text>{badge}'
            f"<title>{escaped(node.id)}: {escaped(_shortened(node.text))}</title></g>"
        )
    parts.append("</svg>")
    return "".join(parts)


def _on_path(edge: DrawnEdge, on_path: dict[int, int]) -> bool:
    """Whether both ends were visited, the upper one first."""
    upper, lower = on_path.get(edge.upper), on_path.get(edge.lower)
    return upper is not None and lower is not None and upper < lower


def _layout(nodes: Sequence[DrawnNode]) -> tuple[list[_Place], float, float]:
    """The centre of every node, and width and height of the picture; rows span its whole width."""
    rows: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        rows.setdefault(node.level, []).append(at)
    widest = max((len(row) for row in rows.values()), default=0)
    inner = max(MIN_WIDTH - LABEL_WIDTH - 2 * MARGIN, widest * (NODE_WIDTH + GAP))
    levels = sorted(rows, reverse=True)
    places = [_Place(0, 0)] * len(nodes)
    for row, level in enumerate(levels):
        step = inner / len(rows[level])
        for column, at in enumerate(rows[level]):
            places[at] = _Place(
                MARGIN + LABEL_WIDTH + step * (column + 0.5), MARGIN + NODE_HEIGHT / 2 + row * ROW_HEIGHT
            )
    height = 2 * MARGIN + NODE_HEIGHT + max(0, len(levels) - 1) * ROW_HEIGHT
    return places, inner + LABEL_WIDTH + 2 * MARGIN, height


def _shortened(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


STYLE = """
:root { --ink: #1c2430; --soft: #66707d; --line: #33507a; --fill: #eef2f7; --mark: #c2410c; --paper: #fff; }
body { margin: 24px; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 20px; margin: 0 0 12px; }
h2 { font-size: 15px; margin: 0 0 6px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0 0 16px; }
dt { color: var(--soft); }
dd { margin: 0; }
#picture { overflow-x: auto; border: 1px solid #d5dbe3; border-radius: 8px; }
svg { display: block; font: 11px system-ui, sans-serif; }
svg text { fill: var(--ink); text-anchor: middle; }
svg text.level { fill: var(--soft); text-anchor: start; font-size: 12px; }
.edge { fill: none; stroke: var(--line); }
.edge.path { stroke: var(--mark); stroke-opacity: .8; }
.edge.near { stroke: #0f766e; stroke-opacity: .9; }
.edge.far { stroke-opacity: .03; }
.node rect { fill: var(--fill); stroke: #9aa7b8; }
.node.visited rect { fill: #fde4d3; stroke: var(--mark); stroke-width: 1.5; }
.node circle { fill: var(--mark); }
svg text.badge { fill: #fff; font-size: 10px; font-weight: 600; }
.node { cursor: pointer; outline: none; }
.node.here rect { stroke: var(--ink); stroke-width: 2.5; }
#panel { position: sticky; bottom: 0; max-height: 34vh; overflow-y: auto; margin: 16px 0; padding: 10px 14px;
  border: 1px solid #d5dbe3; border-radius: 8px; background: #fffdf7; }
#panel p, #path p { margin: 2px 0 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
#path i, #panel i { color: var(--soft); font-style: normal; }
"""

SCRIPT = """
"use strict";
const nodes = JSON.parse(document.getElementById("nodes").textContent);
const panel = document.getElementById("panel");
const edges = Array.from(document.querySelectorAll(".edge"));
const boxes = Array.from(document.querySelectorAll(".node"));
let pinned = null;
function show(box) {
  const at = box.dataset.n, node = nodes[Number(at)];
  const head = document.createElement("h2");
  const note = document.createElement("i");
  const text = document.createElement("p");
  head.textContent = "Node " + node.id;
  note.textContent = node.note;
  text.textContent = node.text;
  panel.replaceChildren(head, note, text);
  for (const other of boxes) other.classList.toggle("here", other === box);
  for (const edge of edges) {
    const near = edge.dataset.a === at || edge.dataset.b === at;
    edge.classList.toggle("near", near);
    edge.classList.toggle("far", !near);
  }
}
function clear() {
  for (const box of boxes) box.classList.remove("here");
  for (const edge of edges) edge.classList.remove("near", "far");
}
for (const box of boxes) {
  box.addEventListener("mouseenter", () => { if (!pinned) show(box); });
  box.addEventListener("mouseleave", () => { if (!pinned) clear(); });
  box.addEventListener("focus", () => { if (!pinned) show(box); });
  box.addEventListener("click", () => {
    pinned = pinned === box ? null : box;
    if (pinned) show(box); else clear();
  });
}
"""
