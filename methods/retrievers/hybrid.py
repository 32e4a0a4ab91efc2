"""Hybrid: fuse the rankings of any two rankers by reciprocal rank and read the best k.

Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): a chunk's score is the sum over
rankings of 1 / (60 + its rank), ranks from 1. Chunks with equal scores share a rank, so that BM25 does
not order the many chunks without any query word  # our choice: the paper ranks without ties.
Each ranker has its own models and index, and its default options; BM25 and DPR are Graph of Records' pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import (
    Embedder,
    Geometry,
    LanguageModel,
    Method,
    ModelSet,
    PairScorer,
    RankConfig,
    RankedChunks,
    RankThenRead,
    Role,
)
from bench.schema import Chunk, Index, JsonValue, Question
from methods.retrievers.over_ranker import make_ranker

READER = "reader"
RRF_K = 60
"""Constant of reciprocal rank fusion (Cormack et al. 2009)."""


class HybridConfig(RankConfig):
    """The two rankers."""

    first: str = Field("bm25", description="a ranker")
    second: str = Field("sbert", description="the other ranker")


class Hybrid(RankThenRead[HybridConfig]):
    """Reciprocal rank fusion of two rankers."""

    name = "hybrid"
    version = "1"
    summary = "fuse any two rankers by reciprocal rank, read the best k"
    paper = "Cormack, Clarke and Büttcher 2009"
    Config = HybridConfig

    def __init__(self, config: HybridConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options and make the rankers; raises ConfigError for one that is none."""
        super().__init__(config, geometry, seed)
        pair = {"first": config.first, "second": config.second}
        self.rankers = {place: make_ranker(name, {}, config, geometry, seed) for place, name in pair.items()}

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, and each ranker's other models under its place: ``second_embedder``."""
        roles: dict[str, Role] = {}
        for place, ranker in self.rankers.items():
            for role, wanted in ranker.roles().items():
                before = roles.get(_named(place, role), wanted)
                shared = replace(before, index=before.index or wanted.index)
                roles[_named(place, role)] = shared.needing(wanted.needs, wanted.ways_out)
        return roles

    def inner(self) -> Sequence[Method[Any]]:
        """Both rankers."""
        return tuple(self.rankers.values())

    def index_options(self) -> Mapping[str, JsonValue]:
        """Those of both, with the rankers' names and versions."""
        return {
            place: [ranker.name, ranker.version, dict(ranker.index_options())]
            for place, ranker in self.rankers.items()
        }

    def choices(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and the rankers."""
        return {**super().choices(), "first": self.config.first, "second": self.config.second}

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """What each ranker keeps, under its place."""
        data: dict[str, JsonValue] = {}
        arrays: dict[str, NDArray[np.generic]] = {}
        for place, ranker in self.rankers.items():
            its_data, its_arrays = await ranker.prepare(chunks, _ModelsOf(place, models))
            data[place] = dict(its_data)
            arrays |= {f"{place}_{key}": array for key, array in its_arrays.items()}
        return data, arrays

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """The chunks by their fused score, in 0 .. 2 / 61, with the events of both rankings."""
        rankings: dict[str, RankedChunks] = {}
        for place, ranker in self.rankers.items():
            start = f"{place}_"
            arrays = {k.removeprefix(start): v for k, v in index.arrays.items() if k.startswith(start)}
            own = Index({"chunks": index.data["chunks"], **index.data[place]}, arrays)
            rankings[place] = await ranker.rank(own, question, _ModelsOf(place, models))
        chunks = rankings["first"].chunks
        every = [ranking.scores for ranking in rankings.values()]
        scores = reciprocal_rank_fusion(every) if chunks else np.zeros(0)
        return RankedChunks(
            chunks,
            scores,
            np.argsort(-scores, kind="stable"),
            tuple(dict.fromkeys(flag for ranking in rankings.values() for flag in ranking.flags)),
            {place: dict(ranking.trace) for place, ranking in rankings.items() if ranking.trace},
        )


class _ModelsOf:
    """The models of one of the rankers by the names that it gives them."""

    def __init__(self, place: str, models: ModelSet) -> None:
        self.place, self.models = place, models

    def lm(self, role: str = READER) -> LanguageModel:
        return self.models.lm(_named(self.place, role))

    def embedder(self, role: str = "embedder", *, pooling: Literal["mean", "cls"] | None = None) -> Embedder:
        return self.models.embedder(_named(self.place, role), pooling=pooling)

    def pair_scorer(self, role: str = "scorer") -> PairScorer:
        return self.models.pair_scorer(_named(self.place, role))


def _named(place: str, role: str) -> str:
    """The role's name in the run; the reader is shared."""
    return role if role == READER else f"{place}_{role}"


def reciprocal_rank_fusion(rankings: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum over rankings of 1 / (60 + rank); a ranking is its scores, higher is better, shape (n,)."""
    return np.asarray(np.sum([1 / (RRF_K + shared_ranks(scores)) for scores in rankings], axis=0))


def shared_ranks(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Ranks from 1 for the highest; equal scores share the best of their ranks, as in sports."""
    return np.searchsorted(np.sort(-scores), -scores) + 1
