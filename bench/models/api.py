"""The values that models take and give, as methods see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bench.flops.architecture import Architecture


@dataclass(frozen=True)
class Geometry:
    """The lengths at which a model is used; methods take their defaults from here.

    PECAN, Sec. 3.1 and 4: chunks of 300 tokens and a window s of 8K. The small shipped models use the
    papers' setup at quarter scale.
    """

    chunk_tokens: int
    window: int
    """s: prompt, context and generated text together, in tokens."""
    input_limit: int
    """Most tokens a full-context prompt may have (100K in PECAN, or the model's own limit)."""
    summary_tokens: int
    """Room for one generated summary (max_new of graph construction)."""


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a language model besides its weights and its tokenizer."""

    name: str
    """Preset name or identifier, under which its FLOPs are credited."""
    geometry: Geometry
    """The lengths at which it is used."""
    architecture: Architecture
    chat: str = "template"
    """How prompts are wrapped; see :func:`bench.models.chat.chat_format`."""


@dataclass(frozen=True)
class Span:
    """Half-open range of token positions in a context."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Tokenization:
    """Token ids of a text with the character range ``[start, end)`` each came from."""

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Probe:
    """How likely the model is to start its answer with each of a few words."""

    probabilities: Mapping[str, float]
    """Softmax over the choices alone; sums to 1."""
    logits: Mapping[str, float]
    mass: float
    """Total probability of the choices over the whole vocabulary, in 0..1."""


@dataclass(frozen=True)
class Generation:
    """Text generated after a prompt, greedily unless sampled."""

    text: str
    """Without control tokens and surrounding white space."""
    token_ids: tuple[int, ...]
    """Without the end-of-turn token."""
    finish: Literal["stop", "length", "window"]
    """End-of-turn token, ``max_new_tokens`` reached, or the context is full."""
    prompt_tokens: int
    """Tokens in the context when generation began, template included."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Character range of ``text`` that each token wrote; tokens of one character share its range."""
