"""Files of JSON lines that are appended one by one and survive a crash: records, a judge's replies.

A line that was appended stays; a line that was cut is set aside, and what it was about counts as not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.errors import BenchError
from bench.files import remove_drafts, replacing, writing

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"


class Row(BaseModel):
    """What one line holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_line(self) -> str:
        """The row as one JSON line, newline included."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, allow_nan=False) + "\n"


RowT = TypeVar("RowT", bound=Row)
KeyT = TypeVar("KeyT", bound=Hashable)


def whole_rows(path: Path, row: type[RowT]) -> Iterator[RowT]:
    """The rows of a file, whoever is writing it; lines that are not whole are left out. Writes nothing."""
    with path.open("rb") as file:
        for line in file:
            found = _row_in(line, row)
            if found is not None:
                yield found


def held(folder: Path) -> bool:
    """Whether somebody holds the rows of a folder just now."""
    try:
        with (folder / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no folder yet, or one that cannot be locked: whoever opens it will say so
        return False
    return False


class JsonLines(ABC, Generic[RowT, KeyT]):
    """The append-only rows of one folder, held by one process at a time.

    Opening takes an exclusive lock (waiting, with a log line, while another process holds it), keeps
    every whole row, and sets lines that are not whole aside in ``NAME.damaged.jsonl``.
    """

    file_name: ClassVar[str]
    beside: ClassVar[tuple[str, ...]]
    """Other files of the folder that are written under its lock."""
    damage: ClassVar[str]
    """What becomes of that which a damaged line was about."""
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
            """Key -> where its line begins, and how long it is; rows are read when needed."""
            with writing(folder):
                for name in (self.file_name, *self.beside):
                    remove_drafts(folder / name)
                self._recover()
                self._file: IO[bytes] = self._opened()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._lock.close()

    @abstractmethod
    def key(self, row: RowT) -> KeyT:
        """What the row is about; of several on the same, the last one counts."""

    @property
    def done(self) -> Mapping[KeyT, RowT]:
        """The rows by their keys; read from the file when asked for."""
        return _Kept(self._file.fileno(), self._places, self.row)

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
                while rest:  # a disk that is nearly full takes a part
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):  # what cannot be cut off is set aside by the next run
                    os.ftruncate(descriptor, end)
                raise
        self._places[self.key(row)] = end, len(line)

    def discard(self, keys: Sequence[KeyT]) -> None:
        """Forget some rows (to have them anew)."""
        kept = self.done
        dropped = set(keys)
        self._rewrite(kept[i] for i in list(self._places) if i not in dropped)

    def replace(self, rows: Sequence[RowT]) -> None:
        """Put other rows in the place of those with the same keys."""
        kept, others = self.done, {self.key(row): row for row in rows}
        self._rewrite(others[i] if i in others else kept[i] for i in dict.fromkeys((*kept, *others)))

    def put_in_order(self, keys: Sequence[KeyT]) -> None:
        """Rewrite the file in that order, so that how a run was interrupted leaves no trace in it."""
        ordered = [i for i in keys if i in self._places]
        if list(self._places) != ordered:
            kept = self.done
            self._rewrite(kept[i] for i in ordered)

    def _rewrite(self, rows: Iterable[RowT]) -> None:
        """Put these in the place of all that is there; the old file is there to read from until the end."""
        self._places = self._write(rows)
        self._file.close()
        self._file = self._opened()

    def _opened(self) -> IO[bytes]:
        """The file to append to; unbuffered, so that what a failed write left is not written later."""
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
                "could write the same records. Choose a place on another file system with --out or --results."
            ) from error

    def _recover(self) -> None:
        """Find every whole row, line by line, and set aside what is none."""
        if not self.path.exists():
            return
        damaged: list[bytes] = []
        repeated = at = 0
        with self.path.open("rb") as file:
            for line in file:
                row = _row_in(line, self.row)
                if row is None:
                    damaged.append(line if line.endswith(b"\n") else line + b"\n")
                else:
                    key = self.key(row)
                    repeated += key in self._places
                    self._places[key] = at, len(line)
                at += len(line)
            if damaged:
                aside = f"{self.path.stem}.damaged.jsonl"
                log.warning(
                    "%s: %d incomplete line(s) set aside in %s; %s",
                    self.path,
                    len(damaged),
                    aside,
                    self.damage,
                )
                with (self.folder / aside).open("ab") as handle:
                    handle.writelines(damaged)
            if damaged or repeated:
                self._places = self._write(_Kept(file.fileno(), self._places, self.row).values())

    def _write(self, rows: Iterable[RowT]) -> dict[KeyT, tuple[int, int]]:
        """Put rows in the place of the file; returns where each of them lies."""
        places: dict[KeyT, tuple[int, int]] = {}
        at = 0
        with replacing(self.path) as handle:
            for row in rows:
                line = row.to_line().encode("utf-8")
                handle.buffer.write(line)
                places[self.key(row)] = at, len(line)
                at += len(line)
        return places


class _Kept(Mapping[KeyT, RowT]):
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


def _row_in(line: bytes, row: type[RowT]) -> RowT | None:
    """The row of a line; None if it is none, or was cut."""
    try:
        return row.model_validate_json(line) if line.endswith(b"\n") else None
    except ValidationError:
        return None
