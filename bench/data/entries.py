"""Raw entries of a file: JSON lines, a JSON array, concatenated JSON objects, CSV or parquet.

What an entry *means* is up to :mod:`bench.data.formats`; here a file becomes a stream of raw entries,
each with its place. A part that cannot be read becomes a :class:`Problem` in the stream, so that
loading can stop at the first one and checking can list them all. Lines, arrays, CSV and parquet are
streamed: only one entry is in memory at a time.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from bench.errors import DataError
from bench.schema import JsonValue

Container = Literal["JSON lines", "JSON array", "JSON objects", "CSV", "parquet"]

MAX_LINE_BYTES = 64 * 2**20
"""Longest accepted line or CSV field: ten times the longest NarrativeQA story, and no memory trap."""
_READ_CHARS = 2**20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Place:
    """Where an entry begins: a line (or parquet row), counted from 1."""

    path: Path
    number: int
    unit: Literal["line", "row"] = "line"
    item: int | None = None
    """Number of the entry, from 1, if one line holds several."""

    def __str__(self) -> str:
        place = f"{self.path}:{self.number}" if self.unit == "line" else f"{self.path}: row {self.number}"
        return place if self.item is None else f"{place} (item {self.item})"


@dataclass(frozen=True)
class Entry:
    """One raw entry: an object with named fields."""

    value: dict[str, JsonValue]
    place: Place
    position: int
    """Index of the entry in its file, from 0."""
    key: str = ""
    """Key of the entry in a surrounding object, such as a Qasper paper id."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with the data: where, what, and whether the data are still usable."""

    place: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def container_of(path: Path) -> Container:
    """The container format of a file, detected from its content alone.

    Raises DataError for a file that is empty, compressed, not UTF-8, or plain text.
    """
    with _opened(path) as file:
        head = file.read(2**16)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd")):
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
    if re.match(rb'"?[A-Za-z_]\w*"?([,;\t]"?[A-Za-z_]\w*"?)+\r?\n|"?question"?\r?\n', start, re.IGNORECASE):
        return "CSV"
    raise DataError(
        f"{path}:1: neither JSON nor CSV with a header line; it starts with {_excerpt(start)}. To ask about "
        f'a document: bench ask "QUESTION" {path}. To make a data set of documents: put them into a folder '
        "with a questions.csv."
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
                yield Problem(str(place), f"longer than {MAX_LINE_BYTES // 2**20} MiB; split or shorten it")
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
        value = _object_in(first)
        if value is not None:
            return "JSON objects" if _holds_entries(value) else "JSON lines"
        if first == b"{" or len(first) > MAX_LINE_BYTES:
            return "JSON objects"
        following = (line for _, line in zip(range(50), lines, strict=False))
        # The first line is damaged; a complete object on a later line means JSON lines.
        return "JSON lines" if any(_object_in(line) for line in following) else "JSON objects"


def _object_in(line: bytes) -> dict[str, JsonValue] | None:
    try:
        value = _decode_json(line.decode("utf-8"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _holds_entries(value: dict[str, JsonValue]) -> bool:
    """Whether an object is a collection of named entries rather than an entry itself."""
    return bool(value) and all(isinstance(part, dict) for part in value.values())


# --- JSON values: one array, or concatenated objects --------------------------------------------


class _Malformed(Exception):
    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


def _json_values(path: Path) -> Iterator[Entry | Problem]:
    """Entries of an array, of one object that maps names to entries, or of concatenated objects."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            scanner = _Scanner(file)
            position = 0
            for value, line, key in scanner.entries():
                place = Place(path, line, item=position + 1 if line == 1 else None)
                if isinstance(value, dict):
                    yield Entry(value, place, position, key)
                    position += 1
                else:
                    yield Problem(str(place), f"expected a JSON object, found {_kind(value)}")
    except _Malformed as error:
        yield Problem(f"{path}:{error.line}", f"not JSON: {error}; repair the file from here on")
    except UnicodeDecodeError:
        yield Problem(*_first_line_not_utf8(path))


class _Scanner:
    """Reads JSON values from a text stream one at a time and tracks their line numbers."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._buffer = ""
        self._at = 0
        self._before = 0  # characters read and dropped
        self._line = 1

    def entries(self) -> Iterator[tuple[JsonValue, int, str]]:
        """Entries with line and key (empty if they have none)."""
        if self._peek() == "[":
            self._skip("[")
            if self._peek() != "]":
                yield (*self._value(), "")
                while self._peek() == ",":
                    self._skip(",")
                    yield (*self._value(), "")
            self._skip("]")
        while self._peek():
            line, members = self._line, list(self._members())
            if members and all(isinstance(value, dict) for _, value, _ in members):
                for key, value, at in members:
                    yield value, at, key
            else:
                yield {key: value for key, value, _ in members}, line, ""

    def _members(self) -> Iterator[tuple[str, JsonValue, int]]:
        """Keys, values and lines of the object that starts here."""
        self._skip("{")
        more = self._peek() != "}"
        while more:
            if self._peek() != '"':
                raise self._malformed(f"expected a quoted key, found {self._next_token()}", self._at)
            key, line = self._value()
            self._skip(":")
            value, _ = self._value()
            yield key, value, line
            more = self._peek() == ","
            if more:
                self._skip(",")
        self._skip("}")

    def _value(self) -> tuple[JsonValue, int]:
        self._peek()
        line = self._line
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:
                if self._fill():
                    continue  # the value may continue past the buffer
                at = error.pos if isinstance(error, json.JSONDecodeError) else self._at
                fault = error.msg if isinstance(error, json.JSONDecodeError) else _reason(error)
                raise self._malformed(fault, at) from None
            if len(self._buffer) - end < 3 and self._fill():
                continue  # a number may continue: "1", "1." and "1e-" are all prefixes of 1e-5
            self._line += self._buffer.count("\n", self._at, end)
            self._at = end
            return value, line

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                character = self._buffer[self._at]
                if character not in " \t\r\n":
                    return character
                self._line += character == "\n"
                self._at += 1
            if not self._fill():
                return ""

    def _skip(self, expected: str) -> None:
        if self._peek() != expected:
            raise self._malformed(f"expected {expected!r}, found {self._next_token()}", self._at)
        self._at += 1

    def _next_token(self) -> str:
        return repr(self._peek()) if self._peek() else "the end of the file (is it cut off?)"

    def _fill(self) -> bool:
        """Read more, at least as much as the value read so far; False at the end."""
        more = self._stream.read(max(_READ_CHARS, len(self._buffer) - self._at))
        if more:
            self._before += self._at
            self._buffer, self._at = self._buffer[self._at :] + more, 0
        return bool(more)

    def _malformed(self, fault: str, at: int) -> _Malformed:
        line = self._line + self._buffer.count("\n", self._at, at)
        return _Malformed(line, f"{fault} at character {self._before + at + 1} of the file")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode_json(text: str) -> JsonValue:
    """The JSON value of a text; raises ValueError with a readable message for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError as error:
        raise ValueError(_reason(error)) from None


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


# --- CSV ----------------------------------------------------------------------------------------


def _csv_rows(path: Path) -> Iterator[Entry | Problem]:
    csv.field_size_limit(MAX_LINE_BYTES)
    position, line = 0, 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.reader(file, strict=True, delimiter=max(",;\t", key=first.count))
            header = next(rows)
            line = rows.line_num + 1
            for row in rows:
                if len(row) == len(header):
                    yield Entry(dict(zip(header, row, strict=True)), Place(path, line), position)
                    position += 1
                elif row:
                    message = f"{len(row)} fields, but the header names {len(header)}; check its quotes"
                    yield Problem(f"{path}:{line}", message)
                line = rows.line_num + 1
    except csv.Error as error:
        yield Problem(f"{path}:{line}", f"not CSV: {error}; repair the file from here on")
    except UnicodeDecodeError:
        yield Problem(*_first_line_not_utf8(path))


# --- parquet ------------------------------------------------------------------------------------


def _parquet_rows(path: Path) -> Iterator[Entry | Problem]:
    import pyarrow  # it ships no types

    import datasets

    number = 0
    try:
        rows = datasets.load_dataset(
            "parquet", data_files=str(path), split="train", streaming=True, batch_size=16
        )
        for number, row in enumerate(rows, start=1):
            yield Entry(row, Place(path, number, "row"), number - 1)
    except (pyarrow.ArrowException, datasets.exceptions.DatasetGenerationError, OSError) as error:
        cause = _one_line(error.__cause__ or error)
        yield Problem(f"{path}: row {number + 1}", f"not readable as parquet: {cause}; fetch the file again")


# --- error messages -----------------------------------------------------------------------------


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def _first_line_not_utf8(path: Path) -> tuple[str, str]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"{path}:{number}", _not_utf8(error)
    raise AssertionError(f"{path} is valid UTF-8")


def _not_utf8(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1} of the line; save the file as UTF-8"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _excerpt(start: bytes, length: int = 40) -> str:
    return repr(start[:length].decode("utf-8", "replace"))
