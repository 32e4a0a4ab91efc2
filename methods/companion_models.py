"""The models that a paper's method uses in addition to the reader, and our small stand-ins for them.

A small reader, used below the papers' lengths, gets small models that ship with the project; a reader at the
papers' lengths gets the papers' own. Every record and table names the models used.
"""

from __future__ import annotations

from bench.method import PAPER_CHUNK_TOKENS, Geometry

AUTO = "auto"
"""Option value that leaves the choice to the rules below."""
PAPER_PAIR, SMALL_PAIR = "dragon-plus", "tiny-dual"
"""Dragon's encoders, and our small pair of the same design, which is also DPR's design."""
PAPER_ENCODER, SMALL_ENCODER = "contriever", "minilm"
"""Contriever, and a shipped encoder of the same kind: one for questions and texts, mean of token vectors."""
PAPER_TREE_ENCODER = "multi-qa-mpnet"
"""The encoder of RAPTOR's released code."""
PAPER_COMPRESSOR, SMALL_COMPRESSOR = "phi-2", "tiny-s"
"""LongLLMLingua's compressor in PECAN, and our small model, a third of the small reader's size."""
PAPER_RANKING_ENCODER = "microsoft/deberta-xlarge-mnli"
"""The encoder of the BERTScore by which Graph of Records ranks nodes for training."""


def is_small(geometry: Geometry) -> bool:
    """Whether a reader is used below the papers' lengths, like the small stand-ins."""
    return geometry.chunk_tokens < PAPER_CHUNK_TOKENS


def companion(chosen: str, small: str, paper: str, geometry: Geometry) -> str:
    """The model that an option chooses; for AUTO the small one or the paper's, by the reader's geometry."""
    if chosen != AUTO:
        return chosen
    return small if is_small(geometry) else paper
