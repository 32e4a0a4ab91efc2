"""Reranking: the best n of any ranker, put in a new order by the reader's Yes or No, the best k read.

Pointwise relevance generation (Liang et al. 2022, HELM; Zhuang et al. 2024, arXiv 2310.14122): for each
candidate the model is asked whether the passage answers the question, and candidates are ordered by the
probability of Yes. The cost, n passages forwarded, is the question's.

Asked in PECAN's words (its Table A2), which the shipped readers know  # our choice. The question stands
before the passage, so that candidates share their beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import LanguageModel, ModelSet
from bench.schema import Chunk, Index, Question
from methods.pecan.prompts import PECAN_CHOICES, PECAN_NODE, pecan_search_head
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig


class RerankConfig(OverRankerConfig):
    """How many candidates are put in a new order."""

    n: int = Field(
        20, ge=1, description="candidates that are asked about; those after them keep the ranker's order"
    )  # our choice: papers rerank 20 to 100


class Rerank(OverRanker[RerankConfig]):
    """Order a ranker's candidates by the probability that they answer the question."""

    name = "rerank"
    version = "1"
    summary = "reorder a ranker's best n by the reader's Yes or No, read the best k"
    paper = "Liang et al. 2022 (pointwise relevance generation); Zhuang et al. 2024 (arXiv 2310.14122)"
    Config = RerankConfig

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Probability of Yes of the n candidates, in 0..1; below them -1, -2, ... in the ranker's order."""
        first = np.argsort(-await super().score(chunks, index, question, models), kind="stable")
        scores = np.empty(len(chunks))
        scores[first] = -1.0 - np.arange(len(chunks))
        candidates = first[: self.config.n]
        lm = models.lm()
        scores[candidates] = await asyncio.gather(*(p_yes(chunks[at], question, lm) for at in candidates))
        return scores


async def p_yes(chunk: Chunk, question: Question, lm: LanguageModel) -> float:
    """Probability of Yes to whether the chunk answers the question.

    Raises WindowExceededError for a chunk that does not fit the reader.
    """
    prompt = pecan_search_head(question.text) + PECAN_NODE.format(text=chunk.text)
    async with await lm.open(lm.count_tokens(prompt) + lm.chat_overhead) as context:
        await context.extend(prompt)
        return (await context.probe(PECAN_CHOICES)).probabilities[PECAN_CHOICES[0]]
