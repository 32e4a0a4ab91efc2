from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from bench.method.graph_view import DrawnEdge, DrawnNode, GraphView
from bench.report.graph_page import MAX_EDGES, graph_page
from bench.tables.html_text import own_file

STYLE, SCRIPT = (own_file("bench.report", f"graph.{kind}") for kind in ("css", "js"))
HOSTILE = (
    '</script><script>alert(1)</script><img src=x onerror="alert(2)">',
    "<!-- <script> ]]> </title></svg></style><style>@import url(//evil)</style>",
    "\" onmouseover='alert(3)' x=\"",
    "javascript:alert(4) &lt;script&gt; \u2028 \u0000 \ud800 \ufffe \x1b[31m",
    "<svg/onload=alert(5)>{{constructor.constructor('alert(6)')()}}",
)


class Seen(HTMLParser):
    """Every tag with its attributes, and the text of the data element."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text += data


def view_of(*texts: str) -> GraphView:
    nodes = tuple(
        DrawnNode(f"1.{n}{text}", 1, text, f"note {text}", n if n < 3 else None)
        for n, text in enumerate(texts, start=1)
    )
    return GraphView((*nodes, DrawnNode("2.1", 2, "above")), (DrawnEdge(len(nodes), 0, 1.0),), texts[0])


@pytest.fixture(scope="module")
def hostile() -> Seen:
    page = graph_page(view_of(*HOSTILE), HOSTILE[0], [("question", HOSTILE[1]), (HOSTILE[2], HOSTILE[3])])
    page.encode("utf-8")
    return Seen(page)


def test_no_text_becomes_an_element_or_an_attribute(hostile: Seen) -> None:
    plain = Seen(graph_page(view_of(*"abcde"), "a", [("question", "b"), ("c", "d")]))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert [set(attrs) for _, attrs in hostile.tags] == [set(attrs) for _, attrs in plain.tags]
    assert not any(name.startswith("on") for _, attrs in hostile.tags for name in attrs)
    assert not {"src", "href", "style", "action"} & {name for _, attrs in hostile.tags for name in attrs}


def test_the_texts_are_shown_as_they_are(hostile: Seen) -> None:
    for text in (HOSTILE[0], HOSTILE[1]):
        assert text in hostile.text
    data, script = hostile.scripts
    assert [node["text"] for node in json.loads(data)][:3] == list(HOSTILE[:3])
    assert script == SCRIPT


def test_the_page_may_run_its_own_script_only_and_loads_nothing(hostile: Seen) -> None:
    (policy,) = [attrs["content"] for _, attrs in hostile.tags if "http-equiv" in attrs]
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for source in (STYLE, SCRIPT):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", graph_page(view_of("a"), "t"))


def test_levels_are_rows_and_the_path_is_numbered() -> None:
    nodes = (
        DrawnNode("1.1", 1, "left", visited=2),
        DrawnNode("1.2", 1, "right"),
        DrawnNode("2.1", 2, "above", visited=1),
    )
    page = graph_page(GraphView(nodes, (DrawnEdge(2, 0, 0.75), DrawnEdge(2, 1, 0.25)), "the end"), "T")
    places = {
        n: tuple(map(float, at))
        for n, *at in re.findall(r'data-n="(\d)".*?translate\(([\d.]+) ([\d.]+)\)', page)
    }
    assert places["0"][1] == places["1"][1] > places["2"][1] and places["0"][0] < places["1"][0]
    edges = dict(re.findall(r'<path class="(edge[^"]*)" data-a="2" data-b="(\d)"', page))
    assert edges == {"edge path": "0", "edge": "1"}
    assert 'class="badge" x="34" y="3.5">1<' in page and "2 nodes read; the end" in page
    assert page.index("<b>2.1</b>") < page.index("<b>1.1</b>")


def test_the_stronger_edge_is_the_thicker_line() -> None:
    nodes = tuple(DrawnNode(f"{level}.{n}", level, "x") for level, n in ((1, 1), (1, 2), (2, 1)))
    page = graph_page(GraphView(nodes, (DrawnEdge(2, 0, 0.6), DrawnEdge(2, 1, 0.4))), "T")
    width = {b: float(w) for b, w in re.findall(r'data-b="(\d)".*?stroke-width="([\d.]+)"', page)}
    assert width["0"] > width["1"]


def test_a_picture_of_too_many_edges_keeps_the_strongest_and_says_so() -> None:
    n = 100
    nodes = tuple(DrawnNode(f"{level}.{i}", level, "x") for level in (1, 2) for i in range(n))
    edges = tuple(DrawnEdge(n + i, j, (j + 1) / 5050) for i in range(n) for j in range(n))
    page = graph_page(GraphView(nodes, edges), "T")
    assert (
        page.count('class="edge"') == MAX_EDGES and f"{n * n} edges, the strongest {MAX_EDGES} drawn" in page
    )
    drawn = {int(b) for b in re.findall(r'class="edge" data-a="100" data-b="(\d+)"', page)}
    assert drawn == set(range(40, 100))


def test_a_graph_without_nodes_is_a_page_that_says_so() -> None:
    assert "the document has no text" in graph_page(GraphView((), ()), "T")
