from __future__ import annotations

from pathlib import Path

import pytest

from bench.schema import Document, DocumentSet
from bench.tables.definition import load_table
from bench.tables.formats import TextTable
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


def test_measured_lengths_are_kept_and_rendering_alone_never_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(limit: int, measure: bool) -> TextTable:
        definition = load_table("tableA3").on("sample", ("hotpotqa",))
        return lengths_table(definition, "tiny", "sample", limit, tmp_path, measure)

    unmeasured = table(4, measure=False)
    assert unmeasured.rows[0][2:9] == ("–",) * 7
    assert unmeasured.notes == ("Not measured yet: hotpotqa (sample).",)
    measured = table(4, measure=True)

    def refuse(spec: object) -> None:
        raise AssertionError("a tokenizer was loaded")

    monkeypatch.setattr("bench.models.loader.load_tokenizer", refuse)
    assert table(4, measure=False) == table(4, measure=True) == measured
    assert table(5, measure=False).notes  # other documents, other lengths
    with pytest.raises(AssertionError, match="tokenizer"):
        table(5, measure=True)
