"""A transformer's sizes, read from its config or counted from the modules of a built model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.errors import ConfigError

Kind = Literal["decoder", "encoder"]


@dataclass(frozen=True)
class Architecture:
    """The shape of a transformer as far as its cost depends on it."""

    family: str
    """Transformers' ``model_type``."""
    kind: Kind
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    """True for three feed-forward matrices (SwiGLU), False for two."""
    vocab: int
    max_positions: int
    tied: bool
    """True when input embedding and output head share their weights (counted once)."""
    parameters: int
    """N: every parameter, as ``sum(p.numel())``."""
    layer_weights: int
    """Elements of all weight matrices that each token is multiplied by, over all layers."""
    head_weights: int
    """Elements of the matrix that each logit row is multiplied by: output head, or an encoder's pooler."""

    @property
    def attention_width(self) -> int:
        """d: heads x head size, the width of queries."""
        return self.heads * self.head_dim


def decoder(
    family: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int,
    max_positions: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    tied: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> Architecture:
    """Architecture of a decoder of family ``llama``, ``mistral``, ``qwen2`` or ``phi``.

    ``attention_bias`` and ``mlp_bias`` are Llama's options; Qwen2 always has biases on q, k and v; Phi has
    them everywhere, the output head included, and LayerNorm (weight and bias) instead of RMSNorm;
    ``qk_norm`` is Phi's ``qk_layernorm``. The defaults of ``kv_heads`` and ``head_dim`` are transformers'.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    head_dim = hidden // heads if head_dim is None else head_dim
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    is_phi = family == "phi"
    gated = not is_phi
    matrices = hidden * q_width + 2 * hidden * kv_width + q_width * hidden
    matrices += (3 if gated else 2) * hidden * ffn
    vectors = 0
    if is_phi or attention_bias or family == "qwen2":
        vectors += q_width + 2 * kv_width
    if is_phi or attention_bias:
        vectors += hidden
    if is_phi:
        vectors += ffn + hidden
        if qk_norm:
            vectors += 4 * head_dim
    elif mlp_bias:
        vectors += 2 * ffn + hidden
    norm = 2 * hidden if is_phi else hidden
    vectors += norm if is_phi else 2 * norm
    parameters = vocab * hidden + layers * (matrices + vectors) + norm
    if not tied:
        parameters += vocab * hidden
    if is_phi:
        parameters += vocab
    return Architecture(
        family=family,
        kind="decoder",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        gated=gated,
        vocab=vocab,
        max_positions=max_positions,
        tied=tied,
        parameters=parameters,
        layer_weights=layers * matrices,
        head_weights=vocab * hidden,
    )


def encoder(
    family: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int,
    max_positions: int,
    token_types: int = 2,
    relative_buckets: int = 32,
    projection: int = 0,
) -> Architecture:
    """Architecture of an encoder of family ``bert``, ``mpnet`` or ``dpr``.

    ``token_types`` is BERT's segment vocabulary; ``relative_buckets`` is MPNet's shared position bias;
    ``projection`` is the width of DPR's optional projection (0: none). DPR is a BERT without the pooler
    that the other two have.
    """
    matrices = 4 * hidden * hidden + 2 * hidden * ffn
    vectors = 4 * hidden + ffn + hidden + 4 * hidden
    extra = relative_buckets * heads if family == "mpnet" else token_types * hidden
    embeddings = (vocab + max_positions) * hidden + extra + 2 * hidden
    head = projection if family == "dpr" else hidden
    return Architecture(
        family=family,
        kind="encoder",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=ffn,
        gated=False,
        vocab=vocab,
        max_positions=max_positions,
        tied=True,
        parameters=embeddings + layers * (matrices + vectors) + head * hidden + head,
        layer_weights=layers * matrices,
        head_weights=head * hidden,
    )


class UnknownFamilyError(ConfigError):
    """A ``model_type`` without a closed form here; its modules can still be counted."""


_DECODERS = ("llama", "mistral", "qwen2", "phi")


_ENCODERS = ("bert", "mpnet", "dpr")


_KV_HEADS_DEFAULT = {"mistral": 8, "qwen2": 32}
"""Transformers' default where a config.json leaves out ``num_key_value_heads``; other families: all heads."""


def architecture_from_config(config: Any) -> Architecture:
    """Architecture of a transformers config object, or of the mapping in a ``config.json``.

    Raises UnknownFamilyError for a ``model_type`` without a closed form, ConfigError for a missing field.
    """
    values = config if isinstance(config, Mapping) else vars(config)
    family = values.get("model_type") or getattr(config, "model_type", None)
    if family not in _DECODERS + _ENCODERS:
        raise UnknownFamilyError(
            f"Model type {family!r} has no closed form for its FLOPs. "
            f"Known: {', '.join(_DECODERS + _ENCODERS)}."
        )

    def required(key: str) -> int:
        value = values.get(key)
        if value is None:
            raise ConfigError(f"config of model type {family!r} lacks {key!r}; is it a complete config.json?")
        return int(value)

    layers, hidden = required("num_hidden_layers"), required("hidden_size")
    heads, ffn = required("num_attention_heads"), required("intermediate_size")
    vocab, max_positions = required("vocab_size"), required("max_position_embeddings")
    if family in _ENCODERS:
        return encoder(
            family,
            layers=layers,
            hidden=hidden,
            heads=heads,
            ffn=ffn,
            vocab=vocab,
            max_positions=max_positions,
            token_types=int(values.get("type_vocab_size", 2)),
            relative_buckets=int(values.get("relative_attention_num_buckets", 32)),
            projection=int(values.get("projection_dim", 0)),
        )
    kv_heads = values.get("num_key_value_heads", _KV_HEADS_DEFAULT.get(family))
    is_llama, is_phi = family == "llama", family == "phi"
    return decoder(
        family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=vocab,
        max_positions=max_positions,
        kv_heads=kv_heads,
        head_dim=values.get("head_dim"),
        tied=bool(values.get("tie_word_embeddings", False)),
        attention_bias=is_llama and bool(values.get("attention_bias", False)),
        mlp_bias=is_llama and bool(values.get("mlp_bias", False)),
        qk_norm=is_phi and bool(values.get("qk_layernorm", False)),
    )


_MATRIX_MODULES = ("Linear", "Conv1D")


_NOT_DENSE = ("num_local_experts", "num_experts", "n_routed_experts", "kv_lora_rank")


def architecture_from_modules(model: Any) -> Architecture:
    """Architecture of any dense transformers model, counted from its modules (weights are not needed).

    For families without a closed form: build the model on torch's ``meta`` device and pass it here.
    Raises ConfigError for a mixture of experts or latent attention: there a token is not multiplied by every
    weight.
    """
    config = model.config
    for key in _NOT_DENSE:
        if getattr(config, key, None):
            raise ConfigError(
                f"FLOPs of model type {config.model_type!r} are not known: {key}={getattr(config, key)} means"
                " that a token is not multiplied by every weight. Use a dense model."
            )
    head = model.get_output_embeddings()
    layer_weights = pooler = 0
    for name, module in model.named_modules():
        if type(module).__name__ not in _MATRIX_MODULES or module is head:
            continue
        if name.startswith("pooler.") or name.endswith(".encode_proj"):  # DPR's projection: one row per text
            pooler += module.weight.numel()
        else:
            layer_weights += module.weight.numel()
    heads = config.num_attention_heads
    return Architecture(
        family=config.model_type,
        kind="encoder" if head is None else "decoder",
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        ffn=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        gated=any(name.endswith("gate_proj") for name, _ in model.named_modules()),
        vocab=config.vocab_size,
        max_positions=config.max_position_embeddings,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        parameters=sum(p.numel() for p in model.parameters()),
        layer_weights=layer_weights,
        head_weights=pooler if head is None else head.weight.numel(),
    )


def counted_architecture(folder: Path, kind: Literal["causal", "encoder"]) -> Architecture:
    """Architecture of a model whose family has no closed form, counted on torch's ``meta`` device.

    folder: holds its config; no weights are needed. Raises transformers' own error for a config that it
    cannot build, and ConfigError for a model that cannot be counted.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModel
        return architecture_from_modules(auto.from_config(config, trust_remote_code=False))
