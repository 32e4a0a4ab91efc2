"""The page that says what can go wrong names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_every_test_that_the_page_names_exists() -> None:
    page = (REPOSITORY / "docs" / "reliability.md").read_text("utf-8")
    checked = 0
    for line in page.splitlines():
        file = ""
        for named, test, cut in re.findall(r"`(…|[\w/]+\.py)::(test_\w+)(…?)`", line):
            file = file if named == "…" else named
            source = (REPOSITORY / "tests" / file).read_text("utf-8")
            assert re.search(rf"def {test}{'' if cut else chr(92) + 'b'}", source), (file, test)
            checked += 1
    assert checked > 50
