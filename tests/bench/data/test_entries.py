"""Containers: every way in which entries lie in a file, and every way in which a file is damaged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bench.data import entries
from bench.data.entries import Entry, Problem, container_of, read_entries
from bench.errors import DataError
from tests.bench.data.files_of_every_kind import parquet


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "data.bin"  # the name says nothing: content alone decides
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path) -> tuple[list[Entry], list[Problem]]:
    items = list(read_entries(path, container_of(path)))
    return [i for i in items if isinstance(i, Entry)], [i for i in items if isinstance(i, Problem)]


A, B = {"a": 1, "text": "x\ny"}, {"a": 2, "text": "„ü“ \U0001f600"}
AB = [A, B]


@pytest.mark.parametrize(
    ("content", "container", "places"),
    [
        ("\n".join(map(json.dumps, AB)) + "\n", "JSON lines", [1, 2]),
        ("\n\r\n".join(map(json.dumps, AB)), "JSON lines", [1, 3]),
        ("\n".join(json.dumps(x, ensure_ascii=False) for x in AB), "JSON lines", [1, 2]),
        (json.dumps(AB), "JSON array", [1, 2]),
        (json.dumps(AB, indent=2), "JSON array", [1, 2]),
        ("\n  " + "\n\n".join(json.dumps(x, indent=1) for x in AB), "JSON objects", [1, 2]),
        (json.dumps({"p": A, "q": B}), "JSON objects", [1, 2]),
        (json.dumps({"p": A, "q": B}, indent=1), "JSON objects", [1, 2]),
    ],
)
def test_entries_and_their_lines(tmp_path: Path, content: str, container: str, places: list[int]) -> None:
    path = write(tmp_path, content)
    assert container_of(path) == container
    items, problems = read(path)
    assert [entry.value for entry in items] == AB
    assert [entry.place.number for entry in items] == places
    assert [entry.position for entry in items] == [0, 1]
    assert problems == []


@pytest.mark.parametrize("header", ["question,answers,source page", "No. of it,Question,", "Größe;question"])
def test_a_table_with_questions_is_csv_whatever_its_other_columns_are(tmp_path: Path, header: str) -> None:
    assert container_of(write(tmp_path, header + "\nWhen?,now,3\n")) == "CSV"


def test_csv_knows_the_first_line_of_each_row(tmp_path: Path) -> None:
    path = write(tmp_path, 'id,text\n1,"two\nlines"\n2,"a ""quoted"" word"\n')
    assert container_of(path) == "CSV"
    items, problems = read(path)
    assert [entry.value for entry in items] == [
        {"id": "1", "text": "two\nlines"},
        {"id": "2", "text": 'a "quoted" word'},
    ]
    assert [entry.place.number for entry in items] == [2, 4]
    assert problems == []


def test_csv_may_begin_and_end_with_empty_rows(tmp_path: Path) -> None:
    """The first was taken for the header, the last, as Excel writes it, for a row without a question."""
    items, problems = read(write(tmp_path, "\n \r\nquestion;answer\nWhen?;now\n; \n \n"))
    assert [(one.value, one.place.number) for one in items] == [({"question": "When?", "answer": "now"}, 4)]
    assert problems == []


def test_byte_order_mark_is_skipped_with_a_warning(tmp_path: Path) -> None:
    for content in ('{"a": 1}\n{"a": 2}', '[{"a": 1}]', "a,b\n1,2\n"):
        items, problems = read(write(tmp_path, b"\xef\xbb\xbf" + content.encode()))
        assert items[0].value["a"] in (1, "1")
        assert [(p.severity, p.place) for p in problems] == [("warning", f"{tmp_path / 'data.bin'}:1")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(OBJECTS, st.sampled_from([None, 2]), st.booleans())
def test_what_json_wrote_is_read_back(parts: list[dict[str, Any]], indent: int | None, array: bool) -> None:
    values = [{**part, "number": number} for number, part in enumerate(parts)]
    content = "\n".join(json.dumps(value, indent=indent) for value in values)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), json.dumps(values, indent=indent) if array else content)
        items = list(read_entries(path, "JSON array" if array else "JSON objects"))
    assert [(e.value, e.place.number) for e in items if isinstance(e, Entry)] == [
        (value, number) for number, value in enumerate(values, start=1)
    ]
    assert len(items) == len(values)


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ('{"a": 1}\n{"a": \n{"a": 3}\n', 2, "not JSON"),
        ('{"a": 1\n{"a": 2}\n{"a": 3}\n', 1, "not JSON"),
        ('{"a": 1}\n{"a": NaN}\n', 2, "NaN is not a JSON value"),
        ('{"a": 1}\n[1]\n', 2, "expected a JSON object, found an array"),
        ('{"a": 1}\n"text"\n', 2, "found a string"),
        ('{"a": 1}\n{"a": 2', 2, "cut off"),
        ('{"a": 1}\n{"a": ' + "[" * 200_000 + "\n", 2, "nested too deeply"),
        (b'{"a": 1}\n{"a": "caf\xe9"}\n', 2, "not UTF-8: byte 0xe9"),
        ("a,b\n1,2\n3\n4,5\n", 3, "1 fields, but the header names 2"),
        ("a,b,a\n1,2,3\n", 1, "its header has 'a' twice"),
        ('a,b\n1,2\n"3,4\n', 3, "not CSV"),
        (b"a,b\n1,2\n3,\xe9\n", 3, "not UTF-8"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, content: str | bytes, line: int, says: str) -> None:
    path = write(tmp_path, content)
    _, problems = read(path)
    assert [p.severity for p in problems] == ["error"]
    assert problems[0].place == f"{path}:{line}"
    assert says in problems[0].message


@pytest.mark.parametrize(
    ("content", "item", "says"),
    [
        ('[{"a": 1}, {"a": }]', 2, "not JSON"),
        ('[{"a": 1}, {"a": -Infinity}]', 2, "not JSON"),
        ('[{"a": 1}, 3]', 2, "expected a JSON object, found a number"),
        ('[{"a": 1}, {"a": 2}', 3, "cut off"),
        ('[{"a": 1}] x', 2, "not JSON"),
        (b'[{"a": 1}, {"a": "\xff"}]', 2, "UTF8"),
        ('[{"a": 1}, {"a": ' + "[" * 100_000, 2, "nested too deeply"),
        ('{\n"p": {"a": 1},\n"q" {"a": 2}}', 2, "not JSON"),
    ],
)
def test_damage_in_json_is_named_by_item(tmp_path: Path, content: str | bytes, item: int, says: str) -> None:
    path = write(tmp_path, content)
    items, (problem,) = read(path)
    assert problem.place == f"{path}: item {item}" and says in problem.message
    assert len(items) == item - 1


def test_json_lines_go_on_after_a_damaged_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": 1\n{"a": 2}\nnot json\n{"a": 4}\n')
    items, problems = read(path)
    assert [entry.value["a"] for entry in items] == [2, 4]
    assert [problem.place for problem in problems] == [f"{path}:1", f"{path}:3"]


def test_huge_line_is_refused_without_reading_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path, '{"a": 1}\n{"a": "' + "x" * 5000 + '"}\n{"a": 3}\n')
    items, problems = read(path)
    assert [(entry.value["a"], entry.place.number) for entry in items] == [(1, 1), (3, 3)]
    assert problems[0].place == f"{path}:2"
    assert "longer than" in problems[0].message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf \n\n", "the file is empty"),
        (b"\x1f\x8b\x08\x00rest", "compressed"),
        (b"PK\x03\x04rest", "compressed"),
        (b"7z\xbc\xaf\x27\x1crest", "compressed"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
        ("question,documents\nw,d\n".encode("utf-16"), "UTF-16"),
        (b"Call me Ishmael. Some years ago\n", "neither JSON nor CSV"),
        (b"\x00\x01\x02", "neither JSON nor CSV"),
    ],
)
def test_what_is_no_container(tmp_path: Path, content: bytes, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=says) as error:
        container_of(path)
    assert str(error.value).startswith(str(path))


def test_parquet_rows_and_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows[v2]"  # no pattern of names
    rows = [{"id": "a", "parts": [{"x": 1}, {"x": 2}]}, {"id": "b", "parts": []}]
    path.write_bytes(parquet(rows))
    items, problems = read(path)
    assert [entry.value for entry in items] == rows
    assert str(items[1].place) == f"{path}: row 2"
    assert problems == []
    path.write_bytes(path.read_bytes()[:-20])
    items, problems = read(path)
    assert items == []
    assert "not readable as parquet" in problems[0].message
    path.write_bytes(parquet([{"question": [None] * 10_000_001}]))
    items, problems = read(path)
    assert items == [] and "more than 10,000,000 values in a row group" in problems[0].message
