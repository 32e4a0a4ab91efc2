"""Reranking: the best n of any ranker, put in a new order by who reads question and passage together.

Pointwise relevance generation (Liang et al. 2022, HELM, arXiv 2211.09110; called RG-YN by Zhuang et al. 2024,
arXiv 2310.14122): for each candidate the model is asked whether the passage answers the question, and
candidates are ordered by the probability of Yes. The cost, n passages forwarded, is the question's.

Asked in PECAN's words (its Table A2), which the shipped readers know  # our choice. The question stands
before the passage, so that candidates share their beginning.

``scorer`` names a cross-encoder instead (Nogueira and Cho 2019, arXiv 1901.04085): an encoder that reads
question and passage together and gives one number, such as ``cross-encoder/ms-marco-MiniLM-L6-v2`` or a
folder. It cuts pairs at its own length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import Field
from scipy.special import expit, logit

from bench.method import ConfigError, LanguageModel, ModelSet, RankedChunks, Role
from bench.schema import Chunk, Index, Question
from methods.pecan.prompts import PECAN_CHOICES, PECAN_NODE, pecan_search_head
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig

READER = "reader"


class RerankConfig(OverRankerConfig):
    """Who puts how many candidates in a new order."""

    scorer: str = Field(
        READER,
        description="who scores a candidate: the reader by Yes or No, or a cross-encoder (hub id or folder)",
    )
    n: int = Field(
        20, ge=1, description="candidates that are asked about; those after them keep the ranker's order"
    )  # our choice: papers rerank 20 to 100


class Rerank(OverRanker[RerankConfig]):
    """Order a ranker's candidates by how well they answer the question."""

    name = "rerank"
    version = "3"
    summary = "reorder a ranker's best n by the reader's Yes or No or a cross-encoder, read the best k"
    paper = "Liang et al. 2022 (pointwise relevance generation); Zhuang et al. 2024 (arXiv 2310.14122)"
    Config = RerankConfig

    def roles(self) -> Mapping[str, Role]:
        """The ranker's, of which the reader scores, or a cross-encoder."""
        roles, scorer = super().roles(), self.config.scorer
        if (inside := roles.get("scorer", Role(scorer)).model) != scorer != READER:
            raise ConfigError(f"scorer={scorer}: the ranker inside has {inside}; name one for both.")
        if scorer != READER:
            ways_out = "A cross-encoder runs in this process: give its hub id or folder."
            return {**roles, "scorer": Role(scorer, False, "tokens", ways_out)}
        ways_out = (
            "rerank asks how likely Yes is. Two ways out: a server that says so (vLLM, llama.cpp)"
            "; or a cross-encoder, --set scorer=NAME."
        )
        return {**roles, READER: roles[READER].needing("probabilities", ways_out)}

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """The n candidates by their score, in 0..1; below them, scored -1, -2, ..., the others as before."""
        first = await super().rank(index, question, models)
        chunks, scores = first.chunks, np.empty(len(first.chunks))
        scores[first.best_first] = -1.0 - np.arange(len(chunks))
        candidates = first.best_first[: self.config.n]
        if self.config.scorer != READER and chunks:
            texts = [chunks[at].text for at in candidates]
            scores[candidates] = await models.pair_scorer().score(question.query, texts)
        elif chunks:
            asked = (p_yes(chunks[at], question, models.lm()) for at in candidates)
            # Finer than that it is rounding; in log-odds, as many a p lies near 0 or 1.
            scores[candidates] = expit(np.round(logit(await asyncio.gather(*asked)), 2))
        best_first = first.best_first[np.argsort(-scores[first.best_first], kind="stable")]
        return replace(first, scores=scores, best_first=best_first, candidates=len(candidates))


async def p_yes(chunk: Chunk, question: Question, lm: LanguageModel) -> float:
    """Probability of Yes to whether the chunk answers the question.

    Raises WindowExceededError for a chunk that does not fit the reader.
    """
    prompt = pecan_search_head(question.text) + PECAN_NODE.format(text=chunk.text)
    async with await lm.open(lm.count_tokens(prompt) + lm.chat_overhead) as context:
        await context.extend(prompt)
        return (await context.probe(PECAN_CHOICES)).probabilities[PECAN_CHOICES[0]]
