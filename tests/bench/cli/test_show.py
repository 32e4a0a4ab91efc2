"""``bench show``: what it prints of a record."""

from __future__ import annotations

from bench.cli.show import describe_record
from tests.bench.results.test_records import record


def test_further_answers_are_shown_below_the_first_one() -> None:
    several = record("a", "one").model_copy(update={"drawn": ["two", "three"]})
    lines = describe_record(several).splitlines()
    at = lines.index("prediction  one")
    assert lines[at + 1 : at + 3] == ["drawn       two", "drawn       three"]
    assert "drawn" not in describe_record(record("a", "one"))
