from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import ConfigError, ModelUnavailableError
from bench.models.conversation import ModelSet
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from tests.bench.models.builders import save_causal


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("models") / "llama")


def test_roles_that_name_the_same_model_share_it(llama: Path) -> None:
    reader, again = resolve(str(llama), device="cpu"), resolve(str(llama), device="cpu")
    models: ModelSet = LoadedModels({"reader": reader, "search": again, "embedder": resolve("minilm")})
    assert models.lm() is models.lm("search")
    assert models.lm() is LoadedModels({"reader": reader}).lm()
    assert models.embedder() is models.embedder()
    assert models.lm().name == "llama"


def test_an_unknown_role_names_the_roles_there_are(llama: Path) -> None:
    models = LoadedModels({"reader": resolve(str(llama))})
    with pytest.raises(ConfigError, match="no model for role 'embedder'; this run has reader"):
        models.embedder()


def test_missing_files_are_an_error_before_anything_is_asked(llama: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_bytes((llama / "config.json").read_bytes())
    with pytest.raises(ModelUnavailableError, match="has no .*safetensors weights"):
        LoadedModels({"reader": resolve(str(copy))})


def test_two_models_of_one_name_are_refused(llama: Path, tmp_path: Path) -> None:
    other = save_causal(tmp_path / "llama", "qwen2")
    with pytest.raises(ConfigError, match="role 'search': two different models are called 'llama'"):
        LoadedModels({"reader": resolve(str(llama)), "search": resolve(str(other))})
