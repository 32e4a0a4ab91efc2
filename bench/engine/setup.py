"""Set up a transformers model for the engine; refuse one that it would serve incorrectly."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch

from bench.engine.attention import Batch, UnservableError
from bench.engine.blocked_weights import block_weights
from bench.engine.engine import Engine
from bench.engine.kernel import PackedRow
from bench.engine.key_centres import key_centres
from bench.engine.kv_cache import PAGE, KVCache, bytes_per_token
from bench.engine.output_head import output_head
from bench.engine.placement import layer_devices
from bench.engine.plain import HALF, HALF_TOLERANCE, LIMITS as PLAIN_LIMITS, TOLERANCE, plain_runner
from bench.engine.runner import Runner
from bench.engine.scheduler import Limits, Scheduler
from bench.errors import BenchError

log = logging.getLogger(__name__)

SAFE_ROPE = frozenset({"default", "linear", "llama3", "yarn", "proportional"})
"""Rotary embeddings whose angles depend on a token's own position only."""

CPU_LIMITS = Limits(tokens=512, rows=64)
"""About 250 tokens saturate a core; more in a pass only delays other requests."""
CPU_TILE_LIMITS = Limits(tokens=2048, rows=64)
"""With bfloat16 on AMX tiles; measured on Qwen2.5-0.5B's shape, a seventh faster than 512."""
CUDA_LIMITS = Limits(tokens=8192, rows=256)

CPU_CACHE_BYTES = 4 << 30
CPU_CACHE_SHARE = 0.25
"""Keys and values may take this share of the memory that the weights leave available, and at most 4 GB. A
page of it takes memory once it is written."""
CUDA_CACHE_SHARE = 0.8
"""Share of the device memory that is free once the weights are loaded; the rest is for activations."""

CUDA_RETAINED_SHARE = 0.5
CPU_RETAINED_SHARE = 0.125
"""Share of the keys and values that closed contexts may hold, for others that begin alike; on a CPU at most 2
contexts of the longest kind: with a large reader they held more memory than anything but its weights."""


class TooLittleMemoryError(BenchError):
    """The free memory does not hold one context."""


class RefusedModelError(BenchError):
    """A model that the engine would serve incorrectly; the message gives the reason."""


def engine_for(name: str, model: Any, *, max_context: int) -> Engine:
    """The packed engine of a model, or where that would serve it incorrectly its own forward.

    Raises TooLittleMemoryError, and UncontinuableError for a model that neither reads rightly.
    """
    try:
        return build_engine(name, model, max_context=max_context)
    except RefusedModelError as error:
        reason = str(error)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"{name}: {type(model).__name__} cannot be packed ({type(error).__name__}: {error})."
    runner = plain_runner(name, model, max_context)
    log.warning("%s It is read by its own code instead, one text at a time, which is slower.", reason)
    scheduler = Scheduler(runner.kv_cache, PLAIN_LIMITS)
    scheduler.share_prefixes = False
    return Engine(name, runner, scheduler)


def build_engine(name: str, model: Any, *, max_context: int) -> Engine:
    """An engine for the model, checked against the model's own attention on a small ragged batch.

    max_context: longest context that will be opened, in tokens; the KV cache holds at least one.
    Raises RefusedModelError for a model whose attention the engine does not support (soft-capped, sink,
    bypassing the interface), whose rotary embedding depends on the batch, or whose logits differ.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    of_kinds = rope and all(isinstance(value, Mapping) for value in rope.values())  # of layers
    for parameters in rope.values() if of_kinds else [rope]:
        kind = parameters.get("rope_type", "default")
        if kind not in SAFE_ROPE:
            raise RefusedModelError(
                f"{name}: its rotary embedding ({kind}) depends on the longest row of a batch, so an answer "
                "would depend on what shares the pass. Use a model with default, llama3 or yarn scaling."
            )
    if getattr(config, "attn_temperature_tuning", False):
        raise RefusedModelError(f"{name}: it scales attention by a token's place among those of a pass.")
    layers = int(config.num_hidden_layers)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    shape = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim}
    centres = key_centres(model, layers)
    vocab = min(int(config.vocab_size), 997)
    probe = [[(7 * i + 3 * n) % vocab for i in range(n)] for n in (5, 1, 9)]  # texts of different lengths
    with _comparable(model), torch.inference_mode():
        expected = [
            model(torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].float()
            for ids in probe
        ]
    block_weights(model)
    with _comparable(model), torch.inference_mode():
        _self_check(name, model, shape, probe, expected, _windows(config, layers, max_context))
    devices = layer_devices(model, layers)
    kv_cache = KVCache(
        tokens=_cache_tokens(name, model, max_context, shape, devices),
        dtype=model.dtype,
        device=devices,
        key_centres=centres,
        **shape,
    )
    runner = Runner(model, kv_cache, output_head(model))
    limits = CPU_TILE_LIMITS if runner.traits.tiles else CPU_LIMITS
    retained = min(2 * max_context, int(CPU_RETAINED_SHARE * kv_cache.tokens))
    if model.device.type == "cuda":
        limits, retained = CUDA_LIMITS, int(CUDA_RETAINED_SHARE * kv_cache.tokens)
    return Engine(name, runner, Scheduler(kv_cache, limits, retained_tokens=min(retained, kv_cache.tokens)))


_WINDOWS = ("sliding_window", "attention_chunk_size", "keep_window_size")
"""What families call the number of tokens that a layer attends to."""


def _windows(config: Any, layers: int, max_context: int) -> int:
    """Layers with a window that a context can outgrow."""
    given = [getattr(config, key, None) for key in _WINDOWS if getattr(config, "use_sliding_window", True)]
    if not any(window and window < max_context for window in given):
        return 0
    kinds = getattr(config, "layer_types", None)
    return sum(kind != "full_attention" for kind in kinds) if kinds else layers


@contextmanager
def _comparable(model: Any) -> Iterator[None]:
    """Inside the block the key projections of a model in half precision have no bias.

    A large one rounds the keys themselves, so far that a model's own logits depend on its attention function:
    two right answers would differ by more than a wrong one may.
    """
    parts = model.modules() if model.dtype in HALF else ()
    biased = [part.k_proj for part in parts if getattr(part, "k_proj", None) is not None]
    biases = [projection.bias for projection in biased]
    for projection in biased:
        projection.bias = None
    try:
        yield
    finally:
        for projection, bias in zip(biased, biases, strict=True):
            projection.bias = bias


def _self_check(
    name: str,
    model: Any,
    shape: Mapping[str, int],
    probe: list[list[int]],
    expected: list[Any],
    windows: int,
) -> None:
    """Serve the probe texts packed and compare with the model's own answers, one text at a time.

    windows: layers of which each call must name a window, which these texts are too short to show.
    """
    tolerance = HALF_TOLERANCE if model.dtype in HALF else TOLERANCE
    kv_cache = KVCache(
        tokens=PAGE * len(probe),
        dtype=model.dtype,
        device=layer_devices(model, shape["layers"]),
        key_centres=(),
        **shape,
    )
    rows, first = [], 0
    for at, ids in enumerate(probe):
        rows.append(PackedRow(first, len(ids), 0, at * PAGE))
        first += len(ids)
    runner = Runner(model, kv_cache)
    batch = Batch(rows, kv_cache, model.device, runner.traits)
    try:
        tokens, last = [token for ids in probe for token in ids], [r.first + r.new - 1 for r in rows]
        logits = runner.logits(batch, tokens, last)
    except UnservableError as error:
        raise RefusedModelError(f"{name}: {error}, which the engine does not serve.") from None
    except (IndexError, TypeError, RuntimeError, AttributeError) as error:
        raise RefusedModelError(
            f"{name}: {type(model).__name__} cannot be served in a packed batch "
            f"({type(error).__name__}: {error})."
        ) from error
    if batch.calls != shape["layers"]:
        raise RefusedModelError(
            f"{name}: {type(model).__name__} called the attention function {batch.calls} times in "
            f"{shape['layers']} layers: it bypasses transformers' attention interface."
        )
    if batch.windows < windows:
        raise RefusedModelError(
            f"{name}: {windows} layers of {type(model).__name__} attend within a window, and {batch.windows} "
            "name it to the attention function: the others would attend to everything."
        )
    for packed, stock in zip(logits, expected, strict=True):
        if not stock.isfinite().all():
            continue  # damaged weights are no fault of the engine; each question that meets them reports them
        worst = float((packed - stock).abs().max() / stock.abs().max().clamp_min(1e-6))
        if not worst <= tolerance:
            raise RefusedModelError(
                f"{name}: logits of {type(model).__name__} served in a packed batch differ from its own by "
                f"{worst:.2g} of their size; it would answer wrongly."
            )


def _cache_tokens(
    name: str, model: Any, max_context: int, shape: Mapping[str, int], devices: Sequence[Any]
) -> int:
    """Token positions within the memory budget; at least one context of the longest kind.

    Raises TooLittleMemoryError if the machine's free memory does not hold that one.
    """
    on_cuda = model.device.type == "cuda"
    itemsize = torch.empty((), dtype=model.dtype).itemsize
    per_token = bytes_per_token(**shape, itemsize=itemsize, on_cpu=not on_cuda)
    if on_cuda:
        # The fullest device's free memory per layer, times all layers.
        free = budget = min(
            _free_on(device) // devices.count(device) * len(devices) for device in dict.fromkeys(devices)
        )
    else:
        free = psutil.virtual_memory().available
        budget = min(CPU_CACHE_BYTES, int(free * CPU_CACHE_SHARE))
    one_context = -(-max_context // PAGE) * PAGE
    tokens = max(budget // per_token, one_context)
    if one_context * per_token > free:
        raise TooLittleMemoryError(
            f"{name}: the keys and values of one context of {max_context:,} tokens take "
            f"{one_context * per_token / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: "
            f"{(one_context * per_token - free) / 1e9:.1f} GB are missing. Free memory, or choose a smaller "
            f"reader, such as qwen2.5-coder-0.5b; {free // per_token // PAGE * PAGE:,} tokens would fit."
        )
    return tokens


def _free_on(device: Any) -> int:
    """Bytes of a CUDA device that keys and values may take."""
    free, total = torch.cuda.mem_get_info(device)
    # A worker that shares the GPU with others may use only its own share.
    own = int(total * torch.cuda.get_per_process_memory_fraction(device))
    return int(min(free, own - torch.cuda.memory_reserved(device)) * CUDA_CACHE_SHARE)
