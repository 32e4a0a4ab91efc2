"""Atomic writes: an interruption at any moment leaves either the old content or the new, never half."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from bench.errors import BenchError
from bench.schema import JsonValue

STALE_DRAFT_S = 3600.0
"""Age in seconds from which a draft counts as left behind by a process that was killed."""

_OTHER_FILES = 512
"""Room for libraries, models and sockets, on top of what a run itself holds open."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class WriteError(BenchError, OSError):
    """A file that could not be written; the message says why and what to do. The old content is unharmed."""

    def __init__(self, path: Path, error: OSError) -> None:
        """path: the file being written; error: as the operating system raised it."""
        why = error.strerror or str(error)
        remedy = "Choose another place with --results DIR."
        if error.errno in _FULL:
            remedy = "Make room, or choose another place with --results DIR. "
            remedy += "Everything finished is kept; the same command continues."
        super().__init__(f"Cannot write to {path}: {why}. {remedy}")
        self.strerror = why


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside the block, a failure of the operating system becomes a WriteError about ``path``."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(path, error) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that takes ``path``'s place, fsync'd, only when the block ends without an error.

    Raises WriteError when the system refuses; the old file then stays.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_drafts(path, STALE_DRAFT_S)
        handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below, before the rename
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
        )
        temporary = Path(handle.name)
        try:
            with handle:
                yield cast("TextIO", handle)
                handle.flush()
                os.fsync(handle.fileno())
            temporary.chmod(0o666 & ~umask())  # temporary files are private, results are not
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove_drafts(path: Path, older_than_s: float = 0.0) -> None:
    """Remove drafts of ``path`` that a process left behind when it was killed inside :func:`replacing`.

    Remove drafts of any age only while holding the lock under which the file is written.
    """
    for draft in path.parent.glob(f".{path.name}.*"):
        with contextlib.suppress(FileNotFoundError):  # another process removed it first
            if older_than_s <= 0 or time.time() - draft.stat().st_mtime > older_than_s:
                draft.unlink()


def allow_open_files(count: int) -> None:
    """Let this process hold ``count`` files open at once, in addition to those of every process.

    Raises BenchError where the system's own limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BenchError(
            f"{needed:,} files would be open at once, and the system allows {hard:,} (ulimit -Hn). Run fewer "
            "cells together, or have the limit raised."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def umask() -> int:
    """The process's file mode mask; reading it takes setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, value: JsonValue) -> None:
    """Write readable JSON (sorted keys, no NaN) in one atomic step."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_notes(path: Path) -> dict[str, JsonValue]:
    """The object in a JSON file that is only a cache: empty if the file is missing or damaged."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write text in one atomic step."""
    with replacing(path) as handle:
        handle.write(text)


def write_bytes(path: Path, *parts: bytes) -> None:
    """Write bytes, one part after the other, in one atomic step."""
    with replacing(path) as handle:
        handle.buffer.writelines(parts)


def sync_folder(path: Path) -> None:
    """Make renames inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
