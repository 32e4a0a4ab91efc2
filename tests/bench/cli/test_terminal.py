"""Output for people: what fits the width of a terminal, and what stays plain in a pipe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench.cli.terminal import WIDE, column_groups, print_columns, print_labelled, print_table
from bench.tables.formats import Section, TextTable

TABLE = TextTable(
    id="t",
    title="A table",
    columns=("Method", "F1", "TFLOPs", "F1 publ.", "TFLOPs publ."),
    sections=(Section("hotpotqa", (("BM25 [top] k", "71.9 [58.3, 83.3]", "0.00418", "40.8", "22.9"),)),),
    caption=("First.", "Second.", "Third."),
    notes=("BM25: cut: 2 of 4.", "failed and scored 0: 1 of 4."),
    spans=(("measured", 2), ("published", 2)),
    brief=("Reader: tiny.", "failed and scored 0: 1 of 4."),
)


def console(width: int) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=width, highlight=False), written


def test_a_wide_table_stands_in_one_piece_and_a_narrow_one_breaks_between_ours_and_the_published() -> None:
    rows = [TABLE.columns, *TABLE.sections[0].rows]
    assert column_groups(TABLE, rows, 100) == [[0, 1, 2, 3, 4]]
    assert column_groups(TABLE, rows, 50) == [[0, 1, 2], [0, 3, 4]]
    assert column_groups(TABLE, rows, 20) == [[0, 1], [0, 2], [0, 3], [0, 4]]


@pytest.mark.parametrize("width", [45, 80, 120])
def test_a_table_is_no_wider_than_the_terminal_and_names_the_file_with_the_rest(width: int) -> None:
    screen, written = console(width)
    print_table(screen, TABLE, Path("results/tables/t.md"))
    text = written.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for part in ("A table", "hotpotqa", "BM25 [top] k", "71.9 [58.3, 83.3]", "Reader: tiny.", "failed and"):
        assert part in text
    assert "Third." not in text
    assert "Whole caption and 1 more note: results/tables/t.md" in " ".join(text.split())


def test_nothing_is_wrapped_in_a_pipe_or_padded() -> None:
    screen, written = console(WIDE)
    print_labelled(screen, text := "prediction  " + "word " * 3000 + ".")
    assert written.getvalue() == text + "\n"


def test_two_answers_stand_side_by_side() -> None:
    screen, written = console(60)
    print_columns(screen, ("pecan", "bm25:k=5"), {"answer": ("a golden coin of the teacher", "a brooch")})
    heads, first, second = (line.split() for line in written.getvalue().splitlines())
    assert heads == ["pecan", "bm25:k=5"]
    assert first[0] == "answer" and first[-2:] == ["a", "brooch"] and second == ["teacher"]
