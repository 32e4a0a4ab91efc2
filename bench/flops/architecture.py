"""What a transformer's cost depends on: its sizes, read from its config or counted from its modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from bench.errors import ConfigError

Kind = Literal["decoder", "encoder"]


class UnknownFamilyError(ConfigError):
    """A ``model_type`` without a closed form here; its modules can still be counted."""


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
    """Every parameter, as ``sum(p.numel())``: what memory holds."""
    layer_weights: int
    """Elements of all weight matrices that each token is multiplied by, over all layers."""
    head_weights: int
    """Elements of the matrix that each logit row is multiplied by: output head, or an encoder's pooler."""
    state: int = 0
    """Elements of recurrent states that a token is multiplied with, over all layers; 0: attention alone."""
    attention_layers: int | None = None
    """Layers whose tokens attend to all before them; None: every layer."""
    idle_parameters: int = 0
    """Of the parameters, those that a token does not meet: of the experts that its router does not choose."""
    attended: int | None = None
    """``attended_elements``, where heads differ from layer to layer, or between keys and values."""

    @property
    def active_parameters(self) -> int:
        """N: the parameters that a token meets, all of a dense model's."""
        return self.parameters - self.idle_parameters

    @property
    def attention_width(self) -> int:
        """d: heads x head size, the width of queries."""
        return self.heads * self.head_dim

    @property
    def attended_elements(self) -> int:
        """Elements of keys and values that a token meets for each token it attends to: 2*L*d."""
        if self.attended is not None:
            return self.attended
        layers = self.layers if self.attention_layers is None else self.attention_layers
        return 2 * layers * self.attention_width


DECODERS = ("llama", "mistral", "mixtral", "gemma", "qwen2", "phi")
"""Model types of the presets, with closed forms. Sliding windows are counted as full attention."""
ENCODERS = ("bert", "mpnet", "dpr")
_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8, "num_experts_per_tok": 2},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": True},
    "qwen2": {"num_key_value_heads": 32},
}
"""Transformers' defaults for what a config.json may leave out; else all heads, nothing tied."""
_REQUIRED = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "max_positions": "max_position_embeddings",
}
"""Size -> its key in a config."""
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""What families call the number of experts in their configs."""
_CHOSEN = ("num_experts_per_tok", "top_k_experts")
"""What they call the number of those that a token is sent to."""


def architecture_from_config(config: Any) -> Architecture:
    """Architecture of a transformers config object, or of the mapping in a ``config.json``.

    Raises UnknownFamilyError for a ``model_type`` without a closed form, ConfigError for a missing field.
    """
    values = config if isinstance(config, Mapping) else vars(config)
    family = str(values.get("model_type") or getattr(config, "model_type", None))
    if family not in (*DECODERS, *ENCODERS):
        raise UnknownFamilyError(
            f"Model type {family!r} has no closed form for its FLOPs. "
            f"Known: {', '.join((*DECODERS, *ENCODERS))}."
        )
    given = {
        **_LEFT_OUT.get(family, {}),
        **{key: value for key, value in values.items() if value is not None},
    }
    for key in _REQUIRED.values():
        if key not in given:
            raise ConfigError(f"config of model type {family!r} lacks {key!r}; is it a complete config.json?")
    return _encoder(family, given) if family in ENCODERS else _decoder(family, given)


def _decoder(family: str, given: Mapping[str, Any]) -> Architecture:
    """Architecture of a decoder from the fields of its config.

    Llama's biases are options; Qwen2 always has them on q, k and v; Phi everywhere, the output head included,
    and LayerNorm (weight and bias) instead of RMSNorm. Mixtral's experts stand side by side in a layer, of
    which a router (one row for each) sends every token through a few.
    """
    sizes = {name: int(given[key]) for name, key in _REQUIRED.items()}
    layers, hidden, heads, ffn, vocab, _ = sizes.values()
    kv_heads, head_dim = given.get("num_key_value_heads", heads), given.get("head_dim", hidden // heads)
    tied, is_phi = bool(given.get("tie_word_embeddings")), family == "phi"
    experts = chosen = 1
    if family == "mixtral":
        experts = next((int(given[key]) for key in _EXPERTS if key in given), 8)
        chosen = given["num_experts_per_tok"]
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    expert = (2 if is_phi else 3) * hidden * ffn
    matrices = 2 * hidden * (q_width + kv_width) + chosen * expert + (experts * hidden if experts > 1 else 0)
    norm = 2 * hidden if is_phi else hidden
    vectors = norm if is_phi else 2 * norm
    biased = is_phi or (family == "llama" and given.get("attention_bias"))
    if biased or family == "qwen2":
        vectors += q_width + 2 * kv_width
    if biased:
        vectors += hidden
    if is_phi:
        vectors += ffn + hidden + (4 * head_dim if given.get("qk_layernorm") else 0)
    elif family == "llama" and given.get("mlp_bias"):
        vectors += 2 * ffn + hidden
    idle = (experts - chosen) * expert
    embeddings = vocab * hidden * (1 if tied else 2) + (vocab if is_phi else 0)
    return Architecture(
        family=family,
        kind="decoder",
        **sizes,
        kv_heads=kv_heads,
        head_dim=head_dim,
        gated=not is_phi,
        tied=tied,
        parameters=embeddings + layers * (matrices + idle + vectors) + norm,
        layer_weights=layers * matrices,
        head_weights=vocab * hidden,
        idle_parameters=layers * idle,
    )


def _encoder(family: str, given: Mapping[str, Any]) -> Architecture:
    """Architecture of an encoder from the fields of its config.

    BERT has a vocabulary of segments, MPNet a position bias that layers share; DPR is a BERT with an optional
    projection in place of the pooler that the other two have.
    """
    sizes = {name: int(given[key]) for name, key in _REQUIRED.items()}
    layers, hidden, heads, ffn, vocab, max_positions = sizes.values()
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
        **sizes,
        kv_heads=heads,
        head_dim=hidden // heads,
        gated=False,
        tied=True,
        parameters=embeddings + layers * (matrices + vectors) + head * hidden + head,
        layer_weights=layers * matrices,
        head_weights=head * hidden,
    )


_MATRIX_MODULES = ("Linear", "Conv1D", "Conv1d")


def architecture_from_modules(model: Any) -> Architecture:
    """Architecture of any transformers model, counted from its modules (weights are not needed).

    For families without a closed form: build the model on torch's ``meta`` device and pass it here. Of a
    mixture of experts, the share of the experts' weights that a token meets is counted; routers and shared
    experts in full. Layers with a recurrent state in place of attention count the state (:func:`_state_of`).
    Latent attention and heads of several sizes are counted from the layers themselves (:func:`_attended_by`).
    Raises ConfigError for attention to chosen tokens, for experts that do not lie as transformers lays them
    (modules ``*Experts`` beside a ``*Router``), and for a state of unknown size.
    """
    config = model.config.get_text_config()
    state, attention_layers = _state_of(config)
    experts = next((int(getattr(config, key)) for key in _EXPERTS if getattr(config, key, None)), 1)
    chosen = int(next((getattr(config, key) for key in _CHOSEN if getattr(config, key, None)), experts))
    attended = _attended_by(model)
    unknown = ("index_topk",) if attended else ("index_topk", "kv_lora_rank")
    refused = next((key for key in unknown if getattr(config, key, None)), "")
    head = model.get_output_embeddings()
    layer_weights = pooler = all_experts = 0
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind.endswith(("Experts", "Router")) and experts > 1:
            matrix = 3 if kind.endswith("Experts") else 2  # one dimension more where experts lie together
            own = sum(p.numel() for p in module.parameters(recurse=False) if p.ndim >= matrix)
            all_experts += own if kind.endswith("Experts") else 0
            layer_weights += own if kind.endswith("Router") else own * chosen // experts
        if kind not in _MATRIX_MODULES or module is head:
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
            " means that a token is not multiplied by every weight, or by other ones. Use another model."
        )
    heads = config.num_attention_heads
    # Where layers differ, their config gives no one value for all.
    one = config.to_dict() if attended else vars(config)
    return Architecture(
        family=config.model_type,
        kind="encoder" if head is None else "decoder",
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=one.get("num_key_value_heads") or heads,
        head_dim=one.get("qk_head_dim") or one.get("head_dim") or config.hidden_size // heads,
        ffn=(getattr(config, "moe_intermediate_size", None) if all_experts else None)
        or getattr(config, "intermediate_size", None)
        or 4 * config.hidden_size,
        gated=any(name.endswith(("gate_proj", "gate_up_proj")) for name, _ in model.named_modules())
        or bool(all_experts),
        vocab=config.vocab_size,
        max_positions=config.max_position_embeddings,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
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

    Counted from the layers' attention modules: the input of ``o_proj`` is as wide as all heads' values, and
    queries are, but for latent attention, as wide as these (``qk_head_dim`` each).
    """
    layers = [
        module
        for module in model.modules()
        if hasattr(module, "o_proj") and hasattr(module, "num_key_value_groups")
    ]
    keys = {getattr(module, "qk_head_dim", None) or getattr(module, "head_dim", None) for module in layers}
    latent = any(hasattr(module, "qk_head_dim") for module in layers)
    if not latent and len(keys) < 2:
        return None
    heads = model.config.get_text_config().num_attention_heads
    values = sum(int(module.o_proj.in_features) for module in layers)
    return values + (sum(int(heads * module.qk_head_dim) for module in layers) if latent else values)


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


@lru_cache(maxsize=16)
def counted_architecture(folder: Path, kind: Literal["causal", "encoder"]) -> Architecture:
    """Architecture of a model whose family has no closed form, counted on torch's ``meta`` device.

    Of a model for text and images, the part that reads text. folder: holds its config; no weights are needed.
    Raises transformers' own error for a config that it cannot build, and ConfigError for a model that cannot
    be counted.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModel
        return architecture_from_modules(auto.from_config(config.get_text_config(), trust_remote_code=False))
