"""Writing files so that a cut at any moment leaves either the old or the new content, never half."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from bench.schema import JsonValue


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that takes ``path``'s place, fsync'd, only when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below, before the rename
        "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
    )
    temporary = Path(handle.name)
    try:
        with handle:
            yield cast("TextIO", handle)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_umask())  # temporary files are private, results are not
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's file mode mask; reading it takes setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, value: JsonValue) -> None:
    """Write readable JSON (sorted keys, no NaN) in one atomic step."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing(path) as handle:
        handle.write(text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text in one atomic step."""
    with replacing(path) as handle:
        handle.write(text)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes in one atomic step."""
    with replacing(path) as handle:
        handle.buffer.write(content)


def sync_folder(path: Path) -> None:
    """Make renames inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
