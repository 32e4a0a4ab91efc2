"""TF-IDF: rank chunks by the cosine of TF-IDF vectors and read the best k.

scikit-learn's TfidfVectorizer with its own defaults (raw term counts, smoothed idf, vectors of length 1),
fitted on the chunks of one document set; words are the same as for BM25.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.method import ModelSet, RankConfig, RankThenRead
from bench.schema import Chunk, Index, Question
from methods.retrievers.bm25 import words


class Tfidf(RankThenRead[RankConfig]):
    """Cosine of TF-IDF vectors over chunks."""

    name = "tfidf"
    version = "1"
    summary = "rank chunks by the cosine of TF-IDF vectors, read the best k"
    paper = "Salton and Buckley 1988; scikit-learn's TfidfVectorizer"
    Config = RankConfig

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Cosine of question and every chunk, shape (chunks,), in 0..1; all zero if no query word occurs."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(analyzer=words)
        texts = [chunk.text for chunk in chunks]
        if not any(words(text) for text in texts):  # scikit-learn refuses an empty vocabulary
            return np.zeros(len(chunks))
        vectors = vectorizer.fit_transform(texts)
        query = vectorizer.transform([question.query])
        return np.asarray((vectors @ query.T).toarray()[:, 0], dtype=np.float64)
