from __future__ import annotations

import re

import pytest

from bench.figures import Drawn, distribution
from bench.report.picture import inline_svg


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return distribution({"qasper": [1, 3, 3]}, {"qasper": "<qasper> & more"}, "note")


def test_a_picture_needs_no_inline_style_and_loads_nothing(drawn: Drawn) -> None:
    svg = inline_svg(drawn.picture("svg"), "fig3", 'say "this" <now>')
    assert svg.startswith("<svg ") and 'aria-label="say &quot;this&quot; &lt;now&gt;"' in svg
    assert not re.search(r"style|<!--|<metadata|http(?!://www\.w3\.org/)|<a\b|<script|<\?xml", svg)
    assert re.search(r'stroke="#222222"|stroke="#000000"', svg), "the styles became attributes"


def test_pictures_on_one_page_share_no_id_and_point_at_their_own(drawn: Drawn) -> None:
    content = drawn.picture("svg")
    ids = {}
    for prefix in ("one", "two"):
        svg = inline_svg(content, prefix, "x")
        found = re.findall(r'\bid="([^"]+)"', svg)
        used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
        assert {a or b for a, b in used} == set(found) and len(found) == len(set(found)) > 0
        ids[prefix] = set(found)
    assert not ids["one"] & ids["two"]


def test_another_svg_is_refused() -> None:
    with pytest.raises(ValueError, match="no viewBox"):
        inline_svg(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "x", "x")
