"""Which causal families of the installed transformers read, packed or by their own forward, and read rightly.

``python -m performance.families [FAMILY ...]`` builds each family at toy size with random weights, lets the
engine take it, reads a text in pieces with a probe that is rolled back, and compares the greedy answer with
recomputing. A line per family: packed; plain, its own forward; refused, with the sentence; not built, where
these sizes do not make a model of it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from typing import Any

import torch

from bench.engine.engine import Engine
from bench.engine.runner import Runner
from bench.engine.scheduler import Request
from bench.engine.setup import engine_for
from bench.errors import BenchError

SMALL: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LINEAR: dict[str, Any] = {
    "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHARED = {"shared_expert_intermediate_size": 32}
LATENT: dict[str, Any] = {
    "head_dim": 8, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "qwen3_5_text": LINEAR,
    "qwen3_5_moe_text": {**LINEAR, **EXPERTS, **SHARED},
    "qwen3_next": {**LINEAR, **EXPERTS, **SHARED},
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2, "block_multiple_of": 8},
    "falcon_h1": {
        "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1,
        "mamba_chunk_size": 16,
    },
    "gemma4_text": {
        "num_hidden_layers": 4, "vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 8,
        "global_head_dim": 32, "num_kv_shared_layers": 0,
    },
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma2": {},
    "gpt_neox": {},
}  # fmt: skip
"""Family -> its own sizes."""
MOST_PARAMETERS = 20_000_000
"""Above, the family has sizes of other names."""
IDS = [(13 * i + 5) % 290 + 3 for i in range(40)]


def toy(family: str) -> Any:
    """A random model of the family; raises whatever transformers raises for sizes that do not fit it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SMALL, **SIZES.get(family, {})})
    with torch.device("meta"):
        parameters = sum(weights.numel() for weights in AutoModelForCausalLM.from_config(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters / 1e6:,.0f} M parameters at these sizes")
    model = AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        if weights.ndim > 1:
            torch.nn.init.normal_(weights, 0, 0.15)
    return model.eval().requires_grad_(False)


def greedy(model: Any, ids: list[int], most: int) -> list[int]:
    """The answer by one whole forward a token, without a cache."""
    own = list(ids)
    for _ in range(most):
        with torch.no_grad():
            own.append(int(model(torch.tensor([own]), use_cache=False).logits[0, -1].argmax()))
    return own[len(ids) :]


async def _answer(engine: Engine) -> list[int]:
    slot = await engine.reserve(128)
    await engine.run(Request(slot, IDS[:20]))
    await engine.run(Request(slot, IDS[20:25], IDS[30:33], (5, 6)))
    result = await engine.run(Request(slot, IDS[25:], decode=12, limit=128))
    return list(result.answer)


def met(family: str) -> tuple[str, str]:
    """(How the family is read, a remark)."""
    try:
        model = toy(family)
    except Exception as error:  # of transformers, for sizes that do not fit
        return "not built", f"{type(error).__name__}: {str(error)[:80]}"
    try:
        engine = engine_for(family, model, max_context=256)
        answer = asyncio.run(_answer(engine))
    except BenchError as error:
        return "refused", str(error)
    kind = "packed" if isinstance(engine.runner, Runner) else "plain"
    remark = "with attention" if engine.runner.attends else "without attention"
    return (kind if answer == greedy(model, IDS, 12) else "WRONG"), remark


def main() -> None:
    """Print a line per family, and the counts."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    torch.set_num_threads(1)
    for name in ("transformers", "bench"):
        logging.getLogger(name).setLevel(logging.ERROR)
    counts: Counter[str] = Counter()
    for family in sys.argv[1:] or sorted(CAUSAL):
        started = time.perf_counter()
        how, remark = met(family)
        counts[how] += 1
        print(f"{family:<24} {how:<10} {time.perf_counter() - started:5.1f} s  {remark}", flush=True)
    print(", ".join(f"{how} {count}" for how, count in counts.most_common()))


if __name__ == "__main__":
    main()
