"""A model folder as one GGUF file in float32, so that llama.cpp can serve exactly what is loaded here.

Llamas and Qwen2 with byte-level BPE: what the servers are compared on. Prompts are sent as token ids, so that
the file's tokenizer only has to write ids as text. Rotary embeddings of GGUF's Llama turn neighbouring rows
where transformers turns halves, so the rows of its queries and keys are put in that order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

_TOKENIZERS = {"llama": "gpt-2", "qwen2": "qwen2"}


def write_gguf(folder: Path, file: Path, weights: str = "F32") -> None:
    """Write the model in ``folder`` to ``file``; raises KeyError for another family.

    weights: number format of its matrices, ``F32``, ``BF16`` or ``Q4_0``.
    """
    import gguf

    config = json.loads((folder / "config.json").read_text())
    family = config["model_type"]
    pre = _TOKENIZERS[family]
    architecture = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}[family]
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    kv_heads = config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads

    writer = gguf.GGUFWriter(file, family, use_temp_file=True)  # else it keeps all of them in memory
    writer.add_name(folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or config
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = gguf.GGMLQuantizationType[weights]
    writer.add_file_type(
        gguf.LlamaFileType.ALL_F32 if weights == "F32" else gguf.LlamaFileType[f"MOSTLY_{weights}"]
    )
    _add_tokenizer(writer, folder, config, pre)

    names = gguf.get_tensor_name_map(architecture, layers)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                    continue
                values = tensors.get_tensor(name).float().numpy()
                if family == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
                    own = heads if "q_proj" in name else kv_heads
                    halves = values.reshape(own, 2, head_dim // 2, -1)
                    values = halves.swapaxes(1, 2).reshape(values.shape)
                written = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if written is None:
                    raise KeyError(f"{name} has no name in a GGUF file of a {family}")
                own_kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
                writer.add_tensor(written, gguf.quants.quantize(values, own_kind), raw_dtype=own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any], pre: str) -> None:
    import gguf

    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    tokens = {id_: token for token, id_ in tokenizer["model"]["vocab"].items()} | added
    every = range(config["vocab_size"])
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokens.get(id_, f"[unused{id_}]") for id_ in every])
    writer.add_token_types(
        [
            gguf.TokenType.CONTROL if id_ in added else gguf.TokenType.NORMAL if id_ in tokens
            else gguf.TokenType.UNUSED
            for id_ in every
        ]
    )  # fmt: skip
    writer.add_token_merges(merges)
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
