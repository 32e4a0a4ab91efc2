"""Setting a transformers model up for the engine, and refusing one that it could not serve rightly."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bench.engine.arena import PAGE, KeyValueArena, bytes_per_token
from bench.engine.engine import Engine, Limits
from bench.engine.placement import index_device, layer_devices
from bench.errors import BenchError

log = logging.getLogger(__name__)

SAFE_ROPE = frozenset({"default", "linear", "llama3", "yarn", "proportional"})
"""Rotary embeddings whose angles depend on a token's own position only."""

CPU_LIMITS = Limits(tokens=512, rows=64)
"""About 250 tokens saturate a core; more in a pass only delays the others."""
CUDA_LIMITS = Limits(tokens=8192, rows=256)

CPU_CACHE_BYTES = 4 << 30
CPU_CACHE_SHARE = 0.25
"""Keys and values may take this share of the machine's free memory, and never more than 4 GB."""
CUDA_CACHE_SHARE = 0.8
"""Share of the device memory that is free once the weights are loaded; the rest is for activations."""

TOLERANCE = 1e-3
"""Largest relative difference of logits to stock attention that the self-check accepts, fp32."""
HALF_TOLERANCE = 6e-2
"""The same in half precision."""


class RefusedModelError(BenchError):
    """A model that the engine cannot serve rightly, with the reason."""


def prepare(name: str, model: Any, *, max_context: int) -> Engine:
    """An engine for the model, checked against the model's own attention on a small ragged batch.

    max_context: longest context that will be asked for, in tokens; the arena holds at least one.
    Raises RefusedModelError for a model whose attention the engine does not do (soft-capped, sink,
    bypassing the interface), whose rotary embedding depends on the batch, or whose logits differ.
    """
    import torch

    from bench.engine import attention

    config = model.config.get_text_config()
    for parameters in _rope_parameters(config):
        kind = parameters.get("rope_type", "default")
        if kind not in SAFE_ROPE:
            raise RefusedModelError(
                f"{name}: its rotary embedding ({kind}) depends on the longest row of a batch, so an answer "
                "would depend on what shares the pass. Use a model with default, llama3 or yarn scaling."
            )
    layers = int(config.num_hidden_layers)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    probe = _probe_tokens(int(config.vocab_size))
    with torch.inference_mode():
        expected = [
            model(torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].float()
            for ids in probe
        ]
    attention.register()
    shape = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim}
    _self_check(name, model, shape, probe, expected)
    devices = layer_devices(model, layers)
    arena = KeyValueArena(
        tokens=_arena_tokens(model, max_context, shape, devices), dtype=model.dtype, device=devices, **shape
    )
    limits = CUDA_LIMITS if model.device.type == "cuda" else CPU_LIMITS
    return Engine(name, model, arena, limits)


def _rope_parameters(config: Any) -> list[Mapping[str, Any]]:
    """The rotary settings of a config: one mapping, or one per kind of layer."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if found and all(isinstance(value, Mapping) for value in found.values()):
        return list(found.values())
    return [found]


def _probe_tokens(vocab: int) -> list[list[int]]:
    """Three short texts of different lengths, fixed."""
    return [[(7 * i + 3 * n) % min(vocab, 997) for i in range(n)] for n in (5, 1, 9)]


def _self_check(
    name: str, model: Any, shape: Mapping[str, int], probe: list[list[int]], expected: list[Any]
) -> None:
    """Serve the probe texts packed and compare with the model's own answers, one text at a time."""
    import torch

    from bench.engine.attention import Row, Tick, UnservableError, serving

    arena = KeyValueArena(
        tokens=PAGE * len(probe),
        dtype=model.dtype,
        device=layer_devices(model, shape["layers"]),
        layers=shape["layers"],
        kv_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
    )
    rows, first = [], 0
    for at, ids in enumerate(probe):
        rows.append(Row(first, len(ids), 0, at * PAGE))
        first += len(ids)
    half = model.dtype in (torch.bfloat16, torch.float16)
    with torch.inference_mode():
        tick = Tick(rows, arena, model.device, varlen=half and model.device.type == "cuda")
        try:
            with serving(tick, model):
                logits = model(
                    input_ids=torch.tensor([[t for ids in probe for t in ids]], device=model.device),
                    position_ids=tick.positions[None],
                    use_cache=False,
                    logits_to_keep=torch.tensor(
                        [r.first + r.new - 1 for r in rows], device=index_device(model)
                    ),
                ).logits[0]
        except UnservableError as error:
            raise RefusedModelError(f"{name}: {error}, which the engine does not serve.") from None
        except (IndexError, TypeError, RuntimeError, AttributeError) as error:
            raise RefusedModelError(
                f"{name}: {type(model).__name__} cannot be served in a packed batch "
                f"({type(error).__name__}: {error})."
            ) from error
    if tick.calls != shape["layers"]:
        raise RefusedModelError(
            f"{name}: {type(model).__name__} called the attention function {tick.calls} times in "
            f"{shape['layers']} layers: it bypasses transformers' attention interface."
        )
    for mine, theirs in zip(logits.float(), expected, strict=True):
        if not theirs.isfinite().all():
            continue  # damaged weights are not the engine's doing: each question that meets them says so
        worst = float((mine - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
        if not worst <= (HALF_TOLERANCE if half else TOLERANCE):
            raise RefusedModelError(
                f"{name}: logits of {type(model).__name__} served in a packed batch differ from its own by "
                f"{worst:.2g} of their size; it would answer wrongly."
            )


def _arena_tokens(model: Any, max_context: int, shape: Mapping[str, int], devices: Sequence[Any]) -> int:
    """How many token positions the budget holds; at least one context of the longest kind."""
    import torch

    on_cuda = model.device.type == "cuda"
    itemsize = torch.empty((), dtype=model.dtype).itemsize
    per_token = bytes_per_token(**shape, itemsize=itemsize, on_cpu=not on_cuda)
    if on_cuda:
        # What the fullest device leaves to each of its layers, for all layers.
        budget = min(
            _free_on(device) // devices.count(device) * len(devices) for device in dict.fromkeys(devices)
        )
    else:
        budget = min(CPU_CACHE_BYTES, int(_free_memory() * CPU_CACHE_SHARE))
    one = -(-max_context // PAGE) * PAGE
    tokens = max(budget // per_token, one)
    if one * per_token > budget:
        log.warning(
            "keys and values of one context of %d tokens take %.1f GB, more than the budget of %.1f GB",
            max_context,
            one * per_token / 1e9,
            budget / 1e9,
        )
    return tokens


def _free_on(device: Any) -> int:
    """Bytes of a CUDA device that keys and values may take."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    # A worker that shares the card with others is held to its part of it.
    own = int(total * torch.cuda.get_per_process_memory_fraction(device))
    return int(min(free, own - torch.cuda.memory_reserved(device)) * CUDA_CACHE_SHARE)


def _free_memory() -> int:
    """Bytes of memory that the system says are available."""
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
