"""Closed forms of decoders whose layers differ: hybrids, heads of several sizes, latent attention.

Each reads a config's fields, as ``config.json`` spells them, and counts layer by layer what transformers
builds; the defaults are transformers'. Experts are counted as elsewhere: those that a token is sent to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.errors import ConfigError
from bench.flops.shape import Architecture

Fields = Mapping[str, Any]


def text_part(values: Fields) -> Fields:
    """The fields of the model that reads text; of a config for text and images, those of its text part.

    Gemma 4 says outside its text part whether the embeddings are tied, Qwen3.5 inside.
    """
    inner = values.get("text_config")
    if not isinstance(inner, Mapping):
        return values
    if values.get("model_type") == "gemma4" and "tie_word_embeddings" in values:
        return {**inner, "tie_word_embeddings": values["tie_word_embeddings"]}
    return inner


def given_fields(values: Fields, defaults: Fields, *required: str) -> dict[str, Any]:
    """The fields, with defaults for what is left out; ConfigError for a required one that is missing."""
    given = {**defaults, **{key: value for key, value in values.items() if value is not None}}
    for key in required:
        if key not in given:
            family = values.get("model_type")
            raise ConfigError(f"config of model type {family!r} lacks {key!r}; is it a complete config.json?")
    return given


SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""Fields of every config: layers, hidden, heads, feed-forward width, vocab and max_positions."""


def decoder_of(given: Fields, *, matrices: int, others: int, idle: int = 0, **sizes: Any) -> Architecture:
    """The architecture of a decoder, from its config and what was counted over its layers.

    matrices: elements of the layers' matrices that a token meets; others: of all further parameters but the
    last norm and the embeddings; idle: of experts that it does not meet. sizes: fields that are not as usual.
    """
    hidden, vocab, tied = given["hidden_size"], given["vocab_size"], bool(given.get("tie_word_embeddings"))
    usual = {
        "family": given["model_type"],
        "kind": "decoder",
        "layers": given["num_hidden_layers"],
        "hidden": hidden,
        "heads": given["num_attention_heads"],
        "kv_heads": given.get("num_key_value_heads", given["num_attention_heads"]),
        "head_dim": given.get("head_dim"),
        "vocab": vocab,
        "max_positions": given["max_position_embeddings"],
        "parameters": vocab * hidden * (1 if tied else 2) + matrices + idle + others + hidden,
        "layer_weights": matrices,
        "head_weights": vocab * hidden,
        "idle_parameters": idle,
    }
    return Architecture(**{**usual, **sizes})


def qwen3_5(values: Fields) -> Architecture:
    """The text part of Qwen3.5: three layers of gated delta rule to one of gated attention.

    A layer of the rule (Yang et al. 2024, "Gated Delta Networks", Eq. 10) projects a token to queries and
    keys of ``linear_num_key_heads``, to values and an output gate of ``linear_num_value_heads``, and to two
    scalars a value head; runs a short convolution over queries, keys and values; and meets each value head's
    state three times, to read it by the key, to write it and to read it by the query. It costs the same
    at any position. Attention has a gate as wide as its queries.
    """
    given = given_fields(
        values,
        {
            "num_key_value_heads": 4,
            "head_dim": 256,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "full_attention_interval": 4,
        },
        *SIZES,
    )
    layers, hidden = given["num_hidden_layers"], given["hidden_size"]
    heads, kv_heads, head_dim = given["num_attention_heads"], given["num_key_value_heads"], given["head_dim"]
    every = given["full_attention_interval"]
    kinds = given.get("layer_types") or [
        "linear_attention" if (at + 1) % every else "full_attention" for at in range(layers)
    ]
    linear = kinds.count("linear_attention")
    full = layers - linear

    value_heads, value_dim = given["linear_num_value_heads"], given["linear_value_head_dim"]
    key_dim = given["linear_key_head_dim"]
    values_width = value_heads * value_dim
    mixed = 2 * given["linear_num_key_heads"] * key_dim + values_width  # queries, keys and values
    rule = hidden * (mixed + values_width + 2 * value_heads) + values_width * hidden
    rule += mixed * given["linear_conv_kernel_dim"]
    rule_vectors = 2 * value_heads + value_dim  # a decay and its bias for each head, and a norm

    width, kv_width = heads * head_dim, kv_heads * head_dim
    attention = hidden * (2 * width + 2 * kv_width) + width * hidden
    attention_vectors = 2 * head_dim
    if given.get("attention_bias"):
        attention_vectors += 2 * width + 2 * kv_width + hidden

    feed_forward = 3 * hidden * given["intermediate_size"]
    matrices = linear * rule + full * attention + layers * feed_forward
    vectors = linear * rule_vectors + full * attention_vectors + layers * 2 * hidden
    return decoder_of(
        given,
        matrices=matrices,
        others=vectors,
        state=3 * linear * value_heads * key_dim * value_dim,
        attention_layers=None if full == layers else full,
    )


def gemma4(values: Fields) -> Architecture:
    """The text part of Gemma 4: larger heads where a layer attends to everything, shared keys and values.

    The last ``num_kv_shared_layers`` layers have no keys and values of their own (and feed-forwards twice as
    wide with ``use_double_wide_mlp``), but attend like the others; with ``attention_k_eq_v`` keys are values
    in the layers that attend to everything. Every layer adds a small embedding of the token
    (``hidden_size_per_layer_input``), for which one matrix projects the token's own. Sliding windows are
    counted as full attention. Raises ConfigError for experts of unknown number or width.
    """
    given = given_fields(
        values,
        {
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "vocab_size_per_layer_input": 262_144,
            "hidden_size_per_layer_input": 256,
            "num_kv_shared_layers": 0,
            "tie_word_embeddings": True,
        },
        *SIZES,
    )
    layers, hidden, heads = given["num_hidden_layers"], given["hidden_size"], given["num_attention_heads"]
    ffn, small = given["intermediate_size"], given["hidden_size_per_layer_input"]
    full = [(at + 1) % 6 == 0 for at in range(layers)]
    if given.get("layer_types"):
        full = [kind == "full_attention" for kind in given["layer_types"]]
    full[-1] = True
    experts = chosen = expert = 0
    if given.get("enable_moe_block"):
        given = given_fields(given, {}, "num_experts", "top_k_experts", "moe_intermediate_size")
        experts, chosen = given["num_experts"], given["top_k_experts"]
        expert = 3 * hidden * given["moe_intermediate_size"]

    matrices = vectors = attended = 0
    sizes_of = _gemma4_layers(given, full)
    for at in range(layers):
        sizes = {**given, **sizes_of.get(at, {})}
        head_dim, kv_width = sizes["head_dim"], sizes["num_key_value_heads"] * sizes["head_dim"]
        width, shares = heads * head_dim, at >= layers - given["num_kv_shared_layers"]
        of_its_own = 0 if shares else 1 if given.get("attention_k_eq_v") and full[at] else 2
        wide = 2 if shares and given.get("use_double_wide_mlp") else 1
        attended += 2 * width
        matrices += 2 * hidden * width + of_its_own * hidden * kv_width + 3 * hidden * wide * ffn
        matrices += 2 * hidden * small + experts * hidden + chosen * expert
        vectors += (4 + bool(small)) * hidden + head_dim * (1 if shares else 2)
        if given.get("attention_bias"):
            vectors += width + of_its_own * kv_width + hidden
        if experts:
            vectors += 4 * hidden + experts  # three norms, the router's scale, and one of each expert
    matrices += hidden * layers * small
    vectors += given["vocab_size_per_layer_input"] * layers * small + small
    idle = layers * (experts - chosen) * expert
    return decoder_of(given, matrices=matrices, others=vectors, idle=idle, attended=attended)


def _gemma4_layers(given: Fields, full: Sequence[bool]) -> Mapping[int, Fields]:
    """Layer -> the fields that it has of its own; transformers saves them, earlier files state the rule."""
    if given.get("per_layer_config") is not None:
        return {int(at): fields for at, fields in given["per_layer_config"].items()}
    own = {"head_dim": given["global_head_dim"]}
    if given.get("attention_k_eq_v") and given.get("num_global_key_value_heads"):
        own["num_key_value_heads"] = given["num_global_key_value_heads"]
    return {at: own for at, attends_to_all in enumerate(full) if attends_to_all}


def deepseek_v3(values: Fields) -> Architecture:
    """DeepSeek-V3: latent attention, and experts behind the first layers (DeepSeek-AI 2024, Sec. 2.1).

    Queries and keys-and-values are projected down to latents and up to the heads again, each token's once.
    Attention is that over the heads: keys of ``qk_nope_head_dim + qk_rope_head_dim``, values of
    ``v_head_dim``. Transformers keeps the latents in its cache and projects them up again in every forward;
    that repetition depends on how a text is divided into forwards and is not counted.
    """
    given = given_fields(
        values,
        {
            "moe_intermediate_size": 2048,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
        },
        *SIZES,
    )
    # A config.json says null for queries without a latent; one that leaves the key out has the default.
    query_rank = values.get("q_lora_rank", 1536)
    layers, hidden = given["num_hidden_layers"], given["hidden_size"]
    heads, rank, rotary = given["num_attention_heads"], given["kv_lora_rank"], given["qk_rope_head_dim"]
    key_dim, value_dim = given["qk_nope_head_dim"] + rotary, given["v_head_dim"]

    queries = hidden * heads * key_dim
    vectors = rank
    if query_rank is not None:
        queries = query_rank * (hidden + heads * key_dim)
        vectors += query_rank
    attention = queries + hidden * (rank + rotary) + rank * heads * (given["qk_nope_head_dim"] + value_dim)
    attention += heads * value_dim * hidden
    if given.get("attention_bias"):
        vectors += (query_rank or 0) + rank + rotary + hidden

    dense = min(layers, given["first_k_dense_replace"])
    experts, chosen = given["n_routed_experts"], given["num_experts_per_tok"]
    expert = 3 * hidden * given["moe_intermediate_size"]
    met = experts * hidden + (chosen + given["n_shared_experts"]) * expert  # the router, and the experts
    matrices = layers * attention + dense * 3 * hidden * given["intermediate_size"] + (layers - dense) * met
    idle = (layers - dense) * (experts - chosen) * expert
    return decoder_of(
        given,
        matrices=matrices,
        others=layers * (2 * hidden + vectors),
        idle=idle,
        head_dim=key_dim,
        attended=layers * heads * (key_dim + value_dim),
    )


LAYERED: Mapping[str, Callable[[Fields], Architecture]] = {
    "qwen3_5_text": qwen3_5,
    "gemma4_text": gemma4,
    "deepseek_v3": deepseek_v3,
}
"""Model type -> its closed form."""
