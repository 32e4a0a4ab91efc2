"""Append-only files of JSON lines that survive a crash: records and a judge's replies.

An appended line is durable. A line cut by a crash moves to another file, and its entry counts as missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.errors import BenchError
from bench.files.atomic import remove_drafts, replacing, writing

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"


class Line(BaseModel):
    """The fields of one line, or of a part of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def to_line(self) -> str:
        """The row as one JSON line, newline included."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, allow_nan=False) + "\n"


RowT = TypeVar("RowT", bound=Line)
KeyT = TypeVar("KeyT", bound=Hashable)


def valid_rows(path: Path, row: type[RowT]) -> Iterator[RowT]:
    """The valid rows of a file, which another process may be writing; warns of damaged lines. Read-only."""
    damaged = 0
    with path.open("rb") as file:
        for line in itertools.takewhile(lambda line: line.endswith(b"\n"), file):  # then one being written
            parsed = _parse_line(line, row)
            if parsed is not None:
                yield parsed
            damaged += parsed is None
    if damaged:
        log.warning("%s: %d damaged line(s) left out", path, damaged)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of the folder."""
    try:
        with (folder / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no folder yet, or one that cannot be locked: opening the store reports that
        return False
    return False


class JsonLines(ABC, Generic[RowT, KeyT]):
    """The append-only rows of one folder, locked by one process at a time.

    Opening takes an exclusive lock and waits, with a log line, while another process holds it. Valid rows
    stay; damaged lines move to ``NAME.damaged.jsonl``.
    """

    file_name: ClassVar[str]
    sibling_files: ClassVar[tuple[str, ...]]
    """Other files of the folder that are written under its lock."""
    damage_notice: ClassVar[str]
    """What happens to the entries of damaged lines, for the log message."""
    row: type[RowT]

    def __init__(self, folder: Path) -> None:
        """Create or reopen the store; raises BenchError if the folder cannot be written or locked."""
        self.folder = folder
        self.path = folder / self.file_name
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / LOCK_FILE).open("a")
        try:
            self._take_lock()
            self._places: dict[KeyT, tuple[int, int]] = {}
            """Key -> offset and length of its line, in bytes; rows are read when needed."""
            with writing(folder):
                for name in (self.file_name, *self.sibling_files):
                    remove_drafts(folder / name)
                self._file: IO[bytes] = self._opened()
                self._recover()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self._file.close()
        self._lock.close()

    @abstractmethod
    def key(self, row: RowT) -> KeyT:
        """The row's key; of several rows with one key, the last counts."""

    @property
    def done(self) -> Mapping[KeyT, RowT]:
        """The rows by their keys, read from the file on access."""
        return _RowsOnDisk(self._file.fileno(), self._places, self.row)

    def append(self, row: RowT) -> None:
        """Write one row durably; it survives a power cut once this returns.

        Raises WriteError when the disk is full or fails; the file then ends with the row before.
        """
        line = row.to_line().encode("utf-8")
        with writing(self.path):
            descriptor = self._file.fileno()
            end = os.fstat(descriptor).st_size
            try:
                rest = memoryview(line)
                while rest:  # a nearly full disk accepts only a part
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):  # if this fails too, the next run sets the line aside
                    os.ftruncate(descriptor, end)
                raise
        self._places[self.key(row)] = end, len(line)

    def put_in_order(self, keys: Sequence[KeyT]) -> None:
        """Rewrite the file in the order of ``keys``, so that it does not depend on interruptions."""
        ordered = [key for key in keys if key in self._places]
        held = sum(length for _, length in self._places.values())
        if list(self._places) != ordered or held != os.fstat(self._file.fileno()).st_size:
            self._rewrite(ordered)

    def _rewrite(self, keys: Sequence[KeyT]) -> None:
        """Replace the content of the file by the rows with these keys, in this order."""
        places: dict[KeyT, tuple[int, int]] = {}
        at = 0
        with replacing(self.path) as handle:
            for key in keys:
                start, length = self._places[key]
                handle.buffer.write(os.pread(self._file.fileno(), length, start))
                places[key] = at, length
                at += length
        self._file.close()
        self._places, self._file = places, self._opened()

    def _opened(self) -> IO[bytes]:
        """The file, open to append; unbuffered, so that no bytes of a failed write are written later."""
        return self.path.open("a+b", buffering=0)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("%s is being written by another run; waiting for it to finish", self.folder)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise BenchError(
                f"{self.folder} cannot be locked ({error.strerror or error}), and without a lock two runs "
                "could write the same records. Use a folder on another file system: --results."
            ) from error

    def _recover(self) -> None:
        """Index the valid rows, line by line, and set damaged lines aside."""
        damaged: list[bytes] = []
        repeated = at = 0
        with self.path.open("rb") as file:
            for line in file:
                row = _parse_line(line, self.row)
                if row is None:
                    damaged.append(line if line.endswith(b"\n") else line + b"\n")
                else:
                    key = self.key(row)
                    repeated += key in self._places
                    self._places[key] = at, len(line)
                at += len(line)
        if damaged:
            aside = f"{self.path.stem}.damaged.jsonl"
            moved = f"{len(damaged)} incomplete line(s) set aside in {aside}"
            log.warning("%s: %s; %s", self.path, moved, self.damage_notice)
            with (self.folder / aside).open("ab") as handle:
                handle.writelines(damaged)
        if damaged or repeated:
            self._rewrite(list(self._places))


class _RowsOnDisk(Mapping[KeyT, RowT]):
    """Rows in a file, by their keys."""

    def __init__(self, descriptor: int, places: Mapping[KeyT, tuple[int, int]], row: type[RowT]) -> None:
        self._descriptor, self._places, self._row = descriptor, places, row

    def __getitem__(self, key: KeyT) -> RowT:
        start, length = self._places[key]
        return self._row.model_validate_json(os.pread(self._descriptor, length, start))

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _parse_line(line: bytes, row: type[RowT]) -> RowT | None:
    """The row of a line; None if the line is invalid or was cut."""
    try:
        return row.model_validate_json(line) if line.endswith(b"\n") else None
    except ValidationError:
        return None
