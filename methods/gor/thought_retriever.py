"""Thought-Retriever: retrieve earlier answers of the model beside the text (baseline of Graph of Records).

Feng et al. 2024: what a model answered before, its thoughts, joins the chunks as a memory, and a new
question retrieves from both; nearly the same thing is never read twice. As in Graph of Records, the earlier
questions are the simulated queries of the document, so this is GoR without graph and training: the same
records, ranked by the similarity of their texts.

From the released code: of the ``5 k`` most similar texts, one is taken after the other unless its cosine
to one already taken is above 0.85. Departure: the code also asks the model whether an answer says anything,
and has it rewritten as a statement; here an answer is a thought as it is, and only empty ones are left out,
so that all methods on the records read the same nodes.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bench.method import ModelSet, question_vector, unit_rows
from bench.schema import Index, Question
from methods.gor.records import Records, cosines
from methods.gor.retrieval import RecordsConfig, RecordsMethod, Scores

RECALL = 5
"""Texts that are looked at for each that is wanted (released code)."""


class ThoughtRetrieverConfig(RecordsConfig):
    """The records, and what counts as said already."""

    redundant: float = Field(
        0.85,
        ge=-1,
        le=1,
        description="a text is passed over if its cosine to one already taken is above this (released code)",
    )


class ThoughtRetriever(RecordsMethod[ThoughtRetrieverConfig]):
    """Similarity over chunks and earlier answers, without repeating anything."""

    name = "thought_retriever"
    version = "2"
    summary = "retrieve among the text and answers to simulated queries, nothing twice, read the best k"
    paper = "Feng et al. 2024 (Thought-Retriever); baseline of Graph of Records, Table 1"
    Config = ThoughtRetrieverConfig

    async def score(self, records: Records, index: Index, question: Question, models: ModelSet) -> Scores:
        """Cosine of the question with every node."""
        return cosines(records.embeddings, await question_vector(models.embedder(), question.query))

    def choose(self, records: Records, scores: Scores, config: ThoughtRetrieverConfig) -> list[int]:
        """The k most similar nodes of which no two say nearly the same; fewer where there are not so many."""
        units = unit_rows(records.embeddings)
        picked: list[int] = []
        for node in np.argsort(-scores, kind="stable")[: RECALL * config.k]:
            if not picked or (units[picked] @ units[node]).max() <= config.redundant:
                picked.append(int(node))
            if len(picked) == config.k:
                break
        return picked
