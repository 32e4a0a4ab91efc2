from __future__ import annotations

from bench.schema import Document, DocumentSet
from bench.tables.definition import load_table
from bench.tables.lengths import lengths_table, token_lengths


def test_every_document_set_counts_once_and_documents_add_up() -> None:
    one, two = Document("", "a b c"), Document("t", "d")
    sets = [DocumentSet((one,)), DocumentSet((one, two)), DocumentSet((one,))]
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    assert token_lengths(sets, count) == [3, 5]
    assert counted == ["a b c", "t\nd"]  # each document once


def test_the_sample_sets_have_their_rows_beside_the_published_lengths() -> None:
    definition = load_table("tableA3").on("sample", ("qasper", "hotpotqa"))
    table = lengths_table(definition, "tiny", "sample", 8)
    assert [row[:3] for row in table.rows] == [("qasper (sample)", "8", "2"), ("hotpotqa (sample)", "8", "8")]
    assert table.columns[-3:] == ("mean publ.", "shortest publ.", "longest publ.")
    assert table.rows[1][-3:] == ("1,318", "70", "3,575") and 250 < int(table.rows[1][3]) < 450
    assert "quarter scale" in table.caption[0]
