"""Which models a paper's method uses beside the reader, and which of our small ones stand in for them.

A small reader, used below the papers' lengths, gets small companions that ship with the project; a reader at
the papers' lengths gets the papers' own. Every record and table names what was used.
"""

from __future__ import annotations

from bench.method import PAPER_CHUNK_TOKENS, Geometry

AUTO = "auto"
"""Value of an option that leaves the choice to these rules."""
PAPER_PAIR, SMALL_PAIR = "dragon-plus", "tiny-dual"
"""Dragon's encoders, and our small pair of the same design, which is that of DPR as well."""
PAPER_ENCODER, SMALL_ENCODER = "contriever", "minilm"
"""Contriever, and what ships with the project of its kind: one encoder for both, mean of token vectors."""
PAPER_COMPRESSOR, SMALL_COMPRESSOR = "phi-2", "tiny-s"
"""Who compresses for LongLLMLingua in PECAN, and our small model at a third of the small reader."""


PAPER_RANKING_ENCODER = "microsoft/deberta-xlarge-mnli"
"""By whose BERTScore Graph of Records ranks nodes for training."""


def is_small(geometry: Geometry) -> bool:
    """Whether a reader is used below the papers' lengths, as the small stand-ins are."""
    return geometry.chunk_tokens < PAPER_CHUNK_TOKENS


def encoder_pair_for(geometry: Geometry, paper: str = PAPER_PAIR) -> str:
    """The pair of encoders that Dragon, or whose the paper's is, uses beside a reader of this geometry."""
    return SMALL_PAIR if is_small(geometry) else paper


def encoder_for(geometry: Geometry) -> str:
    """The one encoder that Contriever uses beside a reader of this geometry."""
    return SMALL_ENCODER if is_small(geometry) else PAPER_ENCODER


def ranking_encoder_for(geometry: Geometry) -> str:
    """The encoder of BERTScore beside a reader of this geometry."""
    return SMALL_ENCODER if is_small(geometry) else PAPER_RANKING_ENCODER


def compressor_for(geometry: Geometry) -> str:
    """The model that compresses for a reader of this geometry."""
    return SMALL_COMPRESSOR if is_small(geometry) else PAPER_COMPRESSOR
