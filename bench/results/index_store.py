"""Indexes on disk by content hash: JSON + safetensors with a checksum, never pickle.

A key covers the method, its version, the options and models that the index depends on, and the
documents. An index is written once, in one rename, together with its cost, so that a cached
index still reports its FLOPs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bench.errors import BenchError
from bench.files.atomic import STALE_DRAFT_S, sync_folder, umask, writing
from bench.files.hashing import stable_hash
from bench.flops.meter import Meter
from bench.schema import Index, JsonValue

log = logging.getLogger(__name__)

FORMAT_VERSION = 1

POLL_S = 0.1
"""Seconds between checks for an index that another process is building."""


@dataclass(frozen=True)
class StoredIndex:
    """An index and the cost of building it."""

    index: Index
    meter: Meter


def index_key(parts: Mapping[str, JsonValue]) -> str:
    """Hash of everything that an index depends on."""
    return stable_hash({"format": FORMAT_VERSION, **parts}, digits=24)


class IndexStore:
    """A folder of indexes: ``<root>/<method>/<key>/{index.json, arrays.safetensors, manifest.json}``."""

    def __init__(self, root: Path) -> None:
        """Use the folder ``root``, created if needed."""
        self.root = root
        self._swept: set[str] = set()

    def has(self, method: str, key: str) -> bool:
        """Whether there is such an index; it may still turn out to be damaged."""
        return (self.root / method / key).is_dir()

    def load(self, method: str, key: str) -> StoredIndex | None:
        """The stored index; None if there is none. A damaged index is removed and None returned.

        Raises BenchError if the system cannot read the files; the index stays, as it may be intact.
        """
        folder = self.root / method / key
        if not folder.is_dir():
            return None
        try:
            return self._read(folder)
        except _Damaged as damage:
            log.warning("index %s is damaged (%s); rebuilding it", folder, damage)
            shutil.rmtree(folder, ignore_errors=True)
            return None
        except OSError as error:
            raise BenchError(
                f"Cannot read the index {folder}: {error.strerror or error}. It was not changed; remove the "
                "folder to rebuild it."
            ) from error

    @contextlib.asynccontextmanager
    async def building(self, method: str, key: str) -> AsyncIterator[None]:
        """Lock the index for building; inside the block, check first whether another process has built it.

        Waiting for the lock does not block the event loop. On a file system without locks the block runs
        unlocked, and two processes may then build the same index.
        """
        path = self.root / method / f".{key}.lock"
        lock = FileLock(path)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            while not lock.is_locked:
                try:
                    lock.acquire(blocking=False)
                except Timeout:
                    await asyncio.sleep(POLL_S)
        try:
            yield
        finally:
            if lock.is_locked:
                with contextlib.suppress(OSError):  # another process may have removed the file
                    path.unlink()
                lock.release()

    def save(self, method: str, key: str, index: Index, meter: Meter) -> None:
        """Store an index; does nothing if another process has just stored the same key.

        Raises WriteError if it cannot be written, ValueError or TypeError if its data are not JSON.
        """
        from safetensors.numpy import save

        data = json.dumps(index.data, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
        files = {"index.json": data, "arrays.safetensors": save(dict(index.arrays))}
        manifest = {
            "format": FORMAT_VERSION,
            "key": key,
            "sha256": {name: hashlib.sha256(body).hexdigest() for name, body in files.items()},
            "meter": meter.to_json(),
        }
        manifest["sha256_of_this"] = _sealed(manifest)
        files["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True).encode()
        parent = self.root / method
        target = parent / key
        with writing(target):
            parent.mkdir(parents=True, exist_ok=True)
            if method not in self._swept:
                self._swept.add(method)
                _remove_drafts(parent)
            with _draft(parent, key) as draft:
                for name, body in files.items():
                    (draft / name).write_bytes(body)
                sync_folder(draft)
                try:
                    draft.rename(target)
                except OSError:
                    if not target.is_dir():
                        raise

    def _read(self, folder: Path) -> StoredIndex:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            manifest = json.loads((folder / "manifest.json").read_bytes())
            if manifest["format"] != FORMAT_VERSION:
                raise _Damaged(f"format {manifest['format']}, expected {FORMAT_VERSION}")
            if manifest.pop("sha256_of_this") != _sealed(manifest):
                raise _Damaged("checksum of manifest.json does not match")
            if manifest.get("key", folder.name) != folder.name:
                raise _Damaged(f"it is the index {manifest['key']}")
            bodies = {name: (folder / name).read_bytes() for name in ("index.json", "arrays.safetensors")}
            for name, body in bodies.items():
                if hashlib.sha256(body).hexdigest() != manifest["sha256"][name]:
                    raise _Damaged(f"checksum of {name} does not match")
            data = json.loads(bodies["index.json"].decode("utf-8", "surrogatepass"))
            arrays = load(bodies["arrays.safetensors"])
            return StoredIndex(Index(data, arrays), Meter.from_json(manifest["meter"]))
        except FileNotFoundError as error:
            raise _Damaged(f"{Path(error.filename).name} is missing") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            raise _Damaged(f"{type(error).__name__}: {error}") from None


class _Damaged(Exception):  # noqa: N818 - a finding, not an error
    """What is wrong with an index."""


def _sealed(manifest: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _draft(parent: Path, key: str) -> Iterator[Path]:
    """A folder to fill and rename; removed on exit if it was not renamed."""
    draft = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=parent))
    try:
        draft.chmod(0o777 & ~umask())  # temporary folders are private, results are not
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_drafts(parent: Path) -> None:
    """Remove the drafts of killed processes: folders so old that nobody is still filling them."""
    for draft in parent.glob(".*.*/"):
        with contextlib.suppress(OSError):  # another process removed it first
            if time.time() - draft.stat().st_mtime >= STALE_DRAFT_S:
                shutil.rmtree(draft, ignore_errors=True)
