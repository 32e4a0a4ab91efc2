"""The values that models take and give, and the encoders as methods see them; readers: ``conversation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray


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


class Embedder(Protocol):
    """A text encoder; the method chooses cosine or dot product to compare rows of its output."""

    @property
    def name(self) -> str:
        """Preset name or identifier; the key under which its FLOPs are credited."""

    @property
    def max_tokens(self) -> int:
        """Texts are cut to this many tokens, silently; see :meth:`truncated`."""

    @property
    def dim(self) -> int:
        """Length of an embedding."""

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of the texts exceed ``max_tokens`` and would lose their end."""

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> NDArray[np.float32]:
        """Embeddings of the texts, shape (len(texts), dim), as the checkpoint defines them.

        exact: compute in double precision and round, so that the result is bitwise independent of the rest
        of the batch, of threads and of the processor; takes twice the time. For algorithms that amplify
        small differences, such as clustering.
        """


class PairScorer(Protocol):
    """A cross-encoder: it reads a question and a text together."""

    @property
    def name(self) -> str:
        """Identifier; the key under which its FLOPs are credited."""

    @property
    def max_tokens(self) -> int:
        """Pairs are cut to this many tokens, the longer text first."""

    async def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """How well each text fits the query, in 0..1, shape (len(texts),)."""
