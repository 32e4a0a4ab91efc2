"""A model specification: resolved from a preset, a hub id or a folder, before anything is loaded."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from bench.errors import ConfigError, ModelUnavailableError, UnknownNameError
from bench.files.paths import written_path
from bench.flops.architecture import (
    Architecture,
    UnknownFamilyError,
    architecture_from_config,
    counted_architecture,
    text_config,
)
from bench.models.api import Geometry, ModelFacts
from bench.models.packed import PackedSource
from bench.models.presets import (
    PAPER_CHUNK_TOKENS,
    PAPER_INPUT_LIMIT,
    PAPER_SUMMARY_TOKENS,
    PAPER_WINDOW,
    ModelKind,
    Preset,
    presets,
)
from bench.models.processor import FAST_FROM, faster_dtype
from bench.models.served.address import FORM, ServerAddress, is_address, parse_address
from bench.models.served.client import ServerClient
from bench.models.served.dialects import TITLES, ServerInfo
from bench.models.served.known import described
from bench.models.sources import CONFIG_FILES, FolderSource, HubSource, Source, model_cache, read_config
from bench.schema import JsonValue

DType = Literal["float32", "bfloat16", "float16", "served"]


DTYPES: tuple[DType, ...] = ("float32", "bfloat16", "float16")


SPREAD = "balanced"
"""The device that spreads whole layers over all GPUs, equally many on each (transformers' ``device_map``)."""


def default_geometry(max_positions: int) -> Geometry:
    """The papers' lengths if they fit the model, else the same proportions at its own size.

    A window below 8,192 scales chunk and summary down with it (2,048 positions: chunks of 75, like ``tiny``).
    """
    window = min(PAPER_WINDOW, max_positions)
    return Geometry(
        chunk_tokens=max(8, window * PAPER_CHUNK_TOKENS // PAPER_WINDOW),
        window=window,
        input_limit=min(PAPER_INPUT_LIMIT, max_positions),
        summary_tokens=window * PAPER_SUMMARY_TOKENS // PAPER_WINDOW,
    )


@dataclass(frozen=True)
class Local:
    """The backend of a model that this process loads."""

    dtype: DType | None = None
    """None: bfloat16 on CUDA, and on the CPU for large models if its bfloat16 is faster
    (:mod:`bench.models.processor`); else float32. Encoders always use float32."""
    device: str | None = None
    """None: CUDA if available, else the CPU. SPREAD: a causal model over several GPUs."""

    def actual_dtype(self, model: ModelSpec) -> DType:
        """The number format in use: the requested one, or the default for kind and device."""
        if model.kind == "encoder":
            return "float32"
        if self.dtype:
            return self.dtype
        if self.actual_device.startswith("cuda") or self.actual_device == SPREAD:
            return "bfloat16"
        if self.actual_device == "cpu" and model.architecture.parameters >= FAST_FROM:
            return faster_dtype()
        return "float32"

    @property
    def actual_device(self) -> str:
        """The device in use: the requested one, or CUDA if available."""
        return self.device or ("cuda" if cuda_available() else "cpu")

    def identity(self, model: ModelSpec) -> dict[str, JsonValue]:
        """The model's part of a cell's identity; needs no weights."""
        return {
            "name": model.name,
            "source": str(model.source),
            "revision": model.revision,
            "dtype": model.actual_dtype,
            "attention": "sdpa",
            "max_tokens": model.preset.max_tokens if model.preset else None,
        }


@dataclass(frozen=True)
class Served:
    """The backend of a model behind a server, which has its weights.

    The server is asked for its kind, version and context length when one of these is first needed.
    """

    address: ServerAddress
    tokenizer: str = ""
    """The same model as a preset, hub id or folder, whose files say what it is."""
    actual_device: ClassVar[str] = "server"

    @cached_property
    def info(self) -> ServerInfo:
        """What the server says of itself and the model, or said last; raises ServerError."""
        file = model_cache().parent / "servers.json"
        return described(self.address, ServerClient(self.address).get, file)

    def actual_dtype(self, model: ModelSpec) -> DType:
        """The server's own, which it does not say; the name is for records."""
        return "served"

    def limited(self, geometry: Geometry) -> Geometry:
        """The lengths, none longer than what the server takes."""
        most = self.info.max_tokens
        if most is None or most >= geometry.input_limit:
            return geometry
        if most < geometry.window:
            raise ConfigError(
                f"{self.address.name}: the server takes {most} tokens, and the model is used with a window"
                f" of {geometry.window}. Start the server with a longer context."
            )
        return replace(geometry, input_limit=most)

    def identity(self, model: ModelSpec) -> dict[str, JsonValue]:
        """Model, server and tokenizer; the URL is no part of it."""
        return {
            "name": model.name,
            "source": str(self.address),
            "revision": self.info.revision,
            "server": self.info.kind,
            "server_version": self.info.version,
            "prompt": "ids",
            "tokenizer": self.tokenizer,
            "tokenizer_revision": model.revision,
            "max_tokens": self.info.max_tokens,
        }


@dataclass(frozen=True)
class ModelSpec:
    """A model, resolved as far as possible without loading it: files that say what it is, and a backend."""

    name: str
    """Preset name, hub id, folder name, or ``server:`` and the server's name; the key of its costs."""
    source: Source
    """Of its config and tokenizer, and of the weights that are loaded here."""
    preset: Preset | None = None
    backend: Local | Served = Local()

    @property
    def local(self) -> Local:
        """How it is loaded; raises ModelUnavailableError for a model behind a server."""
        if isinstance(self.backend, Local):
            return self.backend
        raise ModelUnavailableError(
            f"{self.name} is behind a server, which has its weights; they are not needed here. Name the model"
            " itself (preset, hub id or folder) to use them."
        )

    @property
    def server(self) -> Served | None:
        """Where it is served; None for a model that this process loads."""
        return self.backend if isinstance(self.backend, Served) else None

    def loaded(self, **how: Any) -> ModelSpec:
        """A new spec of the model, loaded with another dtype or device; a served one as before."""
        return replace(self, backend=replace(self.server) if self.server else replace(self.local, **how))

    @property
    def label(self) -> str:
        """As printed in tables: the model, and whether it was served."""
        if self.server is None:
            return self.preset.label if self.preset else self.name
        model = self.preset.label if self.preset else self.server.tokenizer
        return f"{model} through {TITLES[self.server.info.kind]}"

    @property
    def small(self) -> bool:
        """Whether this is a small model trained by this project, which a table must state."""
        return self.preset.small if self.preset else False

    @property
    def caution(self) -> str:
        """Caveat about its scores that every table must print; empty for most models."""
        return self.preset.caution if self.preset else ""

    @property
    def recommended_options(self) -> Mapping[str, str]:
        """Options of methods that suit this reader; empty for most models."""
        return self.preset.recommended_options if self.preset else {}

    @property
    def facts(self) -> ModelFacts:
        """What a language model is made with, besides its weights and its tokenizer."""
        chat = self.preset.chat if self.preset else "template"
        return ModelFacts(self.name, self.geometry, self.architecture, chat)

    @cached_property
    def config(self) -> Mapping[str, JsonValue]:
        """The model's ``config.json``, fetched from the hub if missing."""
        return read_config(self.name, self.config_folder)

    @cached_property
    def config_folder(self) -> Path:
        """A local folder with at least ``config.json`` and ``modules.json``; the weights may be missing.

        Raises ModelUnavailableError.
        """
        return self.source.locate(self.name, CONFIG_FILES)

    @cached_property
    def kind(self) -> ModelKind:
        """Causal language model or text encoder; without a preset, read from its config.

        A model for text and images is the causal model of its text part.
        """
        if self.preset:
            return self.preset.kind
        if (self.config_folder / "modules.json").is_file():
            return "encoder"
        classes = self.config.get("architectures") or []
        readers = ["ForCausalLM", "LMHeadModel"]
        readers += ["ForConditionalGeneration"] if "text_config" in self.config else []
        return "causal" if any(str(name).endswith(tuple(readers)) for name in classes) else "encoder"

    @cached_property
    def architecture(self) -> Architecture:
        """The model's shape, from its preset or config alone.

        Raises ConfigError for a family whose cost has no closed form here and cannot be counted.
        """
        if self.preset and self.preset.architecture:
            return self.preset.architecture
        with loading_errors(self, self.config_folder):
            try:  # transformers knows what a text part leaves out
                parts = "text_config" in self.config
                return architecture_from_config(text_config(self.config_folder) if parts else self.config)
            except UnknownFamilyError:
                return counted_architecture(self.config_folder, self.kind)

    @cached_property
    def geometry(self) -> Geometry:
        """The lengths at which the model is used; its positions and its server bound ``input_limit``."""
        positions = self.architecture.max_positions
        geometry = self.preset.geometry if self.preset else None
        if geometry is None:
            geometry = default_geometry(positions)
        else:
            geometry = replace(geometry, input_limit=min(geometry.input_limit, positions))
        return self.server.limited(geometry) if self.server else geometry

    @cached_property
    def revision(self) -> str:
        """The commit, package version or content hash that pins the files."""
        return self.source.pin(self.name)

    @property
    def actual_dtype(self) -> DType:
        """The number format in use."""
        return self.backend.actual_dtype(self)

    @property
    def actual_device(self) -> str:
        """The device in use; ``server`` for none of this machine."""
        return self.backend.actual_device

    def identity(self) -> dict[str, JsonValue]:
        """The model's part of a cell's identity: everything that can change a result."""
        return self.backend.identity(self)


def resolve(text: str, *, dtype: str | None = None, device: str | None = None) -> ModelSpec:
    """The model that ``text`` names: a preset, a local folder or a hub id, with an optional ``@revision``.

    ``server:URL#MODEL`` is a model behind a server (:mod:`bench.models.served.address`).
    Raises UnknownNameError if it is none of these, ConfigError for an invalid dtype or revision,
    ModelUnavailableError for missing files (a shipped model, a local folder).
    """
    text = text.strip()
    if is_address(text):
        return _served(parse_address(text))
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    name, revision = _split_revision(text)
    spec = ModelSpec(name, FolderSource(Path()), backend=Local(dtype, device))
    if name in presets():
        preset = presets()[name]
        return replace(spec, name=text, source=_preset_source(preset, revision), preset=preset)
    path = written_path(name)
    if name and (path.is_dir() or name.startswith((".", "/", "~", "\\"))):
        if revision:
            raise ConfigError(f"--model {text}: a local folder has no revisions; leave out @{revision}.")
        path = path.resolve()
        folder = replace(spec, name=path.name, source=FolderSource(path))
        folder.source.locate(name)
        read_config(name, path)
        return folder
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return replace(spec, name=text, source=HubSource(name, revision))
    readers = {name: preset for name, preset in presets().items() if preset.kind == "causal"}
    encoder = difflib.get_close_matches(text, presets().keys() - readers.keys(), n=1, cutoff=0.7)
    raise UnknownNameError(
        "model",
        text,
        presets() if encoder else readers,
        hint="A hub id (owner/name), a folder, or a model behind a server (vLLM, llama.cpp: "
        f"{FORM}) works as well.",
    )


def _served(address: ServerAddress) -> ModelSpec:
    """The model behind a server: its files are found by the address's tokenizer, its name, or its origin.

    None of its weights is used. Raises ConfigError, which asks for ``#tokenizer=NAME``, if no name leads to
    any files, and for an encoder; and ServerError.
    """
    tried: dict[str, str] = {}
    for name in _names(Served(address)):
        if not name or name in tried:
            continue
        try:
            model = resolve(name)
            if model.preset is None:
                model.source.locate(name, CONFIG_FILES)
            served = replace(model, name=address.name, backend=Served(address, model.name))
        except (UnknownNameError, ModelUnavailableError) as error:
            tried[name] = str(error)
            continue
        if served.kind != "causal":
            raise ConfigError(
                f"{address.name}: {name} is a text encoder. Readers can be behind a server; an encoder is"
                f" loaded here: name {name} itself."
            )
        return served
    raise ConfigError(
        f"{address.name}: prompts and costs need the model's tokenizer and shape. Tried: "
        + " ".join(f"{name} ({reason})" for name, reason in tried.items())
        + " Give the same model as a preset, hub id or folder with #tokenizer=NAME; config.json and"
        " tokenizer suffice, no weights."
    )


def _names(server: Served) -> Iterator[str]:
    """What the model may be called here; what the server loaded it from is asked for last."""
    address = server.address
    yield address.tokenizer or address.model
    if not address.tokenizer:
        yield server.info.origin


@lru_cache(maxsize=1)
def _torch_version() -> str:
    return importlib.metadata.version("torch")


def cuda_available() -> bool:
    """Whether torch can use CUDA; a CPU build of torch is recognised without importing it."""
    if importlib.util.find_spec("torch") is None:
        return False
    if _torch_version().endswith("+cpu"):
        return False
    import torch

    return torch.cuda.is_available()


def _split_revision(text: str) -> tuple[str, str | None]:
    if "@" not in text or written_path(text).is_dir():
        return text, None
    name, _, revision = text.rpartition("@")
    if not name or not revision:
        raise ConfigError(f"--model {text!r}: expected NAME@REVISION, or a name alone.")
    return name, revision


def _preset_source(preset: Preset, revision: str | None) -> Source:
    if revision is None:
        *first, last = preset.sources
        source = next((source for source in first if source.here()), last)
        if not isinstance(source, HubSource | PackedSource):  # these two are fetched on first use
            source.locate(preset.name)
        return source
    for source in preset.sources:
        if isinstance(source, HubSource):
            return replace(source, revision=revision)
    pinned = isinstance(preset.sources[-1], PackedSource)
    origin = "comes from a pinned package" if pinned else "ships with the project"
    raise ConfigError(f"{preset.name}@{revision}: {preset.name} {origin} and has no revisions.")


@contextmanager
def loading_errors(spec: ModelSpec, folder: Path) -> Iterator[None]:
    """Convert the library's various loading errors into one that names model and folder."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise ModelUnavailableError(
            f"{spec.name}: the weights in {folder} are damaged or cut short ({error}). Fetch them again."
        ) from error
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise ModelUnavailableError(
            f"{spec.name}: {folder} could not be loaded ({spec.backend}): {type(error).__name__}: {error}"
        ) from error
