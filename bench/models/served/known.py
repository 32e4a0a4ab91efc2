"""What servers said of themselves last: finished cells can be rendered while a server is off."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from bench.files.atomic import WriteError, write_json
from bench.models.served.address import ServerAddress
from bench.models.served.client import ServerGoneError
from bench.models.served.dialects import Get, ServerInfo, describe
from bench.schema import JsonValue

log = logging.getLogger(__name__)


def described(address: ServerAddress, get: Get, file: Path) -> ServerInfo:
    """What the server says of itself, or, if it does not answer, what it said when it last did.

    file: where that is kept, below the user's cache folder.
    Raises ServerError, and ServerGoneError for a server that has never answered here.
    """
    key = f"{address.url}#{address.model}#{address.kind or ''}"
    known = _read(file)
    try:
        now = describe(address, get)
    except ServerGoneError:
        last = _described(known.get(key))
        if last is None:
            raise
        log.warning("%s does not answer; planned with what it said last", address.url)
        return last
    if known.get(key) != asdict(now):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {**known, key: asdict(now)})
        except (WriteError, OSError) as error:
            log.debug("%s cannot be written: %s", file, error)
    return now


def _read(file: Path) -> dict[str, JsonValue]:
    try:
        known = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _described(fields: JsonValue) -> ServerInfo | None:
    """None where nothing is known, or what an earlier version wrote."""
    try:
        return ServerInfo(**fields)
    except TypeError:
        return None
