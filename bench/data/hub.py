"""The full sets from the Hugging Face hub or GitHub: exact files of an exact commit, kept.

Files are fetched one by one by commit, and then read like any local file. Verified by SHA-256 are those whose
checksum the card has, or the hub itself, which gives it for large files. Of others, such as those of QMSum
and SQuALITY on GitHub, it is known only that they came over HTTPS from the address of their commit: their
content is compared with nothing, and a warning says so.

Asking ``datasets`` for a repository instead would not do: scripts no longer run, and without network it takes
whatever version its cache holds, unasked. What comes from GitHub lies beside it, in the same cache folder.
"""

from __future__ import annotations

import hashlib
import logging
import re
from http.client import HTTPException
from pathlib import Path

from bench.data.cards import Card, HubFile, HubSource, sample_names
from bench.errors import DataError
from bench.files.atomic import write_bytes

log = logging.getLogger(__name__)


GITHUB = "https://raw.githubusercontent.com"
_TIMEOUT_S = 60


def fetch(card: Card, cache: Path | None = None, *, training: bool = False) -> list[Path]:
    """The set's files in the hub cache, downloaded if need be; checked where a checksum is known.

    cache: the cache folder; default that of huggingface_hub (HF_HOME, HF_HUB_CACHE). training: the files
    that a method may learn from, in the place of those that are evaluated.
    Raises DataError when a file is neither cached nor to be had, or is damaged (it is removed then), and for
    a card that names no files.
    """
    if card.hub is None:
        raise DataError(f"{card.name}: not to be fetched. {card.obtain}")
    files = card.hub.train_files if training else card.hub.files
    if not files:
        raise DataError(
            f"{card.name}: its card names no training files. Give a file or folder, --set train_on=PATH."
        )
    one = _fetch_github if card.hub.host == "github" else _fetch
    return [one(card, card.hub, file, cache) for file in files]


def _fetch_github(card: Card, source: HubSource, file: HubFile, cache: Path | None) -> Path:
    """One file of a commit on GitHub; written under another name first, so that it is whole or not there."""
    from urllib.request import urlopen

    from huggingface_hub import constants

    folder = (cache or Path(constants.HF_HUB_CACHE)) / "longdoc-bench" / source.repo / source.revision
    path = folder / file.path
    if not path.is_file():
        if constants.HF_HUB_OFFLINE:
            raise DataError(_not_to_be_had(card, source, file, OSError("offline mode (HF_HUB_OFFLINE=1)")))
        log.warning("%s: fetching %s from GitHub (%s)", card.name, file.path, source.repo)
        url = f"{GITHUB}/{source.repo}/{source.revision}/{file.path}"
        try:
            with urlopen(url, timeout=_TIMEOUT_S) as answer:
                write_bytes(path, answer.read())
        except (OSError, HTTPException) as error:  # urllib's own errors are of the first kind
            raise DataError(_not_to_be_had(card, source, file, error)) from None
    _verify(card, file, path)
    return path


def _fetch(card: Card, source: HubSource, file: HubFile, cache: Path | None) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    def from_hub(*, local_only: bool) -> Path:
        return Path(
            hf_hub_download(
                source.repo,
                file.path,
                repo_type="dataset",
                revision=source.revision,
                cache_dir=cache,
                local_files_only=local_only,
            )
        )

    try:
        path = from_hub(local_only=True)
    except LocalEntryNotFoundError:
        log.warning("%s: fetching %s from the hub (%s)", card.name, file.path, source.repo)
        try:
            path = from_hub(local_only=False)
        except (HfHubHTTPError, OSError) as error:
            raise DataError(_not_to_be_had(card, source, file, error)) from None
    _verify(card, file, path)
    return path


def _not_to_be_had(card: Card, source: HubSource, file: HubFile, error: Exception) -> str:
    cause = error.__cause__ or error
    sample = ", or --data sample" if card.name in sample_names() else ""
    return (
        f"{card.name}: {file.path} of {source.repo} at revision {source.revision} is not in the local "
        f"cache, and the hub gave: {type(cause).__name__}: {str(cause).splitlines()[0]}. "
        f"With network: bench data fetch --dataset {card.name} (and not HF_HUB_OFFLINE=1). From another "
        "machine: copy its hub cache and set HF_HUB_CACHE to it. Otherwise: --data PATH with a copy of "
        f"the set ({', '.join(card.formats)}){sample}."
    )


def known_checksum(file: HubFile, path: Path) -> str | None:
    """The SHA-256 of the card, or else the one that the hub itself gave; None: neither is there.

    path: where :func:`fetch` put the file.
    """
    if file.sha256 is not None:
        return file.sha256
    name = path.resolve().name  # the hub's cache names large files by their SHA-256
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None


def _verify(card: Card, file: HubFile, path: Path) -> None:
    """Compare the checksum with the one that is known, if any."""
    blob = path.resolve()
    expected = known_checksum(file, path)
    if expected is None:
        log.warning("%s: no checksum is known for %s; its content is not verified", card.name, file.path)
        return
    with blob.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    if actual != expected:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise DataError(
            f"{card.name}: {path} is damaged (SHA-256 {actual}, expected {expected}) and was removed. "
            f"Run: bench data fetch --dataset {card.name}"
        )
