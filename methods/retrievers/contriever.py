"""Contriever: rank chunks by the dot product of mean-pooled embeddings and read the best k.

Izacard et al. 2022 (arXiv 2112.09118): one encoder for questions and texts, trained without labels; the
mean of the token vectors, not normalised, texts cut at 512 tokens. Graph of Records retrieves with it.
Its weights are on the hub (``encoder=contriever``), the default for a reader at the papers' lengths. For a
small reader the default is the shipped all-MiniLM-L6-v2, an encoder of the same kind, so that the ranking is
SBERT's; every record and table names the encoder used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from bench.method import DenseRanker, Geometry, RankConfig, Role
from bench.schema import JsonValue
from methods.companion_models import AUTO, PAPER_ENCODER, SMALL_ENCODER, companion


class ContrieverConfig(RankConfig):
    """Contriever's encoder."""

    encoder: str = Field(
        AUTO,
        description="encoder: preset, hub id or folder; auto: contriever, or minilm for a reader used below "
        "the papers' lengths",
    )
    similarity: Literal["dot", "cosine"] = Field(
        "dot",
        description="of question and chunk: dot (Izacard et al., Sec. 3), or cosine (Graph of Records' code)",
    )


class Contriever(DenseRanker[ContrieverConfig]):
    """Dot product of mean-pooled embeddings over chunks."""

    name = "contriever"
    version = "2"
    summary = "rank chunks by Contriever's dot product, read the best k"
    paper = "Izacard et al. 2022, Sec. 3"
    Config = ContrieverConfig
    pooling = "mean"

    def __init__(self, config: ContrieverConfig, geometry: Geometry, seed: int = 0) -> None:
        super().__init__(config, geometry, seed)
        self.similarity = config.similarity

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and whether embeddings are normalised."""
        return {**super().index_options(), "similarity": self.config.similarity}

    def choices(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and the similarity."""
        return {**super().choices(), "similarity": self.config.similarity}

    def roles(self) -> Mapping[str, Role]:
        """The run's reader and the encoder."""
        encoder = companion(self.config.encoder, SMALL_ENCODER, PAPER_ENCODER, self.geometry)
        return {"reader": Role(), "embedder": Role(encoder)}
