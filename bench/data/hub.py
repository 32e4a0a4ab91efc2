"""The full sets from the Hugging Face hub or GitHub: exact files of an exact commit, cached.

Files are fetched one by one by commit, then read like any local file. A file is verified by SHA-256 if its
checksum is on the card or comes from the hub, which has one for large files. Other files, such as those of
QMSum and SQuALITY on GitHub, are trusted because they came over HTTPS from the URL of their commit; their
content is not verified, and a warning says so.

The ``datasets`` library is no substitute: it does not run loading scripts, and offline it silently uses
whatever version is in its cache. Files from GitHub are stored in the hub's cache folder.
"""

from __future__ import annotations

import logging
import re
from http.client import HTTPException
from pathlib import Path

from bench.data.cards import Card, HubFile, HubSource, sample_names
from bench.errors import DataError
from bench.files.atomic import write_bytes
from bench.files.hashing import file_sha256

log = logging.getLogger(__name__)


GITHUB = "https://raw.githubusercontent.com"
_TIMEOUT_S = 60


def fetch(card: Card, *, training: bool = False) -> list[Path]:
    """Paths of the set's files in the hub cache, downloaded if missing and verified if a checksum is known.

    training: the files that a method may learn from instead of the evaluated ones.
    Raises DataError if a file is neither cached nor downloadable, if it is damaged (it is then removed),
    and for a card that names no files.
    """
    if card.hub is None:
        raise DataError(f"{card.name} cannot be downloaded. {card.obtain}")
    files = card.hub.train_files if training else card.hub.files
    if not files:
        raise DataError(f"{card.name}: its card names no training files. Use --set train_on=PATH.")
    paths = [_fetched(card, card.hub, file) for file in files]
    for file, path in zip(files, paths, strict=True):
        _verify(card, file, path)
    return paths


def _fetched(card: Card, source: HubSource, file: HubFile) -> Path:
    """One file of a commit, from the cache where it is there."""
    try:
        return _from_github(card, source, file) if source.host == "github" else _from_hub(source, file)
    except (OSError, HTTPException) as error:  # urllib's own errors and those of the hub are OSErrors
        cause = error.__cause__ or error
        failure = f"{type(cause).__name__}: {cause}".splitlines()[0]
    sample = ", or --data sample" if card.name in sample_names() else ""
    raise DataError(
        f"{card.name}: {file.path} of {source.repo} at revision {source.revision} is not in the local "
        f"cache, and the download failed: {failure}. "
        f"With network: bench data fetch --dataset {card.name} (unset HF_HUB_OFFLINE). From another "
        "machine: copy its hub cache and set HF_HUB_CACHE to it. Otherwise: --data PATH with a copy of "
        f"the set ({', '.join(card.formats)}){sample}."
    )


def _from_github(card: Card, source: HubSource, file: HubFile) -> Path:
    """One file of a commit on GitHub, written atomically; raises OSError or HTTPException."""
    from urllib.request import urlopen

    from huggingface_hub import constants

    path = Path(constants.HF_HUB_CACHE, "longdoc-bench", source.repo, source.revision, file.path)
    if not path.is_file():
        if constants.HF_HUB_OFFLINE:
            raise OSError("offline mode (HF_HUB_OFFLINE=1)")
        log.info("%s: fetching %s from GitHub (%s)", card.name, file.path, source.repo)
        url = f"{GITHUB}/{source.repo}/{source.revision}/{file.path}"
        with urlopen(url, timeout=_TIMEOUT_S) as response:
            write_bytes(path, response.read())
    return path


def _from_hub(source: HubSource, file: HubFile) -> Path:
    """One file of a commit on the hub; raises OSError."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(source.repo, file.path, repo_type="dataset", revision=source.revision))


def known_checksum(file: HubFile, path: Path) -> str | None:
    """The SHA-256 on the card, or else the one from the hub; None if neither is known.

    path: where :func:`fetch` put the file.
    """
    if file.sha256 is not None:
        return file.sha256
    name = path.resolve().name  # the hub's cache names large files by their SHA-256
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None


def _verify(card: Card, file: HubFile, path: Path) -> None:
    """Compare the file with its known checksum, if any; raises DataError and removes a damaged file."""
    blob = path.resolve()
    expected = known_checksum(file, path)
    if expected is None:
        log.warning("%s: no checksum is known for %s; its content is not verified", card.name, file.path)
        return
    actual = file_sha256(blob)
    if actual != expected:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise DataError(
            f"{card.name}: {path} is damaged (SHA-256 {actual}, expected {expected}) and was removed. "
            f"Run: bench data fetch --dataset {card.name}"
        )
