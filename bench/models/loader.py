"""The only loader of Hugging Face models and tokenizers.

Safetensors only, no code from a repository, no randomly initialised weights: an incomplete checkpoint is
refused.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import ConfigError, ModelUnavailableError
from bench.flops.architecture import text_config
from bench.models.presets import Pooling, presets
from bench.models.sources import TOKENIZER_FILES, read_config, require_sizes, verify
from bench.models.spec import SPREAD, ModelSpec, loading_errors
from bench.models.tokenizer import TextTokenizer
from bench.packages import require

log = logging.getLogger(__name__)

_OWN_FILES = dict(trust_remote_code=False, local_files_only=True)
"""What every library is told: no code from a repository, nothing from the network."""


def fetch(spec: ModelSpec) -> Path:
    """The local folder with all of a model's files, downloaded if missing and checked.

    Raises ModelUnavailableError, also for a model behind a server.
    """
    _ = spec.local
    folder = spec.source.locate(spec.name)
    verify(spec.name, folder)
    return folder


def load_tokenizer(spec: ModelSpec) -> TextTokenizer:
    """The tokenizer of a model; its weights are neither fetched nor read.

    Raises ModelUnavailableError.
    """
    from transformers import AutoTokenizer

    folder = spec.source.locate(spec.name, TOKENIZER_FILES)
    require_sizes(spec.name, folder)
    with loading_errors(spec, folder), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, **_OWN_FILES)
    return TextTokenizer(spec.name, tokenizer)


def load_stop_configs(spec: ModelSpec) -> list[Any]:
    """The configuration and generation configuration of a model, as a loaded model has them; no weights.

    Raises ModelUnavailableError.
    """
    from transformers import AutoConfig, GenerationConfig

    folder = spec.source.locate(spec.name, TOKENIZER_FILES)
    with loading_errors(spec, folder), _quiet():
        config = AutoConfig.from_pretrained(folder, **_OWN_FILES)
        if not (folder / "generation_config.json").is_file():
            return [config, GenerationConfig.from_model_config(config)]
        return [config, GenerationConfig.from_pretrained(folder, local_files_only=True)]


KEPT_PRODUCTS = {"LRU_CACHE_CAPACITY": "64", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""In half precision on a processor torch and oneDNN compile a matrix product for each shape, and keep 1,024.

At 0.6 MB each, for texts of all lengths, they took more memory than keys and values. Read at the first one.
"""


_TEXT_PART = {
    r"^(model\.)?(?:language_model|text_model)\.(?:model\.)?(?!lm_head)": "model.",
    r"^language_model\.lm_head": "lm_head",
}
"""What checkpoints for text and images call the weights of their text part, and what it calls them itself."""


def load_causal(spec: ModelSpec) -> Any:
    """The causal language model (a ``PreTrainedModel`` in eval mode) on its device or devices, in its dtype.

    Raises ModelUnavailableError for missing, damaged or incomplete weights, ConfigError for a device that is
    not available here.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if spec.kind != "causal":
        raise ConfigError(f"{spec.name} is a text encoder; expected a causal language model such as 'tiny'.")
    spread = spec.actual_device == SPREAD
    if spread:
        _require_gpus(spec)
    device = None if spread else _device(spec)
    if device is not None and device.type == "cpu":
        _require_memory(spec)
    for name, most in KEPT_PRODUCTS.items():
        os.environ.setdefault(name, most)
    folder = fetch(spec)
    with loading_errors(spec, folder), _quiet():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=text_config(folder),
            key_mapping=_TEXT_PART,
            device_map=SPREAD if spread else None,
            dtype=getattr(torch, spec.actual_dtype),
            attn_implementation="sdpa",
            use_safetensors=True,
            **_OWN_FILES,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with the weights' names
        )
    model, report = loaded
    wrong = [f"{key} {list(stored)} instead of {list(own)}" for key, stored, own in report["mismatched_keys"]]
    _require_complete(spec, folder, [*report["missing_keys"], *wrong])
    if report["unexpected_keys"]:
        log.warning("%s: weights that it does not use: %s", spec.name, sorted(report["unexpected_keys"])[:5])
    if spread:
        # transformers keeps no map that puts everything on one device.
        _require_on_gpus(spec, getattr(model, "hf_device_map", {"": model.device}))
    else:
        model.to(device)
    return model.eval().requires_grad_(False)


def load_encoder(spec: ModelSpec, pooling: Pooling | None = None) -> Any:
    """The ``SentenceTransformer`` of an encoder, in float32 on its device, with its own truncation length.

    pooling: how the token vectors become one. A sentence-transformers folder and a preset state it
    themselves; a plain transformers folder does not and uses this value (default: mean, as in
    sentence-transformers).
    Raises ModelUnavailableError, and ConfigError for an encoder that states another pooling.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    if spec.kind != "encoder":
        raise ConfigError(f"{spec.name} is a causal language model; expected an encoder such as 'minilm'.")
    device = _device(spec)
    folder = fetch(spec)
    weights = {"use_safetensors": True, "dtype": torch.float32}
    with loading_errors(spec, folder), _quiet():
        if (folder / "modules.json").is_file():
            model = SentenceTransformer(str(folder), device=str(device), model_kwargs=weights, **_OWN_FILES)
        else:
            model = SentenceTransformer(
                modules=_encoder_modules(spec, folder, pooling, weights), device=str(device)
            )
    stated = _pooling_of(model)
    if pooling and stated != pooling:
        raise ConfigError(
            f"{spec.name} pools its token vectors by {stated}; this method compares vectors pooled by"
            f" {pooling}. Choose another encoder."
        )
    _require_complete(spec, folder, _missing_weights(model, folder))
    if spec.preset and spec.preset.max_tokens:
        model.max_seq_length = spec.preset.max_tokens
    return model.eval().requires_grad_(False)


def load_cross_encoder(spec: ModelSpec) -> Any:
    """The ``CrossEncoder`` of sentence-transformers: an encoder with one output, in float32 on its device.

    Raises ModelUnavailableError, and ConfigError for a model that does not score pairs.
    """
    import torch
    from sentence_transformers import CrossEncoder

    config = spec.config
    classes = [str(name) for name in config.get("architectures") or ["none"]]
    labels = config.get("num_labels") or len(config.get("id2label") or (0, 1))
    if labels != 1 or not all(name.endswith("ForSequenceClassification") for name in classes):
        raise ConfigError(
            f"{spec.name} does not score pairs: its config names {', '.join(classes)} with {labels} outputs; "
            "expected a cross-encoder, ...ForSequenceClassification with one, such as "
            "cross-encoder/ms-marco-MiniLM-L6-v2."
        )
    folder = fetch(spec)
    with loading_errors(spec, folder), _quiet():
        weights = {"use_safetensors": True, "dtype": torch.float32}
        model = CrossEncoder(str(folder), device=str(_device(spec)), model_kwargs=weights, **_OWN_FILES)
    names = {name for name, _ in model.model.named_parameters()}
    _require_complete(spec, folder, sorted(names - _stored_weights(folder)))
    return model.eval().requires_grad_(False)


def _stored_weights(folder: Path) -> set[str]:
    """The names of the weights in a folder's files."""
    from safetensors import safe_open

    stored: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as file:
            stored.update(file.keys())
    return stored


_DPR_CONTEXT = {r"^ctx_encoder\.": "question_encoder."}
"""DPR's two encoders are one architecture under two names, of which transformers' auto class knows one."""


def _encoder_modules(
    spec: ModelSpec, folder: Path, pooling: Pooling | None, weights: dict[str, Any]
) -> list[Any]:
    """The modules of an encoder whose folder is plain transformers: transformer, pooling, normalisation."""
    from sentence_transformers.sentence_transformer import modules as parts

    options: dict[str, Any] = {"processor_kwargs": {**_OWN_FILES}, "config_kwargs": {**_OWN_FILES}}
    if read_config(spec.name, folder).get("model_type") == "dpr":  # pools by itself: CLS, then its projection
        return [
            parts.Transformer(
                str(folder),
                model_kwargs={**weights, **_OWN_FILES, "key_mapping": _DPR_CONTEXT},
                modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
                module_output_name="sentence_embedding",
                **options,
            )
        ]
    transformer = parts.Transformer(str(folder), model_kwargs={**weights, **_OWN_FILES}, **options)
    mode = (spec.preset.pooling if spec.preset else None) or pooling or "mean"
    modules: list[Any] = [transformer, parts.Pooling(transformer.get_embedding_dimension(), mode)]
    if spec.preset and spec.preset.normalised:
        modules.append(parts.Normalize())
    return modules


def _pooling_of(model: Any) -> str:
    """How a SentenceTransformer pools: the mode of its pooling module; DPR, which has none, by ``cls``."""
    for module in model:
        if type(module).__name__ == "Pooling":
            return str(module.pooling_mode)
    return "cls" if _is_dpr(model) else "unknown pooling"


def _is_dpr(model: Any) -> bool:
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return getattr(config, "model_type", None) == "dpr"


def _device(spec: ModelSpec) -> Any:
    import torch

    try:
        device = torch.device(spec.actual_device)
    except RuntimeError as error:
        raise ConfigError(f"device {spec.local.device!r}: expected cpu, cuda, cuda:N or mps.") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device {spec.local.device!r}: torch {torch.__version__} sees {count} CUDA devices here."
            )
    return device


def _require_memory(spec: ModelSpec) -> None:
    """Raise ConfigError if the weights do not fit into this machine's memory, naming smaller models.

    Weights stored in the run's own number format are memory-mapped, one copy for all processes, and may be
    in the page cache already; so the check is against available memory, not free memory.
    """
    psutil: Any = importlib.import_module("psutil")
    free = psutil.virtual_memory().available
    needed = weights_bytes(spec)
    if needed <= free:
        return
    smaller = [spec.loaded(dtype="bfloat16")] if spec.actual_dtype == "float32" else []
    others = [replace(spec, name=name, preset=one) for name, one in presets().items() if one.architecture]
    smaller += [other for other in others if other.kind == "causal" and other.name != spec.name]
    ways = [
        f"--model {choice.name} --dtype {choice.actual_dtype} ({weights_bytes(choice) / 1e9:.1f} GB)"
        for choice in sorted(smaller, key=weights_bytes, reverse=True)
        if weights_bytes(choice) <= free
    ]
    raise ConfigError(
        f"{spec.name}: its weights take {needed / 1e9:.1f} GB in {spec.actual_dtype}, and this machine has"
        f" {free / 1e9:.1f} GB of memory left. Smaller: {'; '.join(ways[:3]) or 'tiny'}."
    )


def weights_bytes(spec: ModelSpec) -> int:
    """Memory that the weights of a model take in its number format."""
    return spec.architecture.parameters * (4 if spec.actual_dtype == "float32" else 2)


def _require_gpus(spec: ModelSpec) -> None:
    """Raise ConfigError unless there are several GPUs to spread a model over, and accelerate."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        raise ConfigError(
            f"device {spec.local.device!r} spreads {spec.name} over several GPUs; torch "
            f"{torch.__version__} sees {count} here. Use a machine with more, or load it onto one"
            " device: cpu, cuda or cuda:N."
        )
    require(f"device {spec.local.device!r}", "accelerate")


def _require_on_gpus(spec: ModelSpec, places: Mapping[str, Any]) -> None:
    """Raise ConfigError for a model that is partly in main memory or on disk."""
    left = [name or "the whole model" for name, place in places.items() if str(place) in ("cpu", "disk")]
    if left:
        shown = ", ".join(left[:3]) + (" ..." if len(left) > 3 else "")
        raise ConfigError(
            f"{spec.name} in {spec.actual_dtype} does not fit these GPUs: {shown} would stay in main memory, "
            "and every pass would wait for it. Use more GPUs, a smaller dtype or a smaller model."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no loading reports from transformers inside the block."""
    from transformers.utils import logging

    library: Any = logging
    bars, level = library.is_progress_bar_enabled(), library.get_verbosity()
    library.disable_progress_bar()
    library.set_verbosity_error()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()


def _require_complete(spec: ModelSpec, folder: Path, problems: Sequence[str]) -> None:
    if problems:
        shown = ", ".join(sorted(problems)[:5]) + (" ..." if len(problems) > 5 else "")
        raise ModelUnavailableError(
            f"{spec.name}: the weights in {folder} do not fill the model: {len(problems)} missing or of"
            f" another shape ({shown}). They would stay random; fetch a complete checkpoint."
        )


def _missing_weights(model: Any, folder: Path) -> list[str]:
    """Weights of the transformer inside a SentenceTransformer that its files lack.

    A missing pooler is harmless: sentence-transformers pools by itself.
    """
    transformer, stored = model[0].auto_model, _stored_weights(folder)
    if _is_dpr(model):
        stored = {re.sub(old, new, key) for key in stored for old, new in _DPR_CONTEXT.items()}
    prefix = f"{transformer.base_model_prefix}."
    stored |= {key.removeprefix(prefix) for key in stored}
    names = (name for name, _ in transformer.named_parameters())
    return [name for name in names if name not in stored and not name.startswith("pooler.")]
