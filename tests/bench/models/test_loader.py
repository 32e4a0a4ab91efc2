from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

from bench.errors import ConfigError, ModelUnavailableError
from bench.models.loader import load_causal, load_encoder, load_tokenizer
from bench.models.spec import SPREAD, resolve
from performance.families import SIZES, SMALL
from tests.bench.models.builders import causal_model, save_causal, save_encoder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("models") / "llama")


def _copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def test_a_folder_loads_with_its_weights_ready_to_read(saved: Path) -> None:
    model = load_causal(resolve(str(saved), dtype="float32", device="cpu"))
    original = causal_model("llama")
    for (name, ours), (_, theirs) in zip(model.named_parameters(), original.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("dtype", "expected"), [("bfloat16", torch.bfloat16), ("float16", torch.float16), (None, torch.float32)]
)
def test_dtype_is_as_asked_or_float32_on_cpu(saved: Path, dtype: str | None, expected: torch.dtype) -> None:
    model = load_causal(resolve(str(saved), dtype=dtype, device="cpu"))
    assert {p.dtype for p in model.parameters()} == {expected}


def lose_a_weight(folder: Path, name: str = "model.layers.1.mlp.up_proj.weight") -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_a_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}), encoding="utf-8")


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lose_a_weight, r"1 missing or of another shape \(model.layers.1.mlp.up_proj"),
        (change_a_shape, r"9 missing.*down_proj.weight \[64, 112\] instead of \[64, 64\]"),
        (cut_short, "damaged or cut short"),
    ],
)
def test_a_checkpoint_that_does_not_fill_the_model_is_refused(
    saved: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    folder = _copy(saved, tmp_path / "m")
    spoil(folder)
    with pytest.raises(ModelUnavailableError, match=message):
        load_causal(resolve(str(folder), device="cpu"))


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()


@pytest.mark.parametrize("header", [struct.pack("<Q", 1 << 62), struct.pack("<Q", len(HEADER)) + HEADER])
def test_weights_whose_header_lies_are_refused(saved: Path, tmp_path: Path, header: bytes) -> None:
    folder = _copy(saved, tmp_path / "m")
    (folder / "model.safetensors").write_bytes(header + b"\0" * 64)
    with pytest.raises(ModelUnavailableError, match="damaged or cut short"):
        load_causal(resolve(str(folder), device="cpu"))


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja"])
def test_half_a_gigabyte_beside_the_weights_is_not_opened(saved: Path, tmp_path: Path, file: str) -> None:
    folder = _copy(saved, tmp_path / "m")
    with (folder / file).open("wb") as large:
        large.truncate(500 * 10**6)
    with pytest.raises(ModelUnavailableError, match=f"{file} has 500 MB; at most 200 MB are opened"):
        load_tokenizer(resolve(str(folder), device="cpu"))


def test_code_inside_a_model_folder_is_never_run(saved: Path, tmp_path: Path) -> None:
    folder = _copy(saved, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own = {"model_type": "made-up", "auto_map": {"AutoConfig": "evil.E", "AutoModelForCausalLM": "evil.M"}}
    (folder / "config.json").write_text(json.dumps({**config, **own}), encoding="utf-8")
    marker = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')", encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="could not be loaded"):
        load_causal(resolve(str(folder), device="cpu"))
    assert not marker.exists()


def test_a_family_whose_sizes_have_other_names_is_an_error_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bloom", "architectures": ["BloomForCausalLM"]}')
    with pytest.raises(ModelUnavailableError, match="could not be loaded.*max_position_embeddings"):
        _ = resolve(str(tmp_path)).architecture


def test_a_device_that_is_none_is_refused(saved: Path) -> None:
    with pytest.raises(ConfigError, match="expected cpu, cuda"):
        load_causal(resolve(str(saved), device="tpu9"))


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: count > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)


@pytest.mark.parametrize("gpus", [0, 1])
def test_spreading_a_model_needs_more_gpus(saved: Path, monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    pretend_gpus(monkeypatch, gpus)
    with pytest.raises(ConfigError, match=rf"'{SPREAD}' spreads llama .* GPUs; .* sees {gpus} here"):
        load_causal(resolve(str(saved), device=SPREAD))


def test_a_model_partly_in_main_memory_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that accelerate does not find, so that it leaves everything in main memory."""
    spec = resolve(str(saved), device="balanced")
    assert spec.actual_dtype == "bfloat16", "as on one GPU"
    monkeypatch.setattr("bench.models.loader._require_gpus", lambda spec: None)
    with pytest.raises(ConfigError, match="llama in bfloat16 does not fit these GPUs: the whole model would"):
        load_causal(spec)


def test_an_encoder_is_no_reader_and_a_reader_no_encoder(saved: Path) -> None:
    with pytest.raises(ConfigError, match="minilm is a text encoder"):
        load_causal(resolve("minilm"))
    with pytest.raises(ConfigError, match="llama is a causal language model"):
        load_encoder(resolve(str(saved)))


def test_an_encoder_that_misses_a_weight_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    load_encoder(resolve(str(folder), device="cpu"))
    lose_a_weight(folder, "encoder.layer.1.output.dense.weight")
    with pytest.raises(ModelUnavailableError, match="encoder.layer.1.output.dense.weight"):
        load_encoder(resolve(str(folder), device="cpu"))


def test_a_family_without_a_closed_form_is_counted_from_its_config(tmp_path: Path) -> None:
    config = AutoConfig.for_model("cohere", architectures=["CohereForCausalLM"], **SMALL)
    config.save_pretrained(tmp_path / "cohere")
    shape = resolve(str(tmp_path / "cohere")).architecture
    assert (shape.family, shape.layers, shape.hidden) == ("cohere", 2, 64)


@pytest.mark.parametrize(
    ("family", "images"),
    [
        ("gemma3", {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}),
        ("gemma4", None),
        ("qwen3_5", {"hidden_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 64}),
    ],
)
def test_of_text_and_images_text_is_read(tmp_path: Path, family: str, images: dict[str, int] | None) -> None:
    """Its class, ``...ForConditionalGeneration``, was taken for a text encoder's."""
    sizes = {**SMALL, **SIZES.get(f"{family}_text", {})}
    text = {key: value for key, value in sizes.items() if "token_id" not in key}
    whole = AutoModelForImageTextToText.from_config(
        AutoConfig.for_model(family, text_config=text, vision_config=images)
    ).eval()
    whole.save_pretrained(tmp_path)
    spec = resolve(str(tmp_path), dtype="float32", device="cpu")
    model, ids = load_causal(spec), torch.arange(3, 40)[None]
    assert spec.architecture.parameters == model.num_parameters()
    assert torch.equal(model(ids).logits, whole(ids).logits)


def test_what_the_config_of_a_text_part_leaves_out_is_known(tmp_path: Path) -> None:
    """As Gemma 3 4B is published: 3.88 billion parameters read text. A quantised one is refused."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert resolve(str(tmp_path)).architecture.parameters == 3_880_263_168
    quantised = {**config, "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(quantised))
    with pytest.raises(ConfigError, match="the text part of a quantised model is not read"):
        _ = resolve(str(tmp_path)).architecture


def test_a_model_larger_than_the_memory_is_refused_before_it_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=3_500_000_000))
    with pytest.raises(ConfigError) as caught:
        load_causal(resolve("qwen2.5-coder-1.5b", device="cpu", dtype="float32"))
    message = str(caught.value)
    assert "its weights take 6.2 GB in float32, and this machine has 3.5 GB of memory left" in message
    assert "--model qwen2.5-coder-1.5b --dtype bfloat16 (3.1 GB)" in message
    assert "--model qwen2.5-coder-0.5b --dtype float32 (2.0 GB)" in message
    assert not list(tmp_path.iterdir())
