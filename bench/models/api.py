"""The async model interface for methods: no devices, batches or caches.

Text that a method passes in is always *text*: nothing in it can become a control token. The model
applies its chat template; a context opens inside the first user turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bench.engine.eviction import Eviction
from bench.engine.heads import Heads
from bench.engine.sampling import Sampling
from bench.flops.architecture import Architecture
from bench.flops.meter import Meter, Usage


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


class ReadingContext(Protocol):
    """A conversation in the model's KV cache: it grows, is asked, and rolls back.

    Every token in it is forwarded exactly once.
    """

    @property
    def length(self) -> int:
        """Tokens in the context so far, template included."""

    async def extend(self, text: str, *, focus: tuple[int, int] | None = None) -> Span:
        """Append text to the open user turn; returns the token span of ``text[focus[0]:focus[1]]``.

        ``focus`` defaults to the whole text. The tokens may stay queued until the next probe or
        generation, so that extend and probe are one forward.
        Raises WindowExceededError, with nothing appended, if the text does not fit.
        """

    async def probe(self, choices: Sequence[str]) -> Probe:
        """Close the user turn, read the next-token logits of the choices, and roll the closing back."""

    async def generate(self, max_new_tokens: int, sampling: Sampling | None = None) -> Generation:
        """Close the user turn and answer, greedily or by drawing; the answer stays in the context."""

    async def say(self, reply: str) -> None:
        """Close the user turn, put ``reply`` in the assistant's mouth and open the next user turn."""

    async def settle(self) -> None:
        """Forward the queued tokens without reading logits, so that :meth:`recorded` covers them."""

    def watch(self, span: Span, heads: Heads | None = None) -> int:
        """From now on, record the attention of every appended or generated token to ``span``.

        heads: those that count, the same for all spans of a context; None: all.
        Returns the span's column in :meth:`recorded`. Costs memory tokens x spans, never tokens x tokens.
        Raises ValueError for a span that is empty or reaches past the context, and for heads that the model
        does not have or that differ from those of the spans before.
        """

    def recorded(self, span: Span) -> NDArray[np.float32]:
        """Attention of the tokens of ``span`` to the watched spans, shape (tokens, watched spans).

        Mean over the heads that count and the tokens of the watched span; causal, not normalised. Tokens that
        were appended before a span was watched have 0 in its column. The last tokens may be missing
        while they are still queued, as the last generated token is; settle, probe or generate forwards them.
        Raises ValueError if the span starts before anything was watched.
        """

    async def importance(self, rule: Eviction) -> NDArray[np.float32]:
        """How much each key of the settled context matters, shape (layers, key heads, length), 0 or more.

        Infinite where it must stay. What the rule forwards beyond the context is credited as ``prefill``.
        Raises ValueError while tokens are queued, NoAttentionError for a model that does not tell.
        """

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """From now on attend to these of the first keys alone; shape (layers, key heads, first tokens).

        Positions stay, and costs are those of the keys that are left. Raises ValueError for another shape,
        for more than the settled tokens, and where spans are watched; NoAttentionError where all keys stay.
        """

    def mark(self) -> int:
        """The context's current length, for :meth:`rewind`."""

    def rewind(self, mark: int) -> None:
        """Forget everything after ``mark`` (taken on this context in an open user turn); costs nothing.

        Raises ValueError for a mark past the end of the context.
        """

    def close(self) -> None:
        """Free the context's memory; closing twice is harmless."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class LanguageModel(Protocol):
    """A causal language model behind its engine."""

    @property
    def name(self) -> str:
        """Preset name or identifier; the key under which its FLOPs are credited."""

    @property
    def geometry(self) -> Geometry:
        """The lengths this model is used at."""

    @property
    def architecture(self) -> Architecture:
        """Its shape: layers, heads, parameters."""

    def tokenize(self, text: str) -> Tokenization:
        """Ids and character offsets of plain text: no BOS, no control tokens."""

    def count_tokens(self, text: str) -> int:
        """Number of tokens of plain text."""

    @property
    def chat_overhead(self) -> int:
        """Tokens that the chat template adds around one user turn, BOS and assistant header included."""

    def credit(self, meter: Meter, phase: str, usage: Usage) -> None:
        """Credit the usage, priced, to the meter: for a cost that is not that of the forwards that were run.

        Does nothing if no token was forwarded.
        """

    async def open(self, max_tokens: int | None = None) -> ReadingContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window).

        Waits while other contexts hold the memory, so a question must not hold two of one model at a time.
        Raises WindowExceededError when the model cannot take so many tokens.
        """

    async def generate(
        self, prompt: str, max_new_tokens: int, sampling: Sampling | None = None
    ) -> Generation:
        """One user turn, one answer, greedy unless ``sampling`` is given.

        Raises WindowExceededError if prompt, template and answer do not fit the model.
        """


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


class ModelSet(Protocol):
    """The models of one run by role (``reader``, ``embedder``, ...); loaded on first use."""

    def lm(self, role: str = "reader") -> LanguageModel:
        """The causal model in this role."""

    def embedder(self, role: str = "embedder", *, pooling: Literal["mean", "cls"] | None = None) -> Embedder:
        """The text encoder in this role.

        pooling: how its token vectors become one; needed if a plain encoder folder does not state it.
        """

    def pair_scorer(self, role: str = "scorer") -> PairScorer:
        """The cross-encoder in this role."""
