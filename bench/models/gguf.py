"""Convert a GGUF file to an ordinary model folder: config, safetensors, tokenizer with chat template.

Every family whose GGUF files transformers can read is convertible; transformers' own tables map the names
and axes. Weights are de-quantised one by one and saved in shards, so the conversion needs memory for one
shard and one matrix, never for the whole model.

A de-quantised weight is ``scale * level + minimum`` of short numbers, which float32 represents to within
its last bit or two. bfloat16, in which the larger models were published, rounds it once more, by at most
1/256 of its value; a level of a 4-bit weight is 1/15 of its block's range. Vectors (norms, biases) stay
float32.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import ModelUnavailableError
from bench.files.atomic import write_json

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import PreTokenizer

log = logging.getLogger(__name__)

_SHARD_BYTES = 1_000_000_000
_HEAD = "lm_head.weight"


def convert(name: str, file: Path, folder: Path, *, weights: str, tied: bool) -> None:
    """Write the model into ``folder`` as config, safetensors and tokenizer.

    weights: number format of its matrices; tied: whether the published model ties its output matrix to its
    embedding, although the file has both. Raises ModelUnavailableError unless every weight can be converted.
    """
    minutes = max(1, round(file.stat().st_size / 250e6))
    log.info("%s: converting %s to safetensors (once; about %d min)", name, file.name, minutes)
    try:
        _save_tokenizer(file, folder)
        _save_weights(file, folder, weights, tied)
    except (ValueError, KeyError, RuntimeError, ImportError, NotImplementedError) as error:
        raise ModelUnavailableError(
            f"{name}: {file.name} could not be converted: {type(error).__name__}: {error}. It is read with"
            f" transformers {importlib.metadata.version('transformers')} and gguf"
            f" {importlib.metadata.version('gguf')}; constraints.txt names the versions that are tested."
        ) from error


def _save_tokenizer(file: Path, folder: Path) -> None:
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, local_files_only=True, trust_remote_code=False
    )
    named = _text(GGUFReader(file), "tokenizer.ggml.pre")
    if named not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ValueError(f"its vocabulary is for pre-tokenizer {named!r}, and only {known} are known")
    tokenizer.backend_tokenizer.pre_tokenizer = _PRE_TOKENIZERS[named]()
    tokenizer.save_pretrained(folder)


def _split_digits() -> PreTokenizer:
    """``smollm``: every digit is split off first. Source: llama.cpp, ``LLAMA_VOCAB_PRE_TYPE_SMOLLM``."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _split_words() -> PreTokenizer:
    """``qwen2``: words, single digits, runs of punctuation. Source: llama.cpp, ``..._PRE_TYPE_QWEN2``."""
    from tokenizers import Regex, pre_tokenizers

    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_PRE_TOKENIZERS: Mapping[str, Callable[[], PreTokenizer]] = {"smollm": _split_digits, "qwen2": _split_words}
"""Of the presets. A file only names its pre-tokenizer, and transformers (5.23) falls back to GPT-2's for
unknown names, which splits white space and numbers differently from when the vocabulary was learned."""


def _text(reader: GGUFReader, field: str) -> str:
    """A text field of the file's header; empty where the file lacks it."""
    header_field = reader.get_field(field)
    return str(header_field.contents()) if header_field else ""


def _save_weights(file: Path, folder: Path, weights: str, tied: bool) -> None:
    """De-quantise every weight and save it, shard by shard, along with config and generation config."""
    import numpy as np
    import torch
    from gguf import GGUFReader, dequantize
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    tables: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    auto: Any = AutoModelForCausalLM
    config: Any = AutoConfig.from_pretrained(
        file.parent, gguf_file=file.name, local_files_only=True, trust_remote_code=False
    )
    config.tie_word_embeddings = tied or config.tie_word_embeddings
    dtype = getattr(torch, weights)
    with torch.device("meta"):
        model = auto.from_config(config, dtype=dtype, trust_remote_code=False)
    reader = GGUFReader(file)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    processor = tables.TENSOR_PROCESSORS.get(_text(reader, "general.architecture"), tables.TensorProcessor)(
        config=config.to_dict()
    )
    origin = {name: gguf_name for gguf_name, name in tables.get_gguf_hf_weights_map(model, processor).items()}
    expected = model.state_dict()
    unused = set(stored) - {origin[name] for name in expected}
    if config.tie_word_embeddings:
        del expected[_HEAD]
        embedding = model.get_input_embeddings().weight
        name = next(name for name, weight in model.named_parameters() if weight is embedding)
        # If a tied model's file has both matrices, the output matrix has the finer levels.
        origin[name] = origin[_HEAD] if origin[_HEAD] in stored else origin[name]
    missing = [name for name in expected if origin[name] not in stored]
    if missing or unused:
        raise ValueError(
            f"weights that the model lacks: {sorted(unused)[:3]}; that the file lacks: {sorted(missing)[:3]}"
        )

    def weight(name: str) -> torch.Tensor:
        tensor = stored[origin[name]]
        values = processor.process(dequantize(tensor.data, tensor.tensor_type), tensor.name).weights
        if values.shape != tuple(expected[name].shape) or not np.isfinite(values).all():
            raise ValueError(
                f"{tensor.name} is {values.shape} or not finite, expected {tuple(expected[name].shape)}"
            )
        return torch.tensor(values, dtype=dtype if values.ndim > 1 else torch.float32)

    split = split_torch_state_dict_into_shards(expected, max_shard_size=_SHARD_BYTES)
    for shard, names in split.filename_to_tensors.items():
        save_file({name: weight(name) for name in names}, folder / shard, metadata={"format": "pt"})
    if split.is_sharded:
        write_json(
            folder / "model.safetensors.index.json",
            {"metadata": split.metadata, "weight_map": split.tensor_to_filename},
        )
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
