"""A model specification: resolved from a preset, a hub id or a folder, before anything is loaded."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from bench.errors import ConfigError, ModelUnavailableError, UnknownNameError
from bench.flops.architecture import (
    Architecture,
    UnknownFamilyError,
    architecture_from_config,
    counted_architecture,
)
from bench.models.api import Geometry
from bench.models.fetching import is_cached, locate
from bench.models.presets import (
    PAPER_CHUNK_TOKENS,
    PAPER_INPUT_LIMIT,
    PAPER_SUMMARY_TOKENS,
    PAPER_WINDOW,
    Kind,
    Preset,
    presets,
)
from bench.models.processor import MEASURED_FROM, faster_dtype
from bench.models.served.address import FORM, ServerAddress, is_address, parse_address
from bench.models.served.client import ServerClient
from bench.models.served.dialects import TITLES, ServerInfo
from bench.models.served.known import described
from bench.models.sources import (
    FolderSource,
    HubSource,
    PackedSource,
    Source,
    local_folder,
    model_cache,
    read_config,
    revision_of,
)
from bench.schema import JsonValue

DType = Literal["float32", "bfloat16", "float16", "served"]


DTYPES: tuple[DType, ...] = ("float32", "bfloat16", "float16")


DEVICE_MAPS = ("balanced", "sequential")
"""Devices that spread whole layers over all GPUs: ``balanced``, equally many on each; ``sequential``, filling
one after the other (transformers' ``device_map``)."""


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
class ModelSpec:
    """A model, resolved as far as possible without loading it."""

    name: str
    """Preset name, hub id or folder name; the key of its costs in every ledger."""
    source: Source
    preset: Preset | None = None
    dtype: DType | None = None
    """None: bfloat16 on CUDA, and on the CPU for large models if its bfloat16 is faster
    (:mod:`bench.models.processor`); else float32. Encoders always use float32."""
    device: str | None = None
    """None: CUDA if available, else the CPU. One of DEVICE_MAPS: a causal model over several GPUs."""
    attention: str = "sdpa"
    """Attention kernel: ``sdpa``, ``eager`` or any name that transformers has registered."""

    @property
    def local_equivalent(self) -> ModelSpec:
        """The model whose files say what this one is: itself, unless a server has it."""
        return self

    @property
    def label(self) -> str:
        """As printed in tables."""
        return self.preset.label if self.preset else self.name

    @property
    def small(self) -> bool:
        """Whether this is a small model trained by this project, which a table must state."""
        preset = self.local_equivalent.preset
        return preset.small if preset else False

    @property
    def caution(self) -> str:
        """Caveat about its scores that every table must print; empty for most models."""
        preset = self.local_equivalent.preset
        return preset.caution if preset else ""

    @property
    def recommended_options(self) -> Mapping[str, str]:
        """Options of methods that suit this reader; empty for most models."""
        preset = self.local_equivalent.preset
        return preset.recommended_options if preset else {}

    @property
    def chat(self) -> str:
        """How prompts are wrapped; see :mod:`bench.models.chat`."""
        preset = self.local_equivalent.preset
        return preset.chat if preset else "template"

    @cached_property
    def config(self) -> Mapping[str, JsonValue]:
        """The model's ``config.json``, fetched from the hub if missing."""
        return read_config(self.name, self.config_folder)

    @cached_property
    def config_folder(self) -> Path:
        """A local folder with at least ``config.json`` and ``modules.json``; the weights may be missing.

        Raises ModelUnavailableError.
        """
        return locate(self.name, self.source, files=["config.json", "modules.json"])

    @cached_property
    def kind(self) -> Kind:
        """Causal language model or text encoder; without a preset, read from its config."""
        if self.preset:
            return self.preset.kind
        if (self.config_folder / "modules.json").is_file():
            return "encoder"
        classes = self.config.get("architectures") or []
        return (
            "causal" if any(str(c).endswith(("ForCausalLM", "LMHeadModel")) for c in classes) else "encoder"
        )

    @cached_property
    def architecture(self) -> Architecture:
        """The model's shape, from its preset or config alone.

        Raises ConfigError for a family whose cost has no closed form here and cannot be counted.
        """
        if self.preset and self.preset.architecture:
            return self.preset.architecture
        try:
            return architecture_from_config(self.config)
        except UnknownFamilyError:
            with loading_errors(self, self.config_folder):
                return counted_architecture(self.config_folder, self.kind)

    @cached_property
    def geometry(self) -> Geometry:
        """The lengths at which the model is used; ``input_limit`` never exceeds its positions."""
        positions = self.architecture.max_positions
        geometry = self.preset.geometry if self.preset else None
        if geometry is None:
            return default_geometry(positions)
        return replace(geometry, input_limit=min(geometry.input_limit, positions))

    @cached_property
    def revision(self) -> str:
        """The commit, package version or content hash that pins the files."""
        if isinstance(self.source, HubSource) and _is_commit(self.source.revision):
            return str(self.source.revision)
        if isinstance(self.source, PackedSource):
            return self.source.revision
        return revision_of(self.name, self.source, self.config_folder)

    @property
    def actual_dtype(self) -> DType:
        """The number format in use: the requested one, or the default for kind and device."""
        if self.kind == "encoder":
            return "float32"
        if self.dtype:
            return self.dtype
        if self.actual_device.startswith("cuda") or self.actual_device in DEVICE_MAPS:
            return "bfloat16"
        if self.actual_device == "cpu" and self.architecture.parameters >= MEASURED_FROM:
            return faster_dtype()
        return "float32"

    @property
    def actual_device(self) -> str:
        """The device in use: the requested one, or CUDA if available."""
        return self.device or ("cuda" if cuda_available() else "cpu")

    def identity(self) -> dict[str, JsonValue]:
        """The model's part of a cell's identity: everything that can change a result. Needs no weights."""
        return {
            "name": self.name,
            "source": str(self.source),
            "revision": self.revision,
            "dtype": self.actual_dtype,
            "attention": self.attention,
            "max_tokens": self.preset.max_tokens if self.preset else None,
        }


@dataclass(frozen=True)
class ServedSpec(ModelSpec):
    """A model behind a server: lengths, prompts and costs are those of its ``local_equivalent``.

    The server is asked for its kind, version and context length when one of these is first needed.
    """

    @property
    def address(self) -> ServerAddress:
        """Where it is served."""
        assert isinstance(self.source, ServerAddress)
        return self.source

    @cached_property
    def described(self) -> ServerInfo:
        """What the server says of itself and the model, or said last; raises ServerError."""
        file = model_cache().parent / "servers.json"
        return described(self.address, ServerClient(self.address).get, file)

    @cached_property
    def local_equivalent(self) -> ModelSpec:
        """The same model by preset, hub id or folder; none of its weights is used.

        Raises ConfigError, which asks for ``#tokenizer=NAME``, if no name leads to one.
        """
        own = self.address.tokenizer
        tried: dict[str, str] = {}
        for name in [own] if own else [self.address.model, self.described.origin]:
            if not name or name in tried:
                continue
            try:
                local_equivalent = resolve(name)
                if local_equivalent.preset is None:
                    locate(name, local_equivalent.source, files=["config.json", "modules.json"])
                return local_equivalent
            except (UnknownNameError, ModelUnavailableError) as error:
                tried[name] = str(error)
        raise ConfigError(
            f"{self.name}: prompts and costs need the model's tokenizer and shape. Tried: "
            + " ".join(f"{name} ({reason})" for name, reason in tried.items())
            + " Give the same model as a preset, hub id or folder with #tokenizer=NAME; config.json and"
            " tokenizer suffice, no weights."
        )

    @property
    def label(self) -> str:
        """As printed in tables: the model, and that it was served."""
        return f"{self.local_equivalent.label} through {TITLES[self.described.kind]}"

    @cached_property
    def config(self) -> Mapping[str, JsonValue]:
        """The ``config.json`` of its local_equivalent, or of ``#architecture=FILE``."""
        if self.address.architecture is None:
            return self.local_equivalent.config
        path = Path(self.address.architecture).expanduser()
        return read_config(self.name, path if path.is_dir() else path.parent, path.name)

    @cached_property
    def config_folder(self) -> Path:
        """That of its local_equivalent."""
        return self.local_equivalent.config_folder

    @cached_property
    def kind(self) -> Kind:
        """That of its local_equivalent."""
        return self.local_equivalent.kind

    @cached_property
    def architecture(self) -> Architecture:
        """Its local_equivalent's, or that of ``#architecture=FILE``.

        Raises ConfigError for a family whose cost has no closed form here and cannot be counted.
        """
        return (
            self.local_equivalent.architecture
            if self.address.architecture is None
            else architecture_from_config(self.config)
        )

    @cached_property
    def geometry(self) -> Geometry:
        """Its local_equivalent's lengths, none longer than what the server takes."""
        geometry, most = self.local_equivalent.geometry, self.described.max_tokens
        if most is None or most >= geometry.input_limit:
            return geometry
        if most < geometry.window:
            raise ConfigError(
                f"{self.name}: the server takes {most} tokens, and the model is used with a window of"
                f" {geometry.window}. Start the server with a longer context."
            )
        return replace(geometry, input_limit=most)

    @cached_property
    def revision(self) -> str:
        """What the server says that pins the weights; may be empty."""
        return self.described.revision

    @property
    def actual_dtype(self) -> DType:
        """The server's own, which it does not say; the name is for records."""
        return "served"

    @property
    def actual_device(self) -> str:
        """No device of this machine."""
        return "server"

    def identity(self) -> dict[str, JsonValue]:
        """Model, server and tokenizer; the URL is no part of it."""
        described, local_equivalent = self.described, self.local_equivalent
        shape = {} if self.address.architecture is None else {"architecture": asdict(self.architecture)}
        return {
            "name": self.name,
            "source": str(self.source),
            "revision": described.revision,
            "server": described.kind,
            "server_version": described.version,
            "prompt": "ids" if described.takes_ids else "text",
            "tokenizer": local_equivalent.name,
            "tokenizer_revision": local_equivalent.revision,
            "max_tokens": described.max_tokens,
            **shape,
        }


def resolve(
    text: str, *, dtype: str | None = None, device: str | None = None, attention: str = "sdpa"
) -> ModelSpec:
    """The model that ``text`` names: a preset, a local folder or a hub id, with an optional ``@revision``.

    ``server:URL#MODEL`` is a model behind a server (:mod:`bench.models.served.address`).
    Raises UnknownNameError if it is none of these, ConfigError for an invalid dtype or revision,
    ModelUnavailableError for missing files (a shipped model, a local folder).
    """
    text = text.strip()
    if is_address(text):
        address = parse_address(text)
        return ServedSpec(address.name, address)
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    name, revision = _split_revision(text)
    spec = ModelSpec(name, FolderSource(Path()), dtype=dtype, device=device, attention=attention)
    if name in presets():
        preset = presets()[name]
        return replace(spec, name=text, source=_preset_source(preset, revision), preset=preset)
    path = Path(name).expanduser()
    if name and (path.is_dir() or name.startswith((".", "/", "~", "\\"))):
        if revision:
            raise ConfigError(f"--model {text}: a local folder has no revisions; leave out @{revision}.")
        path = path.resolve()
        folder = replace(spec, name=path.name, source=FolderSource(path))
        locate(name, folder.source)
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
        hint="A hub id (owner/name), a folder, or a model behind a server (vLLM, llama.cpp, Ollama: "
        f"{FORM}) works as well.",
    )


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


def _is_commit(revision: str | None) -> bool:
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def _split_revision(text: str) -> tuple[str, str | None]:
    if "@" not in text or Path(text).expanduser().is_dir():
        return text, None
    name, _, revision = text.rpartition("@")
    if not name or not revision:
        raise ConfigError(f"--model {text!r}: expected NAME@REVISION, or a name alone.")
    return name, revision


def _is_available(source: Source) -> bool:
    """Whether the weights are on this machine: shipped, installed, unpacked, or in the hub cache."""
    if isinstance(source, HubSource):
        return is_cached(source, "model.safetensors")
    return local_folder(source) is not None


def _preset_source(preset: Preset, revision: str | None) -> Source:
    if revision is None:
        *first, last = preset.sources
        source = next((source for source in first if _is_available(source)), last)
        if not isinstance(source, HubSource | PackedSource):  # these two are fetched on first use
            locate(preset.name, source)
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
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise ModelUnavailableError(
            f"{spec.name}: {folder} could not be loaded with attention={spec.attention}, dtype="
            f"{spec.dtype or 'default'}: {type(error).__name__}: {error}"
        ) from error
