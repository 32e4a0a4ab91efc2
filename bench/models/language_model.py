"""A causal language model as methods see it: tokens, prompts, and conversations served by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from bench.engine.engine import Engine, Limits
from bench.errors import ConfigError
from bench.flops import Architecture, priced
from bench.metering import Meter, Usage
from bench.models.api import Generation, Geometry, Sampling, Tokenization, WindowExceededError
from bench.models.chat import ChatFormat, chat_format, stop_tokens
from bench.models.context import EngineContext, require_positive
from bench.models.tokenizer import TextTokenizer


class CausalLanguageModel:
    """A transformers causal model behind :class:`bench.models.api.LanguageModel`."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: TextTokenizer,
        *,
        geometry: Geometry,
        architecture: Architecture,
        chat_style: str = "template",
        limits: Limits | None = None,
    ) -> None:
        """model: a ``PreTrainedModel`` in eval mode; chat_style: see :func:`chat_format`.

        limits: how much goes into one forward pass; default: by device.
        """
        self._name, self._model, self._tokenizer = name, model, tokenizer
        self._geometry, self.architecture, self._limits = geometry, architecture, limits
        self.chat: ChatFormat = chat_format(tokenizer, chat_style)
        self.stops = stop_tokens(
            tokenizer, self.chat, model.config, getattr(model, "generation_config", None)
        )

    @property
    def name(self) -> str:
        """Preset name or identifier; the key under which its FLOPs are credited."""
        return self._name

    @property
    def geometry(self) -> Geometry:
        """The lengths this model is used at."""
        return self._geometry

    @property
    def hf_model(self) -> Any:
        """The transformers model, for libraries that call one by themselves (to be metered by a hook)."""
        return self._model

    @property
    def hf_tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self._tokenizer.hf

    @property
    def max_positions(self) -> int:
        """The longest context that the model itself takes, in tokens."""
        return self.architecture.max_positions

    @cached_property
    def engine(self) -> Engine:
        """What serves the contexts, set up on first use.

        Raises RefusedModelError for a model that it cannot serve rightly.
        """
        from bench.engine.serving import prepare

        longest = min(self.max_positions, max(self.geometry.window, self.geometry.input_limit))
        engine = prepare(self.name, self._model, max_context=longest)
        if self._limits is not None:
            engine.limits = self._limits
        return engine

    def tokenize(self, text: str) -> Tokenization:
        """Ids and character offsets of plain text: no BOS, no control tokens."""
        return self._tokenizer.encode(text)

    def count_tokens(self, text: str) -> int:
        """Number of tokens of plain text."""
        return len(self._tokenizer.encode(text).ids)

    @property
    def chat_overhead(self) -> int:
        """Tokens that the chat template adds around one user turn, BOS and assistant header included."""
        return self.chat.overhead

    async def open(self, max_tokens: int | None = None) -> EngineContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window).

        Waits while other contexts hold the memory. Raises WindowExceededError when the model, or the
        memory set aside for its contexts, cannot hold so many tokens.
        """
        room = min(self.geometry.window, self.max_positions) if max_tokens is None else max_tokens
        if room > self.max_positions:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was asked for; the model takes"
                f" {self.max_positions}."
            )
        if room > self.engine.arena.tokens:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was asked for; the memory for keys and values holds"
                f" {self.engine.arena.tokens}. Use a device with more memory."
            )
        return EngineContext(self, await self.engine.reserve(room), room)

    async def generate(
        self, prompt: str, max_new_tokens: int, sampling: Sampling | None = None
    ) -> Generation:
        """One user turn, one answer, greedy unless ``sampling`` says how it is drawn.

        Raises WindowExceededError if prompt, template and answer do not fit the model.
        """
        require_positive(max_new_tokens)
        needed = self.chat_overhead + self.count_tokens(prompt) + max_new_tokens
        if needed > self.max_positions:
            raise WindowExceededError(
                f"{self.name}: prompt, template and answer need {needed} tokens; the model takes"
                f" {self.max_positions}. Shorten the context or choose a model with a longer window."
            )
        async with await self.open(needed) as context:
            await context.extend(prompt)
            return await context.generate(max_new_tokens, sampling)

    def choice_ids(self, choices: Sequence[str]) -> list[int]:
        """The token with which each choice would begin an answer.

        Raises ConfigError when there are fewer than two, one is empty, or two begin with the same token.
        """
        firsts = [self.tokenize(self.chat.answer_prefix + choice).ids[:1] for choice in choices]
        if len(choices) < 2 or not all(firsts) or not all(choices):
            raise ConfigError(
                f"{self.name}: a probe needs two or more non-empty choices, got {list(choices)}."
            )
        ids = [first[0] for first in firsts]
        if len(set(ids)) < len(ids):
            raise ConfigError(
                f"{self.name}: choices {list(choices)} cannot be told apart by their first token (ids {ids})"
                " with this tokenizer. Choose words that begin differently."
            )
        return ids

    def credit(self, meter: Meter, phase: str, usage: Usage) -> None:
        """Credit the usage, priced, to the meter; nothing when no token went through."""
        if usage.new_tokens:
            meter.credit(self.name, phase, priced(self.architecture, usage))

    def decode(self, ids: Sequence[int]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Text of generated ids, without control tokens and outer white space; each token's range."""
        return self._tokenizer.decode_with_offsets(ids)
