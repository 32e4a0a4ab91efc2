"""BM25: rank chunks by Okapi BM25 and read the best k (PECAN Table 1, "BM25 Top-5" and "Top-X").

Package rank_bm25 with its own defaults (k1 1.5, b 0.75, epsilon 0.25), one corpus per document set. Of two
chunks no word's idf is above 0: the one with the question's words may come last. Words are lower-cased runs
of letters, digits, underscore  # our choice: the papers do not say. In Chinese such a run is a whole clause.
The corpus is passed as token lists: with strings, rank_bm25 would rank by single characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import ModelSet, RankConfig, RankThenRead
from bench.schema import Chunk, Index, Question

_WORD = re.compile(r"\w+")


class Bm25Config(RankConfig):
    """BM25's parameters; defaults are rank_bm25's."""

    k1: float = Field(1.5, ge=0, description="term-frequency saturation")
    b: float = Field(0.75, ge=0, le=1, description="length normalisation")
    epsilon: float = Field(0.25, ge=0, description="floor of negative idf, as a share of the mean idf")


def words(text: str) -> list[str]:
    """Lower-cased word tokens."""
    return _WORD.findall(text.lower())


class Bm25(RankThenRead[Bm25Config]):
    """Okapi BM25 over chunks."""

    name = "bm25"
    version = "1"
    summary = "rank chunks by BM25, read the best k"
    paper = "Robertson and Zaragoza 2009; baseline of PECAN, Table 1"
    Config = Bm25Config

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """BM25 of every chunk, shape (chunks,); all zero (document order) if no query word occurs."""
        from rank_bm25 import BM25Okapi

        corpus = [words(chunk.text) for chunk in chunks]
        if not any(corpus):  # rank_bm25 divides by the mean length
            return np.zeros(len(chunks))
        k1 = max(self.config.k1, 1e-9)  # at 0 the package divides 0 by 0 for a word that is not there
        ranker = BM25Okapi(corpus, k1=k1, b=self.config.b, epsilon=self.config.epsilon)
        with np.errstate(invalid="ignore"):  # as it does for b=1 and a chunk without words
            return np.nan_to_num(np.asarray(ranker.get_scores(words(question.query)), np.float64))
