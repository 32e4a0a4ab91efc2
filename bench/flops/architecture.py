"""A transformer's sizes, read from its config or counted from the modules of a built model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.errors import ConfigError
from bench.flops.layered import LAYERED, SIZES, decoder_of, given_fields, text_part
from bench.flops.shape import Architecture as Architecture, UnknownFamilyError as UnknownFamilyError


@dataclass(frozen=True)
class Family:
    """How the decoders of a family differ from Llama, as far as parameters and cost depend on it."""

    qkv_bias: bool | None = False
    """Biases on q, k and v; None: the config's ``attention_bias``."""
    out_bias: bool | None = False
    """A bias on the attention's output; None: the config's ``attention_bias``."""
    norms: int = 2
    """Vectors of the hidden width that normalise in each layer."""
    qk_norm: Literal["", "head", "width"] = ""
    """Queries and keys are normalised, by a vector of one head's width each, or of all heads'."""
    experts: str = ""
    """Key of the number of experts in a config; empty: dense."""
    expert_ffn: str = "intermediate_size"
    """Key of the width of an expert."""
    expert_bias: bool = False
    """Experts and their router have biases."""
    sinks: bool = False
    """Each head of a layer has a learned sink."""
    left_out: Mapping[str, Any] = field(default_factory=dict)
    """Transformers' defaults for what a config.json may leave out; else all heads, nothing tied."""


_TIED: Mapping[str, Any] = {"tie_word_embeddings": True}
DECODERS: Mapping[str, Family] = {
    "llama": Family(qkv_bias=None, out_bias=None),
    "mistral": Family(left_out={"num_key_value_heads": 8}),
    "mixtral": Family(
        experts="num_local_experts",
        left_out={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "ministral": Family(left_out={"num_key_value_heads": 8}),
    "gemma": Family(left_out={"num_key_value_heads": 16, "head_dim": 256, **_TIED}),
    "gemma3_text": Family(
        qkv_bias=None,
        out_bias=None,
        norms=4,
        qk_norm="head",
        left_out={"num_key_value_heads": 4, "head_dim": 256, **_TIED},
    ),
    "qwen2": Family(qkv_bias=True, left_out={"num_key_value_heads": 32}),
    "qwen3": Family(
        qkv_bias=None, out_bias=None, qk_norm="head", left_out={"num_key_value_heads": 32, "head_dim": 128}
    ),
    "qwen3_moe": Family(
        qkv_bias=None,
        out_bias=None,
        qk_norm="head",
        experts="num_experts",
        expert_ffn="moe_intermediate_size",
        left_out={
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "phi": Family(),  # LayerNorm, and biases everywhere: below
    "phi3": Family(),
    "smollm3": Family(qkv_bias=None, out_bias=None, left_out={"num_key_value_heads": 4, **_TIED}),
    "olmo3": Family(qkv_bias=None, out_bias=None, qk_norm="width"),
    "granite": Family(qkv_bias=None, out_bias=None),
    "glm4": Family(
        qkv_bias=None,
        norms=4,
        left_out={"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    ),
    "gpt_oss": Family(
        qkv_bias=None,
        out_bias=None,
        experts="num_local_experts",
        expert_bias=True,
        sinks=True,
        left_out={
            "num_key_value_heads": 8,
            "head_dim": 64,
            "attention_bias": True,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
        },
    ),
}
"""Model type -> what its closed form needs. Sliding windows are counted as full attention."""


def _decoder(given: Mapping[str, Any], traits: Family, experts: int) -> Architecture:
    """Architecture of a decoder of one of the families in ``DECODERS``; given: the fields of its config.

    ``attention_bias`` and ``mlp_bias`` are options of the configs of Llama and its kin; Qwen2 always has
    biases on q, k and v; Phi has them everywhere, the output head included, and LayerNorm (weight and bias)
    instead of RMSNorm, and its ``qk_layernorm``. Experts are feed-forward networks that stand side by side in
    a layer, of which a router (one row for each) sends every token through some; Mixtral has 8 and 2. The
    defaults of key heads and head size are transformers'.
    """
    family = given["model_type"]
    layers, hidden, heads, ffn, vocab, _ = (given[key] for key in SIZES)
    kv_heads = given.get("num_key_value_heads", heads)
    head_dim = given.get("head_dim", hidden // heads)
    experts_per_token = 1
    if traits.experts:
        ffn, experts_per_token = given[traits.expert_ffn], given["num_experts_per_tok"]
    attention_bias = given.get("attention_bias", False)
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    is_phi = family == "phi"
    expert = (2 if is_phi else 3) * hidden * ffn
    router = experts * hidden if experts > 1 else 0
    matrices = (
        hidden * q_width + 2 * hidden * kv_width + q_width * hidden + router + experts_per_token * expert
    )
    norm = 2 * hidden if is_phi else hidden
    vectors = norm if is_phi else traits.norms * norm
    if is_phi or (attention_bias if traits.qkv_bias is None else traits.qkv_bias):
        vectors += q_width + 2 * kv_width
    if is_phi or (attention_bias if traits.out_bias is None else traits.out_bias):
        vectors += hidden
    if is_phi:
        vectors += ffn + hidden + (4 * head_dim if given.get("qk_layernorm") else 0)
    elif family in ("llama", "smollm3", "granite") and given.get("mlp_bias"):
        vectors += 2 * ffn + hidden
    vectors += {"": 0, "head": 2 * head_dim, "width": q_width + kv_width}[traits.qk_norm]
    vectors += heads if traits.sinks else 0
    biases = 2 * ffn + hidden if traits.expert_bias else 0
    vectors += (experts if biases else 0) + experts_per_token * biases
    idle = (experts - experts_per_token) * (expert + biases)
    others = layers * vectors + (hidden + vocab if is_phi else 0)
    return decoder_of(given, matrices=layers * matrices, others=others, idle=layers * idle, head_dim=head_dim)


def _encoder(given: Mapping[str, Any]) -> Architecture:
    """Architecture of an encoder of family ``bert``, ``mpnet`` or ``dpr``; given: the fields of its config.

    ``type_vocab_size`` is BERT's segment vocabulary; ``relative_attention_num_buckets`` is MPNet's shared
    position bias; ``projection_dim`` is the width of DPR's optional projection (0: none). DPR is a BERT
    without the pooler that the other two have.
    """
    family = given["model_type"]
    layers, hidden, heads, ffn, vocab, max_positions = (given[key] for key in SIZES)
    matrices = 4 * hidden * hidden + 2 * hidden * ffn
    vectors = 4 * hidden + ffn + hidden + 4 * hidden
    extra = given.get("type_vocab_size", 2) * hidden
    if family == "mpnet":
        extra = given.get("relative_attention_num_buckets", 32) * heads
    embeddings = (vocab + max_positions) * hidden + extra + 2 * hidden
    head = given.get("projection_dim", 0) if family == "dpr" else hidden
    return Architecture(
        family=family,
        kind="encoder",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=vocab,
        max_positions=max_positions,
        parameters=embeddings + layers * (matrices + vectors) + head * hidden + head,
        layer_weights=layers * matrices,
        head_weights=head * hidden,
    )


_ENCODERS = ("bert", "mpnet", "dpr")


def architecture_from_config(config: Any) -> Architecture:
    """Architecture of a transformers config object, or of the mapping in a ``config.json``.

    Raises UnknownFamilyError for a ``model_type`` without a closed form, ConfigError for a missing field.
    """
    values = config if isinstance(config, Mapping) else vars(config)
    family = values.get("model_type") or getattr(config, "model_type", None)
    if family in LAYERED or "text_config" in values:
        values = text_part(values if isinstance(config, Mapping) else config.to_dict())
        family = values.get("model_type")
    if closed_form := LAYERED.get(str(family)):
        return closed_form(values)
    if family not in (*DECODERS, *_ENCODERS):
        raise UnknownFamilyError(
            f"Model type {family!r} has no closed form for its FLOPs. "
            f"Known: {', '.join((*DECODERS, *LAYERED, *_ENCODERS))}."
        )
    traits = DECODERS.get(family)
    given = given_fields({**values, "model_type": family}, traits.left_out if traits else {}, *SIZES)
    if traits is None:
        return _encoder(given)
    if given.get("mlp_only_layers") or given.get("decoder_sparse_step", 1) != 1:
        raise UnknownFamilyError(f"A {family!r} with dense layers has no closed form for its FLOPs.")
    named = [key for key in _EXPERTS if values.get(key) is not None] or [traits.experts]
    return _decoder(given, traits, given[named[0]] if traits.experts else 1)


_MATRIX_MODULES = ("Linear", "Conv1D", "Conv1d")


_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""What families call the number of experts in their configs."""

_CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_topk")
"""What they call the number of those that a token is sent to."""


def architecture_from_modules(model: Any) -> Architecture:
    """Architecture of any transformers model, counted from its modules (weights are not needed).

    For families without a closed form: build the model on torch's ``meta`` device and pass it here. Of a
    mixture of experts, the share of the experts' weights that a token meets is counted; routers and shared
    experts in full. Layers with a recurrent state in place of attention count the state (:func:`_state_of`).
    Latent attention and heads of several sizes are counted from the layers themselves (:func:`_attended_by`).
    Raises ConfigError for attention to chosen tokens, for layers that are run again, for experts that do not
    lie as transformers lays them (``*Experts`` beside a ``*Router``), and for a state of unknown size.
    """
    config = model.config.get_text_config()
    state, attention_layers = _state_of(config)
    experts = next((int(getattr(config, key)) for key in _EXPERTS if getattr(config, key, None)), 1)
    chosen = int(next((getattr(config, key) for key in _CHOSEN if getattr(config, key, None)), experts))
    attended = _attended_by(model)
    unknown = ("index_topk", "index_topk_blocks", "H_cycles", *(() if attended else ("kv_lora_rank",)))
    refused = next((key for key in unknown if getattr(config, key, None)), "")
    head = model.get_output_embeddings()
    layer_weights = pooler = all_experts = 0
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind.endswith(("Experts", "Router")) and experts > 1:
            matrix = 3 if kind.endswith("Experts") else 2  # one dimension more where experts lie together
            own = sum(p.numel() for p in module.parameters(recurse=False) if p.ndim >= matrix)
            all_experts += sum(p.numel() for p in module.parameters(recurse=False)) if matrix == 3 else 0
            layer_weights += own if kind.endswith("Router") else own * chosen // experts
        kinds = {base.__name__ for base in type(module).__mro__}  # Falcon has a Linear of its own
        if kinds.isdisjoint(_MATRIX_MODULES) or module is head:
            continue
        if name.startswith("pooler.") or name.endswith(".encode_proj"):  # DPR's projection: one row per text
            pooler += module.weight.numel()
        else:
            layer_weights += module.weight.numel()
    if experts > 1 and not all_experts and not refused:
        refused = next(key for key in _EXPERTS if getattr(config, key, None))
    if refused:
        raise ConfigError(
            f"FLOPs of model type {config.model_type!r} are not known: {refused}={getattr(config, refused)}"
            " means that a token does not meet every weight once. Use another model."
        )
    heads = config.num_attention_heads
    # Where layers differ, their config gives no one value for all.
    one = config.to_dict() if attended else {"head_dim": getattr(config, "head_dim", None), **vars(config)}
    return Architecture(
        family=config.model_type,
        kind="encoder" if head is None else "decoder",
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=one.get("num_key_value_heads") or heads,
        head_dim=one.get("qk_head_dim") or one.get("head_dim") or config.hidden_size // heads,
        vocab=config.vocab_size,
        max_positions=config.max_position_embeddings,
        parameters=sum(p.numel() for p in model.parameters()),
        layer_weights=layer_weights,
        head_weights=pooler if head is None else head.weight.numel(),
        state=state,
        attention_layers=attention_layers,
        idle_parameters=all_experts - all_experts * chosen // experts,
        attended=attended,
    )


def _attended_by(model: Any) -> int | None:
    """Elements of keys and values that a token meets for each one it attends to; None: all heads are alike.

    Counted from the layers' attention modules: the input of ``o_proj`` is as wide as all heads' values. A
    head's values may be narrower than its queries (latent attention, MiMo-V2), and differential attention
    (Ye et al. 2024) is computed twice in transformers.
    """
    layers = [m for m in model.modules() if hasattr(m, "o_proj") and hasattr(m, "num_key_value_groups")]
    keys = [int(getattr(m, "qk_head_dim", 0) or getattr(m, "head_dim", None) or 0) for m in layers]
    values = [int(getattr(m, "v_head_dim", None) or key) for m, key in zip(layers, keys, strict=True)]
    latent = any(hasattr(m, "qk_head_dim") for m in layers)
    twice = any(hasattr(m, "lambda_q1") for m in layers)
    if not all(keys) or (not (latent or twice) and len({*keys, *values}) < 2):
        return None
    widths = zip(layers, keys, values, strict=True)
    elements = sum(int(m.o_proj.in_features) // value * (key + value) for m, key, value in widths)
    return elements * (2 if twice else 1)


_STATES = (
    ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    ("mamba_n_heads", "mamba_d_head", "mamba_d_state"),
    ("mamba_num_heads", "mamba_head_dim", "ssm_state_size"),
)
"""What families call the heads of a recurrent state, and the two sides of each."""


def _state_of(config: Any) -> tuple[int, int | None]:
    """(Elements of recurrent states that a token meets, layers with attention), as in ``Architecture``.

    A token is multiplied three times with the state of each of its layers: it is read with the key, written
    with key and value, and read with the query (gated delta rule, Yang et al. 2024; Mamba-2, Dao, Gu 2024).
    Raises ConfigError for a layer with a state that none of the known names gives.
    """
    kinds = list(getattr(config, "layer_types", None) or ())
    recurrent = [kind for kind in kinds if kind in ("linear_attention", "mamba", "recurrent", "hybrid")]
    attending = sum(kind.endswith("attention") and kind != "linear_attention" for kind in kinds)
    attending += kinds.count("hybrid")
    sizes = [
        [int(getattr(config, key)) for key in names]
        for names in _STATES
        if all(getattr(config, key, None) for key in names)
    ]
    if recurrent and not sizes:
        raise ConfigError(
            f"FLOPs of model type {config.model_type!r} are not known: no field of its config gives the size "
            "of its recurrent state. Use another model."
        )
    state = 3 * len(recurrent) * math.prod(sizes[0]) if recurrent else 0
    return state, None if attending == len(kinds) else attending


def text_config(folder: Path) -> Any:
    """Configuration of the model in a folder; of one for text and images, that of its text part.

    Raises ConfigError for a quantised one of these, whose text part does not say how it is stored.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if (text := config.get_text_config()) is not config and hasattr(config, "quantization_config"):
        raise ConfigError(f"{folder}: the text part of a quantised model is not read. Use one in 16 bit.")
    return text


def counted_architecture(folder: Path, kind: Literal["causal", "encoder"]) -> Architecture:
    """Architecture of a model whose family has no closed form, counted on torch's ``meta`` device.

    folder: holds its config; no weights are needed. Raises transformers' own error for a config that it
    cannot build, and ConfigError for a model that cannot be counted.
    """
    import torch
    from transformers import AutoModel, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModel
    with torch.device("meta"):
        return architecture_from_modules(auto.from_config(text_config(folder), trust_remote_code=False))
