"""BM25 + DPR: fuse the two rankings by reciprocal rank and read the best k.

Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): a chunk's score is the sum over
rankings of 1 / (60 + its rank), ranks from 1. Chunks with equal scores share a rank, so that BM25 does
not order the many chunks without any query word  # our choice: the paper ranks without ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.method import ModelSet, RankThenRead, Role
from bench.schema import Chunk, Index, JsonValue, Question
from methods.retrievers.bm25 import Bm25, Bm25Config
from methods.retrievers.dpr import Dpr, DprConfig

RRF_K = 60
"""Constant of reciprocal rank fusion (Cormack et al. 2009)."""


class Bm25DprConfig(Bm25Config, DprConfig):
    """The options of both rankers."""


class Bm25Dpr(RankThenRead[Bm25DprConfig]):
    """Reciprocal rank fusion of BM25 and DPR."""

    name = "bm25_dpr"
    version = "2"
    summary = "fuse BM25 and DPR by reciprocal rank, read the best k"
    paper = "Cormack et al. 2009 (fusion); Robertson and Zaragoza 2009; Karpukhin et al. 2020"
    Config = Bm25DprConfig

    def roles(self) -> Mapping[str, Role]:
        """DPR's: BM25 indexes nothing."""
        return self._dpr().roles()

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """DPR's chunk embeddings."""
        return await self._dpr().prepare(chunks, models)

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Fused score of every chunk, in 0 .. 2 / 61."""
        bm25 = Bm25(self.config, self.geometry, self.seed)
        rankings = [await ranker.score(chunks, index, question, models) for ranker in (bm25, self._dpr())]
        return reciprocal_rank_fusion(rankings)

    def _dpr(self) -> Dpr:
        return Dpr(self.config, self.geometry, self.seed)


def reciprocal_rank_fusion(rankings: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum over rankings of 1 / (60 + rank); a ranking is its scores, higher is better, shape (n,)."""
    return np.asarray(np.sum([1 / (RRF_K + shared_ranks(scores)) for scores in rankings], axis=0))


def shared_ranks(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Ranks from 1 for the highest; equal scores share the best of their ranks, as in sports."""
    return np.searchsorted(np.sort(-scores), -scores) + 1
