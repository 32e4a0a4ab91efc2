"""Hashes of JSON values (identities of cells, keys of indexes) and of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bench.schema import JsonValue


def stable_hash(value: JsonValue, digits: int = 16) -> str:
    """The first hex digits of SHA-256 over canonical JSON (sorted keys, no spaces, no NaN)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
