"""The library llmlingua on a loaded model, offline, with every forward metered.

``PromptCompressor`` of llmlingua 0.2.2 downloads a tokenizer and loads its own model in its constructor, and
expects the key-value tuples that transformers had before 4.48. Its code is unchanged; adapters provide what
it expects: a model that takes and returns such tuples, and a tokenizer that reads a document as plain text.
One method is replaced, since it fails on texts that tokenise across its boundary.

The library calls the model directly and synchronously, with the model's own attention. The engine sets its
attention only inside its own forwards, so both can share one model; the library blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from llmlingua import PromptCompressor
from transformers import DynamicCache

from bench.method import ConfigError, LanguageModel, Usage, current_meter
from bench.models.language_model import CausalLanguageModel
from bench.schema import JsonValue

PHASE = "compress"
"""Phase to which the compressor's forwards are credited."""

LegacyCache = list[list[torch.Tensor]]
"""One [keys, values] per layer, each (batch, kv_heads, tokens, head_dim)."""


@dataclass(frozen=True)
class Compressed:
    """The library's result for a document."""

    text: str
    ranking: tuple[int, ...]
    """Positions of all chunks, most relevant first."""
    usage: Usage
    """Sum over its forwards, unpriced; already credited."""
    question_cut: bool
    """Whether the compressor saw only the beginning of the question."""


def compress(
    lm: CausalLanguageModel,
    chunks: Sequence[str],
    question: str,
    *,
    target_tokens: float,
    iterative_size: int,
    options: Mapping[str, JsonValue],
) -> Compressed:
    """The chunks compressed for the question to about ``target_tokens`` tokens of ``lm``.

    options: further arguments of ``PromptCompressor.compress_prompt``. Costs are credited to the current
    meter. Raises ConfigError for chunks or steps that exceed the model's window.
    """
    window = min(lm.max_positions, lm.geometry.window)
    compressor = OfflineCompressor(lm, window)
    longest = max(lm.count_tokens(chunk) for chunk in chunks)
    if longest > window // 2:
        raise ConfigError(
            f"A chunk of {longest} tokens is more than half of {lm.name}'s window of {window}. Lower "
            "chunk_tokens, or choose a compressor with a longer window."
        )
    if 2 * (iterative_size + compressor.prefix_bos_num) > window:
        raise ConfigError(
            f"iterative_size={iterative_size}: with {lm.name}'s window of {window} it can be at most "
            f"{window // 2 - compressor.prefix_bos_num}. Lower it, or choose another compressor."
        )
    if len(chunks) == 1 and longest < 3:  # nothing to drop, and the library fails on it
        return Compressed(chunks[0], (0,), Usage(), False)
    # After a question that fills most of the window the library fails once its cache is full.
    shown = beginning(question, window // 4, lm)  # our choice
    with metered_forwards(lm, PHASE) as usage:
        result = compressor.compress_prompt(
            list(chunks),
            question=shown if shown.strip() else " ",  # the library refuses an empty one
            target_token=target_tokens,
            iterative_size=iterative_size,
            concate_question=False,
            **options,
        )
    ranking = compressor.context_idxs[-1] if compressor.context_idxs else range(len(chunks))
    return Compressed(str(result["compressed_prompt"]), tuple(ranking), usage, shown != question)


def beginning(text: str, tokens: int, lm: LanguageModel) -> str:
    """The longest prefix of a text that ends between two tokens and has at most ``tokens`` of them."""
    while True:
        tokenized = lm.tokenize(text)
        if len(tokenized.ids) <= tokens:
            return text
        text = text[: tokenized.offsets[tokens][0]]  # a prefix may tokenise differently


class OfflineCompressor(PromptCompressor):  # type: ignore[misc]  # the package ships no types
    """The library's compressor around a loaded model; downloads nothing."""

    def __init__(self, lm: CausalLanguageModel, window: int) -> None:
        """Set everything that the library's own constructor sets, without its downloads.

        window: maximum tokens that the model gets at once.
        """
        self.model_name = lm.name
        self.use_llmlingua2 = False
        self.retrieval_model = self.retrieval_model_name = None
        self.open_api_config: dict[str, str] = {}
        self.cache_bos_num, self.prefix_bos_num = 10, 100
        self.tokenizer = PlainTextTokenizer(lm)
        self.oai_tokenizer = self.tokenizer  # only counts for a report that is not used
        self.model = TupleCacheModel(lm.hf_model)
        self.device = lm.hf_model.device
        self.context_idxs: list[list[int]] = []
        self.max_position_embeddings = window

    def get_prefix_length(self, prefix: str, text: str) -> int:
        """Tokens of ``prefix + text`` before the first one with a character of the text.

        The library's own method returns the same number, but fails if no token starts with the text.
        """
        ends = self.tokenizer.ends(prefix + text[:100])
        return next((at for at, end in enumerate(ends) if end > len(prefix)), len(ends))


class TupleCacheModel:
    """A transformers model with the interface before 4.48: the cache is a list of [keys, values]."""

    def __init__(self, model: Any) -> None:
        """model: a causal language model in eval mode."""
        self._model = model

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past_key_values: LegacyCache | None = None,
        use_cache: bool = True,
    ) -> SimpleNamespace:
        """``logits`` of every new token, shape (1, n, vocabulary), and the extended ``past_key_values``."""
        # Not built from the config: the library cuts caches, which a sliding-window layer's would not allow.
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(past_key_values or ()):
            cache.update(keys, values, layer)
        out = self._model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=use_cache
        )
        legacy = [[layer.keys, layer.values] for layer in out.past_key_values.layers]
        return SimpleNamespace(logits=out.logits, past_key_values=legacy)


class PlainTextTokenizer:
    """A Hugging Face tokenizer with the library's interface that never reads control tokens in a document."""

    def __init__(self, lm: CausalLanguageModel) -> None:
        """lm: the model of the tokenizer, which is not changed."""
        self._lm = lm
        self._before: list[int] = lm.hf_tokenizer("").input_ids
        """Ids that the tokenizer puts before every text: the beginning-of-sequence token, if any."""

    def __call__(self, text: str, return_tensors: str | None = None, add_special_tokens: bool = True) -> Any:
        """Ids of a text with its attention mask, as lists or, for ``pt``, tensors of shape (1, n)."""
        ids = [*(self._before if add_special_tokens else ()), *self._lm.tokenize(text).ids]
        mask = [1] * len(ids)
        if return_tensors is None:
            return _Encoding(input_ids=ids, attention_mask=mask)
        return _Encoding(input_ids=torch.tensor([ids], dtype=torch.long), attention_mask=torch.tensor([mask]))

    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens."""
        return list(self._lm.tokenize(text).ids)

    def ends(self, text: str) -> list[int]:
        """The end of each token of a text, in characters."""
        return [end for _, end in self._lm.tokenize(text).offsets]

    def decode(self, ids: Any) -> str:
        """Text of ids."""
        return str(self._lm.hf_tokenizer.decode(ids))

    def batch_decode(self, rows: Any) -> list[str]:
        """Text of each row of ids."""
        return [self.decode(row) for row in rows]


class _Encoding(dict[str, Any]):
    """The fields of an encoding by key or by attribute; the library uses both."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@contextmanager
def metered_forwards(lm: CausalLanguageModel, phase: str) -> Iterator[Usage]:
    """Credit every forward of ``lm``'s model inside the block to the current meter; yields their sum.

    For code that calls the model directly: a hook counts new tokens, cached tokens and logit rows of each
    call. Do not await inside the block, or the engine's forwards would be counted twice.
    """
    total = Usage()
    meter = current_meter()

    def count(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        texts, new = ids.shape
        cache = output.past_key_values
        attended = new if cache is None else cache.get_seq_length()
        usage = Usage(
            calls=1,
            new_tokens=texts * new,
            attended=texts * new * attended,
            logit_rows=texts * output.logits.shape[1],
            cached=texts * (attended - new),
        )
        total.add(usage)
        lm.credit(meter, phase, usage)

    handle = lm.hf_model.register_forward_hook(count, with_kwargs=True)
    try:
        yield total
    finally:
        handle.remove()
