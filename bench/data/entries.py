"""Raw entries of a file: JSON lines, a JSON array, concatenated JSON objects, CSV or parquet.

What an entry *means* is up to :mod:`bench.data.formats`; here a file becomes a stream of raw entries,
each with its place. A part that cannot be read becomes a :class:`Problem` in the stream, so that
loading can stop at the first one and checking can list them all. Every container is streamed: only one entry
is in memory at a time, and one beyond a limit is refused before it is built. An entry of a line or CSV row is
named by its line, any other by its number.
"""

from __future__ import annotations

import csv
import glob
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import ijson

from bench.errors import DataError
from bench.schema import JsonValue

Container = Literal["JSON lines", "JSON array", "JSON objects", "CSV", "parquet"]

MAX_LINE_BYTES = 64 * 2**20
"""Longest accepted line or CSV field: ten times the longest NarrativeQA story, and no memory trap."""
MAX_VALUES = 500_000
"""Most values of one entry: a hundred times a transcript's turns.  # our choice"""
_MAX_COLUMN = 20 * MAX_VALUES
"""Most values of a parquet column in a row group, which is read at once."""
_MAX_DEPTH = 200
"""Deepest nesting of a JSON value that is read."""
_PIECE = 4 * 2**20
"""Bytes of a JSON file that are parsed at once; a long text is scanned again with each further piece."""
_BOM = b"\xef\xbb\xbf"
ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!")
"""How compressed files begin."""


@dataclass(frozen=True)
class Place:
    """Where an entry is: its line, the row of a parquet file, or its number in a JSON value, from 1."""

    path: Path
    number: int
    unit: Literal["line", "row", "item"] = "line"

    def __str__(self) -> str:
        if self.unit == "line":
            return f"{self.path}:{self.number}"
        return f"{self.path}: {self.unit} {self.number}"


@dataclass(frozen=True)
class Entry:
    """One raw entry: an object with named fields."""

    value: dict[str, JsonValue]
    place: Place
    position: int
    """Index of the entry in its file, from 0."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with the data: where, what, and whether the data are still usable."""

    place: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


_CSV_HEADER = (
    rb'"?[A-Za-z_]\w*"?([,;\t]"?[A-Za-z_]\w*"?)+\r?\n'
    rb'|([^\r\n]*[,;\t] *)?"?question"? *([,;\t][^\r\n]*)?\r?\n'
)
"""Names alone, or any fields with ``question`` among them."""


def container_of(path: Path) -> Container:
    """The container format of a file, detected from its content alone.

    Raises DataError for a file that is empty, compressed, not UTF-8, or plain text.
    """
    with _opened(path) as file:
        head = file.read(2**16)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(ARCHIVES):
        raise DataError(f"{path}: a compressed file; unpack it and pass the file inside.")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}:1: UTF-16 text; save it as UTF-8.")
    start = head.removeprefix(_BOM).lstrip()
    if not start:
        raise DataError(f"{path}:1: the file is empty; expected at least one example.")
    if start.startswith(b"["):
        return "JSON array"
    if start.startswith(b"{"):
        return _lines_or_objects(path)
    if re.match(_CSV_HEADER, start, re.IGNORECASE):
        return "CSV"
    raise DataError(
        f"{path}:1: neither JSON nor CSV with a header line; it starts with "
        f'{start[:40].decode(errors="replace")!r}. To ask about a document: bench ask "QUESTION" {path}. '
        "To make a data set of documents: put them into a folder with a questions.csv."
    )


def read_entries(path: Path, container: Container) -> Iterator[Entry | Problem]:
    """The entries of a file in order; a part that cannot be read is yielded as a Problem."""
    reader = {
        "JSON lines": _json_lines,
        "JSON array": _json_values,
        "JSON objects": _json_values,
        "CSV": _csv_rows,
        "parquet": _parquet_rows,
    }[container]
    if container != "parquet":
        with _opened(path) as file:
            if file.read(3) == _BOM:
                yield Problem(f"{path}:1", "starts with a byte order mark, which was skipped", "warning")
    yield from reader(path)


# --- JSON lines ---------------------------------------------------------------------------------


def _json_lines(path: Path) -> Iterator[Entry | Problem]:
    position = 0
    with _opened(path) as file:
        for number, line in enumerate(_lines(file), start=1):
            place = Place(path, number)
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.strip():
                continue
            if len(line) > MAX_LINE_BYTES:
                yield Problem(str(place), _TOO_LONG)
                continue
            if _has_too_many_values(line):
                yield Problem(str(place), _TOO_MANY)
                continue
            try:
                value = _decode_json(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                yield Problem(str(place), _not_utf8(error))
                continue
            except ValueError as error:
                cut = "" if line.endswith(b"\n") else " (the file ends here: is it cut off?)"
                yield Problem(str(place), f"not JSON: {error}{cut}; repair or remove the line")
                continue
            if isinstance(value, dict):
                yield Entry(value, place, position)
                position += 1
            else:
                yield Problem(str(place), f"expected a JSON object, found {_kind(value)}")


_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_BEFORE_VALUES = (b",", b"[", b"{")
_TOO_LONG = f"longer than {MAX_LINE_BYTES // 2**20} MiB; split or shorten it"
_TOO_MANY = f"one entry of more than {MAX_VALUES:,} values; write a document as one text, or split the entry"


def _has_too_many_values(line: bytes) -> bool:
    """Whether a line of JSON has more values than an entry may have, known before any is built."""
    if sum(map(line.count, _BEFORE_VALUES)) <= MAX_VALUES:  # strings counted too, and so most lines are done
        return False
    return sum(map(_STRING.sub(b"", line).count, _BEFORE_VALUES)) > MAX_VALUES


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines of a file; a line over the limit is cut one byte past it and the rest skipped."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES + 1)


def _lines_or_objects(path: Path) -> Container:
    """JSON lines or JSON objects, for a file that starts with ``{``."""
    with _opened(path) as file:
        lines = (line.removeprefix(_BOM).strip() for line in _lines(file))
        first = next(line for line in lines if line)
        if len(first) > MAX_LINE_BYTES or _has_too_many_values(first) or _object_in(first) is not None:
            return "JSON objects" if _entry_level(path) else "JSON lines"
        if first == b"{":
            return "JSON objects"
        following = [bool(_object_in(line)) for line in islice(lines, 50) if line]
        # The first line is damaged; alone, or before a line with a complete object, it is one of JSON lines.
        return "JSON lines" if not following or any(following) else "JSON objects"


def _object_in(line: bytes) -> dict[str, JsonValue] | None:
    try:
        value = None if _has_too_many_values(line) else _decode_json(line.decode("utf-8"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# --- JSON values: one array, or concatenated objects --------------------------------------------


def _json_values(path: Path) -> Iterator[Entry | Problem]:
    """Entries of an array, of one object that maps names to entries, or of concatenated objects."""
    position = 0
    try:
        with _opened_behind_mark(path) as file:
            for value in _values(_Bounded(file), _entry_level(path)):
                place = Place(path, position + 1, "item")
                if isinstance(value, dict):
                    yield Entry(value, place, position)
                else:
                    yield Problem(str(place), f"expected a JSON object, found {_kind(value)}")
                position += 1
    except _TooLargeError as error:
        yield Problem(str(Place(path, position + 1, "item")), str(error))
    except (ijson.JSONError, ValueError, RecursionError) as error:
        place = Place(path, position + 1, "item")
        cut = " (is the file cut off?)" if "EOF" in str(error) else ""
        yield Problem(str(place), f"not JSON in UTF-8: {_fault(error)}{cut}; repair the file from here on")


class _TooLargeError(Exception):
    """An entry beyond a limit; the message says which one, and what to do."""


class _Bounded:
    """A file that is read no further than an entry may be long; ``used``: bytes since the last one ended."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.used = file, 0

    def read(self, size: int) -> bytes:
        self.used += len(piece := self._file.read(size))
        if self.used > MAX_LINE_BYTES + _PIECE:
            raise _TooLargeError(_TOO_LONG)
        return piece


_DEEPER = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}


def _entry_level(path: Path) -> int:
    """How deep the entries lie: 1 in an array, or in an object that has nothing but objects; else 0."""
    depth = level = 0
    try:
        with _opened_behind_mark(path) as file:
            bounded = _Bounded(file)
            for event, _ in ijson.basic_parse(bounded, multiple_values=True, buf_size=_PIECE):
                if depth == 0 and event == "start_array":
                    return 1
                if depth == 1 and event == "end_map":
                    return level
                if depth == 1 and event == "start_map":
                    level, bounded.used = 1, 0
                elif depth == 1 and event != "map_key":
                    return 0
                depth += _DEEPER.get(event, 0)
    except (ijson.JSONError, ValueError, _TooLargeError):
        pass  # reading the entries meets the same fault and reports it
    return level


def _values(file: _Bounded, level: int) -> Iterator[JsonValue]:
    """The values at a level of concatenated JSON values.

    Half of a surrogate pair, which is no character, becomes a question mark. Raises _TooLargeError, and
    RecursionError for a value that is nested too deeply.
    """
    builder, depth, count = ijson.ObjectBuilder(), 0, 0
    for event, value in ijson.basic_parse(file, multiple_values=True, buf_size=_PIECE):
        step = _DEEPER.get(event, 0)
        if step and min(depth, depth + step) < level:  # what surrounds the entries
            depth += step
            continue
        if event == "map_key" and depth == level:
            continue
        depth += step
        count += event not in ("map_key", "end_map", "end_array")
        if depth > _MAX_DEPTH:
            raise RecursionError("nested too deeply")
        if count > MAX_VALUES:
            raise _TooLargeError(_TOO_MANY)
        builder.event(event, float(value) if isinstance(value, Decimal) else value)
        if depth <= level:
            yield builder.value
            builder, count, file.used = ijson.ObjectBuilder(), 0, 0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _decode_json(text: str) -> JsonValue:
    """The JSON value of a text; raises ValueError with a readable message for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


# --- CSV ----------------------------------------------------------------------------------------


def _csv_rows(path: Path) -> Iterator[Entry | Problem]:
    csv.field_size_limit(MAX_LINE_BYTES)
    position, line = 0, 1
    with _opened_behind_mark(path) as file:
        first = next(filter(bytes.strip, _lines(file))).decode("utf-8", "replace")
    try:
        with _opened_behind_mark(path) as file:
            delimiter = max(",;\t", key=first.count)
            rows = csv.reader(_csv_lines(file, delimiter.encode()), strict=True, delimiter=delimiter)
            header = next(row for row in rows if any(map(str.strip, row)))
            line = rows.line_num
            if twice := next((name for name in header if name and header.count(name) > 1), ""):
                raise csv.Error(f"its header has {twice!r} twice")
            line += 1
            for row in rows:
                blank = not any(map(str.strip, row))  # such rows end a table of Excel's
                if len(row) == len(header) and not blank:
                    yield Entry(dict(zip(header, row, strict=True)), Place(path, line), position)
                    position += 1
                elif not blank:
                    message = f"{len(row)} fields, but the header names {len(header)}; check its quotes"
                    yield Problem(f"{path}:{line}", message)
                line = rows.line_num + 1
    except _TooLargeError as error:
        yield Problem(f"{path}:{line}", str(error))
    except csv.Error as error:
        yield Problem(f"{path}:{line}", f"not CSV: {error}; repair the file from here on")
    except UnicodeDecodeError as error:
        yield Problem(f"{path}:{rows.line_num + 1}", _not_utf8(error))


def _csv_lines(file: IO[bytes], delimiter: bytes) -> Iterator[str]:
    for line in _lines(file):
        if len(line) > MAX_LINE_BYTES:
            raise _TooLargeError(_TOO_LONG)
        if line.count(delimiter) > MAX_VALUES:
            raise _TooLargeError(_TOO_MANY)
        yield line.decode("utf-8")


# --- parquet ------------------------------------------------------------------------------------


def _parquet_rows(path: Path) -> Iterator[Entry | Problem]:
    import pyarrow.parquet  # it ships no types

    import datasets

    number = 0
    try:
        about = pyarrow.parquet.read_metadata(path)
        groups = map(about.row_group, range(about.num_row_groups))
        columns = (group.column(at) for group in groups for at in range(group.num_columns))
        if any(column.num_values > _MAX_COLUMN for column in columns):
            yield Problem(str(path), f"more than {_MAX_COLUMN:,} values in a row group; write smaller ones")
            return
        rows = datasets.load_dataset(
            "parquet", data_files=glob.escape(str(path)), split="train", streaming=True, batch_size=16
        )
        for number, row in enumerate(rows, start=1):
            yield Entry(row, Place(path, number, "row"), number - 1)
    except (pyarrow.ArrowException, datasets.exceptions.DatasetGenerationError, OSError) as error:
        cause = " ".join(str(error.__cause__ or error).split())
        yield Problem(f"{path}: row {number + 1}", f"not readable as parquet: {cause}; fetch the file again")


# --- error messages -----------------------------------------------------------------------------


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def _opened_behind_mark(path: Path) -> IO[bytes]:
    """The file, read from behind its byte order mark if it has one."""
    file = _opened(path)
    file.seek(len(_BOM) if file.read(len(_BOM)) == _BOM else 0)
    return file


def _not_utf8(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1} of the line; save the file as UTF-8"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _fault(error: Exception) -> str:
    """The first line of a JSON error, whose others show the place."""
    return str(error).removeprefix("b'").partition("\\n")[0].splitlines()[0].rstrip(".")
