"""SBERT: rank chunks by the cosine of sentence embeddings and read the best k (PECAN Table 1, "SBERT").

PECAN names no checkpoint; the offline default is all-MiniLM-L6-v2 (as in Graph of Records), which cuts
every text at 256 of its own tokens. The limit and the number of cut chunks are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from bench.method import DenseRanker, RankConfig, Role


class SbertConfig(RankConfig):
    """SBERT's encoder."""

    encoder: str = Field("minilm", description="sentence-transformers preset, hub id or folder")


class Sbert(DenseRanker[SbertConfig]):
    """Cosine similarity of sentence embeddings over chunks."""

    name = "sbert"
    version = "1"
    summary = "rank chunks by sentence-embedding cosine, read the best k"
    paper = "Reimers and Gurevych 2019; baseline of PECAN, Table 1"
    Config = SbertConfig
    similarity = "cosine"

    def roles(self) -> Mapping[str, Role]:
        """The run's reader and the sentence encoder."""
        return {"reader": Role(), "embedder": Role(self.config.encoder)}
