"""HyDE: search with passages that the reader makes up for the question, and read the best k.

Gao et al. 2023 (arXiv 2212.10496): a model writes hypothetical documents that answer the question; chunks are
ranked by their inner product with the mean of these documents' embeddings and the question's, with
Contriever, whose index it shares. Writing is part of the question's cost. The authors' code:
texttron/hyde.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import ModelSet, Sampling
from bench.schema import Chunk, Index, Question
from methods.retrievers.contriever import Contriever, ContrieverConfig

PROMPT = "Question:\n{question}\n\nWrite a passage that answers the question."
"""As the authors ask on web search, in our words."""


class HydeConfig(ContrieverConfig):
    """Contriever's options, and how passages are made up."""

    drafts: int = Field(
        1,
        ge=1,
        le=32,
        description="hypothetical passages: one greedily, several by drawing (the authors' code: 8)",
    )  # our choice: the cheapest
    draft_tokens: int | None = Field(
        None,
        ge=1,
        description="most tokens of one; default: the length of a chunk (the authors' code: 512)",
    )  # our choice: as long as what is searched for
    temperature: float = Field(0.7, gt=0, description="of drawing several drafts (the authors' code: 0.7)")


class Hyde(Contriever):
    """Inner product with the mean of hypothetical passages and the question."""

    name = "hyde"
    version = "1"
    summary = "search with a passage that the reader makes up for the question, read the best k"
    paper = "Gao et al. 2023 (arXiv 2212.10496)"
    Config = HydeConfig
    config: HydeConfig
    index_name = Contriever.name
    index_version = Contriever.version

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Inner product of every chunk with the mean vector of question and drafts, shape (chunks,)."""
        drafts = await self._drafts(question, models)
        encoder = models.embedder(self.query_role, pooling=self.pooling)
        searched = (await self._embed(encoder, [question.query, *drafts])).mean(axis=0)
        return np.asarray(index.arrays["embeddings"] @ searched, dtype=np.float64)

    async def _drafts(self, question: Question, models: ModelSet) -> list[str]:
        """The texts of the hypothetical passages."""
        config, lm = self.config, models.lm()
        draws: list[Sampling | None] = [None]
        if config.drafts > 1:
            seeds = np.random.default_rng(self.seed).integers(2**62, size=config.drafts)
            draws = [Sampling(config.temperature, int(seed)) for seed in seeds]
        prompt = PROMPT.format(question=question.query)
        tokens = config.draft_tokens or self.chunk_tokens
        written = await asyncio.gather(*(lm.generate(prompt, tokens, draw) for draw in draws))
        return [draft.text for draft in written]
