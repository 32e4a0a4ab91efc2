"""A table's rows against one of them, question by question."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bench.errors import ConfigError
from bench.results.finished import read_finished
from bench.run.cell import CellRequest
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row
from bench.tables.paired import ALL, paired_table
from tests import cells
from tests.bench.report.finished import finish

SCORES = {"bm25": (0, 0, 1, 1), "tfidf": (1, 1, 1, 1), "closed_book": (0, 0, 0, 0)}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TableData:
    """Three rows on two data sets, four questions each; the last row has no cell on the second."""
    results = tmp_path_factory.mktemp("results")
    shown = []
    for name, dataset in itertools.product(SCORES, ("hotpotqa", "musique")):
        row = Row(id=name, label=name.upper(), method=name)
        finished = None
        if (name, dataset) != ("closed_book", "musique"):
            cell = finish(results, CellRequest(name, dataset, limit=4), SCORES[name])
            finished = read_finished(cell.folder(results))
        shown.append(TableCell(row, dataset, finished, "" if finished else "not run"))
    return cells.table(*shown, ratio_to="bm25")


def test_every_row_is_compared_on_all_data_sets_and_on_each(table: TableData) -> None:
    lines = {line[0]: line[1:] for line in paired_table(table).rows}
    assert [label.partition(":")[0] for label in lines] == [
        *(ALL, ALL), *("hotpotqa (sample)", "hotpotqa (sample)"), "musique (sample)",
    ]  # fmt: skip
    own, reference, difference, counts, p, _, could_show, cost, n = lines[f"{ALL}: TFIDF"]
    assert (own, reference, counts, cost, n) == ("100.0", "50.0", "4, 4, 0", "1.00", "8")
    assert difference.startswith("+50.0 [")
    assert float(p) == pytest.approx(2 / 2**4) and float(could_show) > 0  # 4 documents that differ, both ways
    assert lines[f"{ALL}: CLOSED_BOOK"][2].startswith("−50.0")
    assert lines[f"{ALL}: CLOSED_BOOK"][-1] == "4"  # of one data set


def test_a_row_may_be_against_another_one_than_the_tables(table: TableData) -> None:
    *rows, last = table.definition.rows
    rows.append(last.model_copy(update={"against": "tfidf"}))
    other = TableData(table.definition.model_copy(update={"rows": tuple(rows)}), table.cells)
    lines = {line[0]: line[1:] for line in paired_table(other).rows}
    (label,) = (label for label in lines if label.startswith(f"{ALL}: CLOSED_BOOK, against TFIDF"))
    assert lines[label][:2] == ("0.0", "100.0")
    assert any(label.endswith("TFIDF, against BM25") for label in lines)
    rows[-1] = rows[-1].model_copy(update={"against": "nothing"})
    with pytest.raises(ConfigError, match="no row nothing"):
        paired_table(TableData(table.definition.model_copy(update={"rows": tuple(rows)}), table.cells))


def test_p_values_are_corrected_for_the_number_of_rows(table: TableData) -> None:
    rows = {line[0]: line for line in paired_table(table).rows}
    p, adjusted = rows[f"{ALL}: TFIDF"][5:7]
    assert float(adjusted) == pytest.approx(min(1, 2 * float(p)))  # the smallest of two
    p, adjusted = rows["musique (sample): TFIDF"][5:7]
    assert adjusted == p  # the only one
    assert any(line.startswith("Reader: ") for line in paired_table(table).brief), "on a terminal, too"


def test_one_data_set_has_no_lines_over_all(table: TableData) -> None:
    one = replace(table, definition=table.definition.model_copy(update={"datasets": ("musique",)}))
    assert [line[0] for line in paired_table(one).rows] == ["musique (sample): TFIDF"]
    bare = dict(table.cells)  # the other without references, which took the whole table down
    for at in (at for at in bare if at[1] == "hotpotqa" and bare[at].finished):
        summary = bare[at].finished.summary.model_copy(update={"n_unscored": 4})
        bare[at] = replace(bare[at], finished=replace(bare[at].finished, summary=summary))
    assert paired_table(replace(table, cells=bare)).rows == paired_table(one).rows


def test_a_table_without_a_row_to_compare_with_refuses(table: TableData) -> None:
    without = replace(table, definition=table.definition.model_copy(update={"ratio_to": None}))
    with pytest.raises(ConfigError, match="ratio_to"):
        paired_table(without)
