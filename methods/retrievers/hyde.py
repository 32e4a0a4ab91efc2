"""HyDE: search with a passage that the reader makes up for the question, and read the best k.

Gao et al. 2023 (arXiv 2212.10496): a model writes a hypothetical document that answers the question; chunks
are ranked by their inner product with the mean of its embedding and the question's, with Contriever, whose
index it shares. Writing is part of the question's cost. The authors' code (texttron/hyde) draws 8 documents
of 512 tokens; here it is one, written greedily, as long as the chunks that are searched  # our choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.method import ModelSet, current_meter
from bench.schema import Chunk, Index, Question
from methods.retrievers.contriever import Contriever

PROMPT = "Question:\n{question}\n\nWrite a passage that answers the question."
"""As the authors ask on web search, in our words."""


class Hyde(Contriever):
    """Inner product with the mean of a hypothetical passage and the question."""

    name = "hyde"
    version = "1"
    summary = "search with a passage that the reader makes up for the question, read the best k"
    paper = "Gao et al. 2023 (arXiv 2212.10496)"
    index_name = Contriever.name
    index_version = Contriever.version

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Inner product of every chunk with the mean vector of question and draft, shape (chunks,)."""
        draft = await models.lm().generate(PROMPT.format(question=question.query), self.chunk_tokens)
        encoder = models.embedder(self.query_role, pooling=self.pooling)
        if encoder.truncated([question.query]):
            current_meter().events.add("question_cut")
        searched = (await self._embed(encoder, [question.query, draft.text])).mean(axis=0)
        return np.asarray(index.arrays["embeddings"] @ searched, dtype=np.float64)
