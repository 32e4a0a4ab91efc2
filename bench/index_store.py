"""Indexes on disk by content hash: JSON + safetensors with a checksum, never pickle.

A key covers the method, its version, the options and models that the index depends on, and the
documents. An index is written once, in one rename, together with what it cost, so that a cached
index still reports its FLOPs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.files import sync_folder
from bench.identity import stable_hash
from bench.metering import Meter
from bench.schema import Index, JsonValue

log = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass(frozen=True)
class StoredIndex:
    """An index and the meter of its making."""

    index: Index
    meter: Meter


def index_key(parts: Mapping[str, JsonValue]) -> str:
    """Hash of everything that an index depends on."""
    return stable_hash({"format": FORMAT_VERSION, **parts}, digits=24)


class CheckpointFile:
    """The state of a training in one file, each replacing the one before; no state is ever half there."""

    def __init__(self, path: Path) -> None:
        """path: ``<root>/<method>/<key>.checkpoint``; written when first saved."""
        self.path = path

    def load(self) -> Index | None:
        """The last state; None when there is none, or when the file is damaged (it is left alone)."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            body = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            digest, data, arrays = body.split(b"\n", 2)
            if _digest(data, arrays) != digest:
                raise ValueError("its checksum does not match")
            return Index(json.loads(data), load(arrays))
        except (ValueError, SafetensorError) as error:
            log.warning("%s is damaged (%s); the training begins again", self.path, error)
            return None

    def save(self, state: Index) -> None:
        """Keep a state in the place of the one before."""
        from safetensors.numpy import save

        data = json.dumps(state.data, allow_nan=False).encode()
        arrays = save(dict(state.arrays))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=self.path.parent, prefix=f".{self.path.name}.", delete=False
        ) as f:
            f.writelines((_digest(data, arrays), b"\n", data, b"\n", arrays))
        Path(f.name).replace(self.path)

    def clear(self) -> None:
        """Forget the state."""
        self.path.unlink(missing_ok=True)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()


class IndexStore:
    """A folder of indexes: ``<root>/<method>/<key>/{index.json, arrays.safetensors, manifest.json}``."""

    def __init__(self, root: Path) -> None:
        """Use (and create when needed) the folder ``root``."""
        self.root = root

    def has(self, method: str, key: str) -> bool:
        """Whether there is such an index; it may still turn out to be damaged."""
        return (self.root / method / key).is_dir()

    def checkpoints(self, method: str, key: str) -> CheckpointFile:
        """Where the making of an index keeps how far it got."""
        return CheckpointFile(self.root / method / f"{key}.checkpoint")

    def load(self, method: str, key: str) -> StoredIndex | None:
        """The stored index; None when there is none, or when it is damaged (then it is removed)."""
        folder = self.root / method / key
        if not folder.is_dir():
            return None
        try:
            return self._read(folder)
        except (OSError, ValueError, KeyError) as error:
            log.warning("index %s is damaged (%s); it is built again", folder, error)
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def save(self, method: str, key: str, index: Index, meter: Meter) -> None:
        """Store an index; harmless when another process has just stored the same key."""
        from safetensors.numpy import save

        parent = self.root / method
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=parent))
        try:
            data = json.dumps(index.data, ensure_ascii=False, allow_nan=False).encode(
                "utf-8", "surrogatepass"
            )
            arrays = save({name: array for name, array in index.arrays.items()})
            files = {"index.json": data, "arrays.safetensors": arrays}
            manifest = {
                "format": FORMAT_VERSION,
                "sha256": {name: hashlib.sha256(body).hexdigest() for name, body in files.items()},
                "meter": meter.to_json(),
            }
            files["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True).encode()
            for name, body in files.items():
                (draft / name).write_bytes(body)
            sync_folder(draft)
            target = parent / key
            try:
                draft.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _read(self, folder: Path) -> StoredIndex:
        from safetensors.numpy import load

        manifest = json.loads((folder / "manifest.json").read_bytes())
        if manifest["format"] != FORMAT_VERSION:
            raise ValueError(f"format {manifest['format']}, expected {FORMAT_VERSION}")
        bodies: dict[str, bytes] = {}
        for name, expected in manifest["sha256"].items():
            bodies[name] = (folder / name).read_bytes()
            if hashlib.sha256(bodies[name]).hexdigest() != expected:
                raise ValueError(f"checksum of {name} does not match")
        data = json.loads(bodies["index.json"].decode("utf-8", "surrogatepass"))
        return StoredIndex(
            Index(data, load(bodies["arrays.safetensors"])), Meter.from_json(manifest["meter"])
        )
