import csv

import pytest

from bench.errors import DataError
from performance.real_comparisons import FILE, FOLDER, answers, line

GRAPHS = "hotpotqa", "PECAN in one turn t_p 8", "PECAN in two turns t_p 8"


def test_what_is_published_is_what_the_published_records_give() -> None:
    (_, *published), recorded = csv.reader(FILE.read_text("utf-8").splitlines()), answers(FOLDER)
    for row in (*published[::25], line(recorded, *GRAPHS)):
        assert line(recorded, *row[:3]) == row and row in published
    assert row[3] == "104"  # of 134: two ways of PECAN are compared where both searched one graph
    with pytest.raises(DataError, match="P2: nothing recorded of it on musique. What is: Full"):
        line(recorded, "musique", "PECAN", "P2")
