from __future__ import annotations

import pytest

from bench.metrics.yes_no import only_yes_or_no


@pytest.mark.parametrize(
    ("answer", "question", "expected"),
    [
        ("Yes", "Who hid the kite?", True),
        ("no.", "In what year did Otto sell the mill?", True),
        ("Yes, Mara.", "Who hid the kite?", False),
        ("Mara", "Who hid the kite?", False),
        ("Yes", "Were Mara and Otto of the same town?", False),
        ("Yes", "Did the man who sold the mill return?", False),
        ("No", "The mill and the kite, are both red?", False),  # no question word
        ("Yes", "", False),
    ],
)
def test_a_bare_yes_is_seen_where_another_thing_was_asked(answer: str, question: str, expected: bool) -> None:
    assert only_yes_or_no(answer, question) is expected
