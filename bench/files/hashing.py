"""Hashes of JSON values: identities of cells, keys of indexes."""

from __future__ import annotations

import hashlib
import json

from bench.schema import JsonValue


def stable_hash(value: JsonValue, digits: int = 16) -> str:
    """The first hex digits of SHA-256 over canonical JSON (sorted keys, no spaces, no NaN)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
