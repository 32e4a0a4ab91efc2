"""The one place where Hugging Face models and tokenizers are built.

Safetensors only, no code from a repository, nothing left at random values: a checkpoint that misses
a weight is refused.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.errors import ConfigError, ModelUnavailableError
from bench.flops import Architecture, architecture_from_config, architecture_from_modules
from bench.flops import UnknownFamilyError as _UnknownFamilyError
from bench.models.presets import DEVICE_MAPS, ModelSpec, Pooling
from bench.models.sources import locate, read_config, verify
from bench.models.tokenizer import TextTokenizer

log = logging.getLogger(__name__)


def fetch(spec: ModelSpec) -> Path:
    """The local folder with all of a model's files, downloaded if need be and checked.

    Raises ModelUnavailableError.
    """
    folder = locate(spec.name, spec.source)
    verify(spec.name, folder)
    return folder


def load_tokenizer(spec: ModelSpec) -> TextTokenizer:
    """The tokenizer of a model; its weights are neither fetched nor read.

    Raises ModelUnavailableError.
    """
    from transformers import AutoTokenizer

    folder = locate(spec.name, spec.source, files=["*.json", "*.model", "*.txt", "*.jinja"])
    with _reported(spec, folder), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return TextTokenizer(spec.name, tokenizer)


def load_causal(spec: ModelSpec) -> Any:
    """The causal language model (a ``PreTrainedModel`` in eval mode) on its device or devices, in its dtype.

    Raises ModelUnavailableError for missing, damaged or incomplete weights, ConfigError for a device,
    dtype or attention kernel that is not to be had here.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if spec.kind != "causal":
        raise ConfigError(f"{spec.name} is a text encoder; expected a causal language model such as 'tiny'.")
    spread = spec.actual_device in DEVICE_MAPS
    if spread:
        _require_gpus(spec)
    device = None if spread else _device(spec)
    folder = fetch(spec)
    with _reported(spec, folder), _quiet():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            device_map=spec.actual_device if spread else None,
            dtype=getattr(torch, spec.actual_dtype),
            attn_implementation=spec.attention,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with the weights' names
        )
    model, report = loaded
    wrong = [
        f"{name} {list(stored)} instead of {list(own)}" for name, stored, own in report["mismatched_keys"]
    ]
    _require_complete(spec, folder, [*report["missing_keys"], *wrong])
    if report["unexpected_keys"]:
        log.warning(
            "%s: weights that the model does not use: %s", spec.name, sorted(report["unexpected_keys"])[:5]
        )
    if spread:
        # A map that puts everything in one place is not kept.
        _require_on_gpus(spec, getattr(model, "hf_device_map", {"": model.device}))
    else:
        model.to(device)
    return model.eval().requires_grad_(False)


def load_encoder(spec: ModelSpec, pooling: Pooling | None = None) -> Any:
    """The ``SentenceTransformer`` of an encoder, in float32 on its device, with its own truncation length.

    pooling: how the token vectors must become one. A sentence-transformers folder and a preset say it
    themselves; a plain transformers folder does not, and is pooled as asked (default: mean, as
    sentence-transformers does).
    Raises ModelUnavailableError, and ConfigError for an encoder that says another pooling.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    if spec.kind != "encoder":
        raise ConfigError(f"{spec.name} is a causal language model; expected an encoder such as 'minilm'.")
    device = _device(spec)
    folder = fetch(spec)
    # Not every encoder has an sdpa path (MPNet has none), so the default is left to transformers.
    kernel = {} if spec.attention == "sdpa" else {"attn_implementation": spec.attention}
    weights = {"use_safetensors": True, "dtype": torch.float32, **kernel}
    with _reported(spec, folder), _quiet():
        if (folder / "modules.json").is_file():
            model = SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs=weights,
            )
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


_DPR_CONTEXT = {r"^ctx_encoder\.": "question_encoder."}
"""DPR's two encoders are one architecture under two names; transformers' auto class knows one of them."""


def _encoder_modules(
    spec: ModelSpec, folder: Path, pooling: Pooling | None, weights: dict[str, Any]
) -> list[Any]:
    """The modules of an encoder whose folder is plain transformers: transformer, pooling, normalisation."""
    from sentence_transformers.sentence_transformer import modules as parts

    kwargs = {"trust_remote_code": False, "local_files_only": True}
    options: dict[str, Any] = {"processor_kwargs": dict(kwargs), "config_kwargs": dict(kwargs)}
    if read_config(spec.name, folder).get("model_type") == "dpr":  # pools by itself: CLS, then its projection
        return [
            parts.Transformer(
                str(folder),
                model_kwargs={**weights, **kwargs, "key_mapping": _DPR_CONTEXT},
                modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
                module_output_name="sentence_embedding",
                **options,
            )
        ]
    transformer = parts.Transformer(str(folder), model_kwargs={**weights, **kwargs}, **options)
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


def architecture_of(model: Any) -> Architecture:
    """Architecture of a transformers model: closed form where the family has one, else counted."""
    try:
        return architecture_from_config(model.config)
    except _UnknownFamilyError:
        return architecture_from_modules(model)


def counted_architecture(spec: ModelSpec) -> Architecture:
    """Architecture of a model whose family has no closed form, counted on torch's ``meta`` device.

    Needs its config only. Raises ConfigError, ModelUnavailableError.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    folder = spec.config_folder
    with _reported(spec, folder), torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        auto: Any = AutoModelForCausalLM if spec.kind == "causal" else AutoModel
        return architecture_from_modules(auto.from_config(config, trust_remote_code=False))


def _device(spec: ModelSpec) -> Any:
    import torch

    try:
        device = torch.device(spec.actual_device)
    except RuntimeError as error:
        raise ConfigError(f"device {spec.device!r}: expected cpu, cuda, cuda:N or mps.") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device {spec.device!r}: torch {torch.__version__} sees {count} CUDA devices here."
            )
    return device


def _require_gpus(spec: ModelSpec) -> None:
    """Raise ConfigError where there is nothing to spread a model over, or nothing to do it with."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        raise ConfigError(
            f"device {spec.device!r} spreads {spec.name} over several GPUs; torch {torch.__version__} sees "
            f"{count} here. Give it more, or load it onto one device: cpu, cuda or cuda:N."
        )
    if importlib.util.find_spec("accelerate") is None:
        raise ConfigError(f"device {spec.device!r} needs the package accelerate. Run: pip install accelerate")


def _require_on_gpus(spec: ModelSpec, places: Mapping[str, Any]) -> None:
    """Raise ConfigError for a model of which a part was left in main memory or on disk."""
    left = [name or "the whole model" for name, place in places.items() if str(place) in ("cpu", "disk")]
    if left:
        shown = ", ".join(left[:3]) + (" ..." if len(left) > 3 else "")
        raise ConfigError(
            f"{spec.name} in {spec.actual_dtype} does not fit these GPUs: {shown} would stay in main memory, "
            "and every pass would wait for it. Use more GPUs, a smaller dtype or a smaller model."
        )


@contextmanager
def _reported(spec: ModelSpec, folder: Path) -> Iterator[None]:
    """Turn the library's many ways to fail on a folder into one error that names model and folder."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise ModelUnavailableError(
            f"{spec.name}: the weights in {folder} are damaged or cut short ({error}). Fetch them again."
        ) from error
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise ModelUnavailableError(
            f"{spec.name}: {folder} could not be loaded with attention={spec.attention}, dtype="
            f"{spec.actual_dtype}: {type(error).__name__}: {error}"
        ) from error


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
    """Weights of the transformer inside a SentenceTransformer that its file does not hold.

    A missing pooler is harmless: sentence-transformers pools by itself.
    """
    from safetensors import safe_open

    transformer = model[0].auto_model
    stored: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as file:
            stored.update(file.keys())
    if _is_dpr(model):
        stored = {re.sub(old, new, key) for key in stored for old, new in _DPR_CONTEXT.items()}
    prefix = f"{transformer.base_model_prefix}."
    stored |= {key.removeprefix(prefix) for key in stored}
    names = (name for name, _ in transformer.named_parameters())
    return [name for name in names if name not in stored and not name.startswith("pooler.")]
