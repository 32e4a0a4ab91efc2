"""What servers said of themselves last: finished cells can be rendered while a server is off."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from bench.files.atomic import WriteError, read_notes, write_json
from bench.models.served.address import ServerAddress
from bench.models.served.client import ServerGoneError
from bench.models.served.dialects import Get, ServerInfo, describe

log = logging.getLogger(__name__)


def described(address: ServerAddress, get: Get, file: Path) -> ServerInfo:
    """What the server says of itself, or, if it does not answer, what it said when it last did.

    file: where that is kept, below the user's cache folder.
    Raises ServerError, and ServerGoneError for a server that has never answered here.
    """
    key = f"{address.url}#{address.model}#{address.kind or ''}"
    known = read_notes(file)
    try:
        now = describe(address, get)
    except ServerGoneError:
        if key not in known:
            raise
        log.warning("%s does not answer; planned with what it said last", address.url)
        return ServerInfo(**known[key])
    if known.get(key) != asdict(now):
        try:
            write_json(file, {**known, key: asdict(now)})
        except WriteError as error:
            log.debug("%s cannot be written: %s", file, error)
    return now
