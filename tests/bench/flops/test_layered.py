"""Closed forms of today's decoders, against their modules and against what torch counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from bench.errors import ConfigError
from bench.flops.architecture import UnknownFamilyError, architecture_from_config, architecture_from_modules
from bench.flops.formulas import flops_terms, forward_usage
from performance.families import IDS, LATENT, LINEAR, SIZES, SMALL
from tests.bench.flops.forwards import forward_flops

GEMMA = SIZES["gemma4_text"]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("qwen3_5_text", LINEAR),
    (
        "qwen3_5_text",
        {**LINEAR, "num_hidden_layers": 7, "linear_num_value_heads": 4, "attention_bias": True,
         "tie_word_embeddings": True},
    ),
    ("gemma4_text", GEMMA),
    (
        "gemma4_text",
        {**GEMMA, "num_hidden_layers": 12, "num_kv_shared_layers": 4, "use_double_wide_mlp": True,
         "attention_bias": True},
    ),
    (
        "gemma4_text",
        {**GEMMA, "num_hidden_layers": 7, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "hidden_size_per_layer_input": 0},
    ),
    (
        "gemma4_text",
        {**GEMMA, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
         "moe_intermediate_size": 24},
    ),
    ("deepseek_v3", LATENT),
    ("deepseek_v3", {**LATENT, "q_lora_rank": None, "attention_bias": True, "n_shared_experts": 2}),
    ("gemma", {"head_dim": 32}),
    ("mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    ("mixtral", {"num_local_experts": 3, "num_experts_per_tok": 3}),
    ("ministral", {"head_dim": 32}),
    ("gemma3_text", {"head_dim": 32, "attention_bias": True}),
    ("qwen3", {"head_dim": 32}),
    ("qwen3", {"head_dim": 8, "attention_bias": True}),
    ("qwen3_moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
    ("phi3", {"pad_token_id": 0}),
    ("smollm3", {"attention_bias": True, "mlp_bias": True, "pad_token_id": 0}),
    ("olmo3", {"pad_token_id": 0}),
    ("granite", {"mlp_bias": True}),
    ("glm4", {"head_dim": 8, "pad_token_id": 0}),
    ("gpt_oss", {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 32}),
]  # fmt: skip
WITH_ATTENTION = [case for case in CASES if case[0] != "qwen3_5_text"]


def small(family: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(3)
    sizes = {**SMALL, **options}
    if family == "falcon":  # has no such field
        del sizes["head_dim"]
    config = AutoConfig.for_model(family, **sizes, attn_implementation="eager")
    return AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()


def counted(model: Any, new: int, cached: int = 0) -> dict[str, int]:
    """What torch counts of a forward, by operator."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        if cached:
            model(torch.tensor([(IDS * 2)[:cached]]), past_key_values=cache, use_cache=True)
        with FlopCounterMode(display=False) as counter:
            model(torch.tensor([IDS[:new]]), past_key_values=cache, use_cache=True)
    return {str(operator).partition(".")[2]: n for operator, n in counter.get_flop_counts()["Global"].items()}


@pytest.mark.parametrize(("family", "options"), CASES)
def test_a_config_says_what_the_modules_are(family: str, options: dict[str, Any]) -> None:
    model = small(family, options)
    architecture = architecture_from_config(model.config)
    assert architecture.parameters == sum(p.numel() for p in model.parameters())
    assert architecture == architecture_from_modules(model)
    if family == "gpt_oss":  # the biases of experts that a token does not meet are idle, too
        experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
        assert architecture.idle_parameters == experts * 4 // 6
    assert architecture_from_config(json.loads(model.config.to_json_string(use_diff=True))) == architecture


@pytest.mark.parametrize(("family", "options"), WITH_ATTENTION)
def test_matmul_of_layered_decoders_equals_torch_on_a_prefill(family: str, options: dict[str, Any]) -> None:
    model = small(family, options)
    architecture = architecture_from_config(model.config)
    total = sum(counted(model, 11).values())
    assert forward_flops(architecture, 11, convention="matmul", logit_rows=11) == total


@pytest.mark.parametrize("options", [options for family, options in CASES if family == "gemma4_text"])
def test_matmul_equals_torch_on_a_filled_cache_of_gemma_4(options: dict[str, Any]) -> None:
    model = small("gemma4_text", options)
    architecture = architecture_from_config(model.config)
    total = sum(counted(model, 3, 53).values())
    assert forward_flops(architecture, 3, 53, convention="matmul", logit_rows=3) == total


def test_of_latent_attention_only_the_cached_latents_second_projection_is_not_counted() -> None:
    model = small("deepseek_v3", LATENT)
    architecture = architecture_from_config(model.config)
    up = 2 * 16 * 4 * (8 + 16)  # two layers: rank 16, to keys of 8 and values of 16 of four heads
    more = sum(counted(model, 3, 53).values()) - 2 * up * 53
    assert forward_flops(architecture, 3, 53, convention="matmul", logit_rows=3) == more


@pytest.mark.parametrize("options", [options for family, options in CASES if family == "qwen3_5_text"])
def test_a_gated_delta_rule_is_its_projections_and_a_state_of_constant_cost(options: dict[str, Any]) -> None:
    """Torch sums over the state without matrix products and pads the convolution: these two by hand."""
    model = small("qwen3_5_text", options)
    config, architecture = model.config, architecture_from_config(model.config)
    linear = config.layer_types.count("linear_attention")
    convolution = linear * 4 * (2 * 2 * 16 + config.linear_num_value_heads * 16)
    assert architecture.state == linear * 3 * config.linear_num_value_heads * 16 * 16
    for cached in (20, 53):
        terms = flops_terms(architecture, forward_usage(architecture, 1, cached), "matmul")
        torchs = counted(model, 1, cached)
        products = torchs["mm"] + torchs.get("addmm", 0)
        assert terms["weights"] + terms["head"] == products + 2 * (convolution + architecture.state)
        assert terms["attention"] == torchs["bmm"]


def test_deepseek_v3_has_671_billion_parameters_of_which_a_token_meets_37() -> None:
    """As its report says (DeepSeek-AI 2024, Sec. 4.2): 671B in total, 37B activated for each token."""
    architecture = architecture_from_config(AutoConfig.for_model("deepseek_v3"))
    assert architecture.parameters // 10**9 == 671
    assert round(architecture.active_parameters / 10**9) in (37, 38)
    assert architecture.attended_elements == 61 * 128 * (192 + 128)


def test_a_file_of_gemma_4_may_state_the_rule_or_each_layer() -> None:
    fields = {**SMALL, **CASES[4][1]}
    saved = json.loads(AutoConfig.for_model("gemma4_text", **fields).to_json_string(use_diff=True))
    assert "per_layer_config" in saved and "global_head_dim" not in saved
    stated = architecture_from_config({"model_type": "gemma4_text", **fields})
    assert stated == architecture_from_config(saved)


@pytest.mark.parametrize("family", ["qwen3_5", "gemma4"])
def test_of_a_config_for_text_and_images_the_text_part_is_counted(family: str) -> None:
    sizes = {**SMALL, **SIZES[f"{family}_text"]}
    inner = {key: value for key, value in sizes.items() if "token_id" not in key}
    config = AutoConfig.for_model(family, text_config=inner, tie_word_embeddings=False)
    alone = AutoConfig.for_model(f"{family}_text", **inner, tie_word_embeddings=False)
    saved = json.loads(config.to_json_string(use_diff=True))
    expected = architecture_from_config(alone)
    assert architecture_from_config(config) == architecture_from_config(saved) == expected
    tied = architecture_from_config(AutoConfig.for_model(f"{family}_text", **inner, tie_word_embeddings=True))
    assert expected.parameters - tied.parameters == expected.head_weights


MORE = {"head_dim": 8, "moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("family", "more", "idle"),
    [
        ("qwen3_moe", MORE, 2 * 3 * (3 * 64 * 24)),
        ("aria_text", {"moe_num_experts": 5, "moe_topk": 2}, 2 * 3 * (3 * 64 * 96)),
        (
            "mimo_v2_flash",
            {**MORE, "num_key_value_heads": 1, "n_routed_experts": 5, "v_head_dim": 24},
            3 * (3 * 64 * 24),
        ),
        ("diffllama", {}, 0),
        ("cohere", {}, 0),
        ("falcon", {}, 0),
        ("jetmoe", {"head_dim": 32, "num_local_experts": 5, "num_experts_per_tok": 2}, 2 * 3 * 26624),
    ],
)
def test_without_a_closed_form_modules_are_counted(family: str, more: dict[str, Any], idle: int) -> None:
    """Aria's experts were dense, MiMo-V2's values, DiffLlama's second product, Falcon's matrices left out."""
    model = small(family, more)
    architecture, total = architecture_from_modules(model), sum(counted(model, 11).values())
    assert forward_flops(architecture, 11, convention="matmul", logit_rows=11) == total
    assert architecture.idle_parameters == idle


def test_what_cannot_be_counted_is_refused() -> None:
    chosen = AutoConfig.for_model("deepseek_v32", **SMALL, n_routed_experts=4, num_experts_per_tok=2)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(chosen)
    with pytest.raises(ConfigError, match="index_topk=.* does not meet every weight once"):
        architecture_from_modules(model)
    dense = small("mistral", {})
    dense.config.num_experts = 4  # experts that lie otherwise than transformers lays them
    with pytest.raises(ConfigError, match="num_experts=4"):
        architecture_from_modules(dense)
    dense.config.num_experts, dense.config.H_cycles = 0, 2  # layers that are run again
    with pytest.raises(ConfigError, match="H_cycles=2"):
        architecture_from_modules(dense)


def test_a_field_that_is_missing_and_an_unknown_family_are_named() -> None:
    with pytest.raises(UnknownFamilyError, match="'cohere' has no closed form.*llama"):
        architecture_from_config({"model_type": "cohere"})
    with pytest.raises(ConfigError, match="'gemma4_text' lacks 'hidden_size'"):
        architecture_from_config({"model_type": "gemma4_text", "num_hidden_layers": 2})
