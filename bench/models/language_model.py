"""A causal language model loaded in this process: its conversations live in the engine's memory.

Every token of a conversation goes through the model exactly once; what that costs and whom, says
:mod:`bench.models.conversation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.engine.eviction import REPEAT, REPEAT_FROM, Eviction, repetitions
from bench.engine.heads import Heads
from bench.engine.kv_cache import KVCache
from bench.engine.prefixes import Slot
from bench.engine.sampling import Sampling
from bench.engine.scheduler import Request, RequestResult
from bench.errors import NoAttentionError, WindowExceededError
from bench.flops.meter import Usage, current_meter
from bench.models.api import ModelFacts, Span
from bench.models.conversation import CLOSED, LanguageModel, ReadingContext
from bench.models.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from bench.engine.engine import Engine


class CausalLanguageModel(LanguageModel):
    """A transformers causal model in this process."""

    def __init__(self, facts: ModelFacts, tokenizer: TextTokenizer, model: Any) -> None:
        """model: a ``PreTrainedModel`` in eval mode."""
        super().__init__(facts, tokenizer, [model.config, getattr(model, "generation_config", None)])
        self.hf_model, self.hf_tokenizer = model, tokenizer.hf
        """Both for libraries that call the model directly (a hook must meter them)."""

    def forget(self) -> None:
        """Drop the keys and values that closed contexts left for others."""
        if "engine" in vars(self):
            self.engine.scheduler.forget()

    @cached_property
    def engine(self) -> Engine:
        """The engine that serves the contexts, set up on first use.

        Raises BenchError for a model that cannot be read rightly, or not in the free memory.
        """
        from bench.engine.setup import engine_for

        longest = min(self.max_positions, max(self.geometry.window, self.geometry.input_limit))
        return engine_for(self.name, self.hf_model, max_context=longest)

    def require_attention(self) -> None:
        """Raise NoAttentionError for a model without attention weights in every layer; sets the engine up."""
        if not self.engine.runner.attends:
            raise NoAttentionError(
                f"{self.name} ({type(self.hf_model).__name__}) gives no attention weights in some layers."
            )

    async def open(self, max_tokens: int | None = None) -> EngineContext:
        """A fresh context inside its first user turn, with room for ``max_tokens`` (default: the window).

        Waits while other contexts use the memory. Raises WindowExceededError if the model, or the
        memory reserved for its contexts, cannot hold that many tokens.
        """
        room = self.room(max_tokens)
        if room > self.engine.runner.kv_cache.tokens:
            raise WindowExceededError(
                f"{self.name}: a context of {room} tokens was requested; the memory for keys and values holds"
                f" {self.engine.runner.kv_cache.tokens}. Use a device with more memory."
            )
        return EngineContext(self, await self.engine.reserve(room), room)


class EngineContext(ReadingContext):
    """A conversation in the engine's memory.

    All layers keep their full past (no eviction, also for sliding-window models, whose window is a mask),
    so that it can always be rolled back.
    """

    def __init__(self, lm: CausalLanguageModel, slot: Slot, capacity: int) -> None:
        """A context with the chat template's opening queued; nothing is forwarded yet."""
        super().__init__(lm, capacity)
        self._lm, self._slot = lm, slot
        self._watched: list[Span] = []
        self._watched_since: list[int] = []
        self._heads: Heads | None = None
        """Whose attention to the watched spans is recorded."""
        self._recorded: list[NDArray[np.float32]] = []
        """Rows for the positions from ``_watched_since[0]`` on, one array per forward."""

    @property
    def _kept(self) -> int:
        return self._slot.length

    async def _forward(
        self,
        suffix: Sequence[int] = (),
        choices: Sequence[int] = (),
        decode: int = 0,
        sampling: Sampling | None = None,
    ) -> RequestResult:
        if decode:
            request = Request(
                self._slot,
                [*self._queue, *suffix],
                decode=decode,
                stops=self._lm.stops,
                limit=self._capacity,
                sampling=sampling,
            )
        else:
            request = Request(self._slot, self._queue, suffix, tuple(choices))
        if self._watched:
            request.watched = [(span.start, span.end) for span in self._watched]
            request.watch_from = self._watched_since[0]
            request.heads = self._heads
        try:
            result = await self._lm.engine.run(request)
        except BaseException:
            self._unusable = self._unusable or "a forward of it failed"  # the cache may hold part of it
            raise
        self._queue = []
        current_meter().reused_tokens += result.reused
        if len(result.attention):
            self._recorded.append(result.attention)
            self._trim_recorded()
        return result

    def watch(self, span: Span, heads: Heads | None = None) -> int:
        """See :meth:`bench.models.conversation.ReadingContext.watch`."""
        self._lm.require_attention()
        with self._exclusive():
            if self._slot.kept is not None:
                raise ValueError("a context that dropped keys records no attention")
            if not 0 <= span.start < span.end <= self.length:
                raise ValueError(f"{span} is not a range of tokens within the context's {self.length}")
            if self._watched and heads != self._heads:
                raise ValueError(f"all spans of a context are watched by the same heads, here {self._heads}")
            layers, of_each = self._lm.architecture.layers, self._lm.architecture.heads
            if heads is not None and not heads.fit(layers, of_each):
                raise ValueError(f"{layers} layers of {of_each} heads do not have all of the heads {heads}")
            self._heads = heads
            self._watched.append(span)
            self._watched_since.append(self.length)
            return len(self._watched) - 1

    def recorded(self, span: Span) -> NDArray[np.float32]:
        """See :meth:`bench.models.conversation.ReadingContext.recorded`."""
        if not self._watched or span.start < self._watched_since[0]:
            raise ValueError(f"{span} starts before the context recorded any attention")
        first = self._watched_since[0]
        out = np.zeros(
            (max(0, min(span.end, self._slot.length) - span.start), len(self._watched)), np.float32
        )
        at = first
        for rows in self._recorded:
            low, high = max(at, span.start), min(at + len(rows), span.end)
            if low < high:
                out[low - span.start : high - span.start, : rows.shape[1]] = rows[low - at : high - at]
            at += len(rows)
        for column, since in enumerate(self._watched_since):
            out[: max(0, since - span.start), column] = 0
        return out

    async def importance(self, rule: Eviction) -> NDArray[np.float32]:
        """See :meth:`bench.models.conversation.ReadingContext.importance`."""
        from bench.engine.key_scores import expected_attention, kvzip

        with self._exclusive():
            if self._queue:
                raise ValueError(f"{len(self._queue)} tokens are queued; settle the context first")
            if not isinstance(held := self._lm.engine.runner.kv_cache, KVCache):
                return await super().importance(rule)
            model, text, chat = self._lm.hf_model, self._slot.tokens, self._lm.chat
            if rule == "expected":
                return expected_attention(model, text)
            asked, asked_from = (self._lm.tokenize(request).ids for request in (REPEAT, REPEAT_FROM))
            pieces = repetitions(text, len(chat.opening), asked, asked_from, chat.closing)
            for piece in pieces:
                new = len(piece.tokens)
                usage = Usage(calls=1, new_tokens=new, attended=new * (len(text) + new), cached=len(text))
                self._lm.credit(current_meter(), "prefill", usage)
            layers = range(self._lm.architecture.layers)
            return kvzip(
                model, [held.read(layer, self._slot.range.start, len(text)) for layer in layers], pieces
            )

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """See :meth:`bench.models.conversation.ReadingContext.keep`."""
        import torch

        if not isinstance(self._lm.engine.runner.kv_cache, KVCache):
            super().keep(kept)
        shape = self._lm.architecture
        with self._exclusive():
            heads = (shape.layers, shape.kv_heads)
            if kept.shape[:2] != heads or kept.shape[2] > self._slot.reusable or self._watched:
                raise ValueError(
                    f"kept has shape {kept.shape}: expected {heads} and at most {self._slot.reusable} "
                    "settled tokens, in a context without watched spans"
                )
            if self._slot.kept is None:
                self._slot.whole = self._slot.length
            self._slot.kept = torch.from_numpy(kept)
            self._dropped = round(int((~kept).sum()) / (shape.layers * shape.kv_heads))

    def _cut(self, mark: int) -> None:
        if self._slot.kept is not None and mark < self._slot.whole:
            self._slot.kept, self._dropped = None, 0  # the keys are still there
        self._lm.engine.rewind(self._slot, mark)
        still_watched = sum(since <= mark for since in self._watched_since)
        del self._watched[still_watched:], self._watched_since[still_watched:]
        self._trim_recorded()

    def close(self) -> None:
        """Free the context's memory; closing twice is harmless."""
        if self._unusable != CLOSED:
            self._lm.engine.release(self._slot, retain=not self._unusable)
        super().close()

    def __del__(self) -> None:
        """Free the memory of a context that was never closed."""
        if getattr(self, "_unusable", CLOSED) != CLOSED and hasattr(self, "_slot"):
            self.close()

    def _trim_recorded(self) -> None:
        """Drop rows of tokens that were rolled back, and columns of spans that are no longer watched."""
        if not self._watched:
            self._recorded = []
            return
        left = max(0, self._slot.length - self._watched_since[0])
        trimmed: list[NDArray[np.float32]] = []
        for rows in self._recorded:
            if left > 0:
                trimmed.append(rows[:left, : len(self._watched)])
            left -= len(rows)
        self._recorded = trimmed
