from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.results.json_lines import valid_rows
from bench.results.records import Record, RecordStore, load_records, read_records
from tests import cells


def record(example_id: str, prediction: str | None = "x", error: str | None = None) -> Record:
    question = "q – “é” \U0001f9c1"
    return cells.record(
        example_id=example_id, question=question, prediction=prediction, error=error, scores={"f1": 0.0}
    )


def test_appended_records_are_read_back(tmp_path: Path) -> None:
    written = [record("a"), record("b", None, "ValueError: no")]
    with RecordStore(tmp_path) as store:
        for one in written:
            store.append(one)
    assert list(read_records(tmp_path / "records.jsonl")) == written
    with RecordStore(tmp_path) as store:
        assert set(store.done) == {"a", "b"}


def test_a_file_that_was_cut_at_any_byte_of_its_last_line_ends_as_an_undisturbed_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its newline alone included: the next record would stand on the same line, and both would be lost."""
    path = tmp_path / "records.jsonl"
    first, second = (record(name).to_line().encode() for name in "ab")
    for kept in range(len(second)):
        path.write_bytes(first + second[:kept])
        assert [row.example_id for row in valid_rows(path, Record)] == ["a"], f"{kept} bytes are no record"
        with RecordStore(tmp_path) as store:
            assert list(store.done) == ["a"]
            store.append(record("b"))
        assert path.read_bytes() == first + second, f"cut after {kept} of {len(second)} bytes"
        assert ("1 incomplete line" in caplog.text) == (kept > 0)


def test_reading_alone_leaves_a_damaged_line_out_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A comparison would be of fewer questions than its reader thinks; a line still being written is none."""
    path = tmp_path / "records.jsonl"
    for middle, said in ((b"{}\n", "1 damaged line"), (b"", "")):
        caplog.clear()
        path.write_bytes(record("a").to_line().encode() + middle + b'{"example_id": "b"')
        assert [row.example_id for row in valid_rows(path, Record)] == ["a"]
        assert said in caplog.text and bool(said) == bool(caplog.text)


def test_lines_that_were_cut_are_set_aside_one_below_the_other(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for kept in (30, 50):
        path.write_bytes(record("a").to_line().encode()[:kept])
        with RecordStore(tmp_path) as store:
            assert not store.done
    aside = (tmp_path / "records.damaged.jsonl").read_bytes()
    assert [len(line) for line in aside.splitlines()] == [30, 50]


def test_of_two_records_of_one_question_the_last_one_stays_in_the_file(tmp_path: Path) -> None:
    """Whoever reads the file line by line would see the question twice."""
    path = tmp_path / "records.jsonl"
    path.write_text("".join(record(*row).to_line() for row in (("a", "old"), ("b", "x"), ("a", "new"))))
    assert [row.prediction for row in load_records(tmp_path)] == ["new", "x"]
    with RecordStore(tmp_path) as store:
        assert store.done["a"].prediction == "new"
    assert {row.example_id: row.prediction for row in read_records(path)} == {"a": "new", "b": "x"}
    assert len(path.read_text().splitlines()) == 2 and not (tmp_path / "records.damaged.jsonl").exists()


def test_a_damaged_line_in_the_middle_is_set_aside(tmp_path: Path) -> None:
    with RecordStore(tmp_path) as store:
        for name in "abc":
            store.append(record(name))
    path = tmp_path / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"example_id": "b", \xff\n' + lines[2])
    with RecordStore(tmp_path) as store:
        assert list(store.done) == ["a", "c"]
    assert b"\xff" in (tmp_path / "records.damaged.jsonl").read_bytes()
    assert [r.example_id for r in read_records(path)] == ["a", "c"]


def test_reading_a_damaged_file_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(record("a").to_line() + '{"example_id": 3}\n')
    with pytest.raises(BenchError, match=r"records\.jsonl:2: not a record"):
        list(read_records(path))


def test_put_in_order_leaves_no_trace_of_the_order_of_finishing(tmp_path: Path) -> None:
    with RecordStore(tmp_path) as store:
        for name in "cab":
            store.append(record(name))
        store.put_in_order(["a", "b", "c"])
        store.append(record("d"))
    assert [r.example_id for r in read_records(tmp_path / "records.jsonl")] == ["a", "b", "c", "d"]


def test_field_names_are_the_published_schema() -> None:
    text = (Path(__file__).parents[3] / "docs" / "records.md").read_text("utf-8")
    for name in Record.model_fields:
        assert f"`{name}`" in text, f"docs/records.md does not describe {name}"
    line = json.loads(record("a").to_line())
    assert set(line) == set(Record.model_fields)
    assert set(line["tokens"]) == {"prompt", "completion", "forwarded", "computed"}
    assert {"query", "index"} <= set(line["flops"])
