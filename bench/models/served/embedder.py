"""A text encoder behind ``/v1/embeddings``, its cost metered from our own token counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flops.architecture import Architecture
from bench.flops.formulas import texts_usage
from bench.flops.meter import current_meter
from bench.models.served.client import RefusedRequestError, ServerClient, WrongCountError

BATCH = 64
"""Texts of one request; exact vectors are asked for one by one."""


class ServedEmbedder:
    """A :class:`bench.models.api.Embedder` whose vectors a server computes, pools and normalises.

    Texts are cut here to the encoder's length, as a local encoder cuts them, and the server's token count
    must be ours. Cost as for a local encoder: phase ``embed``, special tokens included, padding excluded.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        *,
        client: ServerClient,
        architecture: Architecture,
        max_tokens: int,
        dim: int,
    ) -> None:
        """tokenizer: a Hugging Face fast tokenizer; max_tokens: special tokens included; dim: of a vector."""
        self.name, self._tokenizer, self.client = name, tokenizer, client
        tokenizer.split_special_tokens = True  # "[SEP]" inside a text is these five characters
        self.architecture, self.max_tokens, self.dim = architecture, max_tokens, dim

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of the texts exceed ``max_tokens`` and lose their end."""
        return sum(length > self.max_tokens for length in self._lengths(texts))

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> NDArray[np.float32]:
        """Embeddings of the texts, float32, shape (len(texts), dim).

        exact: one text per request, so that no vector depends on its neighbours here; the number format
        stays the server's. Raises WrongCountError, RefusedRequestError, ServerError.
        """
        meter = current_meter()
        fitting = [self._cut(text) for text in texts]
        size = 1 if exact else BATCH
        rows: list[list[float]] = []
        for at in range(0, len(fitting), size):
            rows += await self._batch(fitting[at : at + size])
        if not rows:
            return np.zeros((0, self.dim), dtype=np.float32)
        meter.credit(self.name, "embed", texts_usage(self.architecture, self._lengths(fitting)))
        return np.asarray(rows, dtype=np.float32)

    async def _batch(self, texts: Sequence[str]) -> list[list[float]]:
        address = self.client.address
        body = {"model": address.model, "input": list(texts), "encoding_format": "float"}
        sent = await self.client.post(f"{address.api}/embeddings", body)
        where = f"{self.name} (at {address.url})"
        try:
            entries = sorted(sent["data"], key=lambda entry: int(entry["index"]))
            vectors = [[float(value) for value in entry["embedding"]] for entry in entries]
            counted = (sent.get("usage") or {}).get("prompt_tokens")
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedRequestError(
                f"{where}: the answer holds no embeddings ({type(error).__name__}: {error})"
            ) from None
        if len(vectors) != len(texts) or any(len(vector) != self.dim for vector in vectors):
            lengths = sorted({len(vector) for vector in vectors})
            raise RefusedRequestError(
                f"{where}: {len(vectors)} vectors of length {lengths} for {len(texts)} texts; expected"
                f" {self.dim}. Is #tokenizer=... the encoder that is served?"
            )
        ours = sum(self._lengths(texts))
        if counted is not None and counted != ours:
            raise WrongCountError(
                f"{where}: {len(texts)} texts have {ours} tokens by our count and {counted} by the server's."
                " Is #tokenizer=... the encoder that is served?"
            )
        return vectors

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def _cut(self, text: str) -> str:
        """The text without the end that a local encoder would cut off."""
        spans, special = self._spans(text)
        keep = self.max_tokens - special
        if len(spans) <= keep:
            return text
        while keep > 0:
            cut = text[: spans[keep - 1][1]]
            if len(self._spans(cut)[0]) + special <= self.max_tokens:
                return cut
            keep -= 1  # the text before a cut can have more tokens than it had
        return ""

    def _spans(self, text: str) -> tuple[list[tuple[int, int]], int]:
        """The characters of each token of the text, and the number of special tokens around it."""
        encoded = self._tokenizer(text, return_offsets_mapping=True, truncation=False, verbose=False)
        spans = [(start, end) for start, end in encoded["offset_mapping"] if end > start]
        return spans, len(encoded["input_ids"]) - len(spans)
