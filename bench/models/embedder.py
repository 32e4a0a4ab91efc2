"""A sentence-transformers encoder as methods see it, its cost metered."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flops.architecture import Architecture
from bench.flops.formulas import texts_usage
from bench.flops.meter import current_meter

BATCH = 32
"""Texts in one forward."""
KEPT_TEXTS = 4096
"""Embeddings of single texts that are kept: 6 MB at 384 dimensions."""


class Embedder:
    """A text encoder: its own pooling, normalisation and truncation; a method compares rows of its output.

    Cost (phase ``embed``): the tokens that each text has after truncation, ``[CLS]`` and ``[SEP]``
    included and padding excluded, so that a text costs the same in every batch.
    """

    def __init__(self, name: str, model: Any, architecture: Architecture) -> None:
        """model: a ``SentenceTransformer`` in eval mode."""
        self.name, self.architecture = name, architecture
        self.hf_model = model
        """The SentenceTransformer, for libraries that call it directly."""
        model.default_prompt_name = None  # it would stand, uncounted, before questions and passages alike
        model.tokenizer.split_special_tokens = True  # "[SEP]" inside a text is these five characters
        self._alone = lru_cache(KEPT_TEXTS)(lambda text, exact: self._encode([text], exact))
        self.max_tokens = int(min(filter(None, (model.max_seq_length, architecture.max_positions))))

    @cached_property
    def _double_precision(self) -> Any:
        """The model with its weights in double precision, made on first use."""
        return copy.deepcopy(self.hf_model).double()

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        own = self.hf_model.get_embedding_dimension()  # of a DPR without projection 0
        return int(own or self.architecture.hidden)

    def token_lengths(self, texts: Sequence[str]) -> list[int]:
        """Each text's length in the encoder's tokens before truncation, special tokens included."""
        if not texts:
            return []
        encoded = self.hf_model.tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of the texts exceed ``max_tokens`` and lose their end."""
        return sum(length > self.max_tokens for length in self.token_lengths(texts))

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> NDArray[np.float32]:
        """Embeddings of the texts, float32, shape (len(texts), dim), without the encoder's own prompt.

        exact: compute in double precision and round, so that the result is bitwise independent of the rest
        of the batch, of threads and of the processor; takes twice the time, at the same credited cost. For
        algorithms that amplify small differences, such as clustering.
        """
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        meter = current_meter()
        lengths = [min(length, self.max_tokens) for length in self.token_lengths(texts)]
        # A text by itself is a question, embedded again for every row of a table.
        vectors = self._alone(texts[0], exact) if len(texts) == 1 else self._encode(texts, exact)
        meter.credit(self.name, "embed", texts_usage(self.architecture, lengths))
        await asyncio.sleep(0)
        return vectors.copy()

    def forget(self) -> None:
        """Drop the embeddings of single texts that are kept."""
        self._alone.cache_clear()

    def _encode(self, texts: Sequence[str], exact: bool) -> NDArray[np.float32]:
        model = self._double_precision if exact else self.hf_model
        vectors = model.encode(list(texts), batch_size=BATCH, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)
