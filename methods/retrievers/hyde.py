"""HyDE: search with a passage that the reader makes up for the question, and read the best k.

Gao et al. 2023 (arXiv 2212.10496): a model writes a hypothetical document that answers the question; chunks
are ranked by their inner product with the mean of its embedding and the question's, with Contriever, whose
index it shares. Writing is part of the question's cost. The authors' code (texttron/hyde) draws 8 documents
of 512 tokens; here it is one, written greedily, as long as the chunks that are searched  # our choice.
"""

from __future__ import annotations

from bench.method import ModelSet
from bench.schema import Question
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

    async def searched(self, question: Question, models: ModelSet) -> list[str]:
        """The question and the draft."""
        draft = await models.lm().generate(PROMPT.format(question=question.query), self.chunk_tokens)
        return [question.query, draft.text]
