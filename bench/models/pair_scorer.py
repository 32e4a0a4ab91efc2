"""A cross-encoder as methods see it, its cost metered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flops.architecture import Architecture
from bench.flops.formulas import texts_usage
from bench.flops.meter import current_meter
from bench.models.embedder import BATCH


class PairScorer:
    """Question and text read together by an encoder with one output, as sentence-transformers runs it.

    Cost (phase ``score``): the tokens of each pair after truncation, special tokens included and padding
    excluded, through the encoder; its last layer, one row per pair, is left out.
    """

    def __init__(self, name: str, model: Any, architecture: Architecture) -> None:
        """model: a ``CrossEncoder`` in eval mode; architecture: the encoder's."""
        self.name, self._model, self.architecture = name, model, architecture
        model.default_prompt_name = None  # nothing but question and text is read
        model.tokenizer.split_special_tokens = True  # "[SEP]" inside a text is these five characters
        self.max_tokens = int(min(filter(None, (model.max_seq_length, architecture.max_positions))))

    async def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """How well each text fits the query: the sigmoid of the model's output, shape (len(texts),).

        Pairs that lose their end are flagged, ``pair_cut``.
        """
        from torch.nn import Identity

        if not texts:
            return np.zeros(0)
        encoded = self._model.tokenizer(
            [query] * len(texts), list(texts), truncation=False, padding=False, verbose=False
        )
        lengths = [min(len(ids), self.max_tokens) for ids in encoded["input_ids"]]
        if max(map(len, encoded["input_ids"])) > self.max_tokens:
            current_meter().events.add("pair_cut")
        outputs = self._model.predict(
            [(query, text) for text in texts],
            batch_size=BATCH,
            activation_fn=Identity(),
            show_progress_bar=False,
        )
        current_meter().credit(self.name, "score", texts_usage(self.architecture, lengths))
        await asyncio.sleep(0)
        return np.asarray(1 / (1 + np.exp(-np.asarray(outputs, dtype=np.float64))))
