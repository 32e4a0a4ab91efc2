"""Dense retrieval: embed chunks and question, rank by cosine or dot product, read the best k.

The base of SBERT, Contriever, DPR and Dragon, which differ in their encoders (one, or one for questions
and one for chunks), in how token vectors become one, and in the similarity. Chunk embeddings are
query-independent and kept in the index; the question's embedding is query-dependent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.errors import UnknownNameError
from bench.files.paths import written_path
from bench.flops.meter import current_meter
from bench.method.contract import Role
from bench.method.ranking import RankConfig, RankThenRead
from bench.models.conversation import ModelSet
from bench.models.embedder import Embedder
from bench.models.presets import Pooling, presets
from bench.schema import Chunk, Index, JsonValue, Question

RankConfigT = TypeVar("RankConfigT", bound=RankConfig)


class DenseRanker(RankThenRead[RankConfigT]):
    """Similarity of embeddings over chunks; subclasses name their encoders in :meth:`roles`."""

    similarity: Literal["cosine", "dot"]
    pooling: ClassVar[Pooling | None] = None
    """How token vectors become one; None: as the checkpoint defines it."""
    query_role: ClassVar[str] = "embedder"
    context_role: ClassVar[str] = "embedder"

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """Chunk embeddings, float32, shape (chunks, dim); of length 1 for cosine."""
        encoder = models.embedder(self.context_role, pooling=self.pooling)
        texts = [chunk.text for chunk in chunks]
        data = {"max_tokens": encoder.max_tokens, "truncated_chunks": encoder.truncated(texts)}
        return data, {"embeddings": await self._embed(encoder, texts)}

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """Similarity of what is searched with to every chunk."""
        encoder = models.embedder(self.query_role, pooling=self.pooling)
        texts = await self.searched(question, models)
        if encoder.truncated(texts):
            current_meter().events.add("question_cut")
        query = (await self._embed(encoder, texts)).mean(axis=0)
        return np.asarray(index.arrays["embeddings"] @ query, dtype=np.float64)

    async def searched(self, question: Question, models: ModelSet) -> list[str]:
        """The texts whose mean vector is searched with: the question."""
        return [question.query]

    async def _embed(self, encoder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = await encoder.embed(texts)
        return unit_rows(vectors) if self.similarity == "cosine" else vectors


class PairConfig(RankConfig):
    """A pair of encoders, one for questions and one for chunks."""

    encoder: str = Field(description="presets NAME-query and NAME-context, or a folder of query and context")


PairConfigT = TypeVar("PairConfigT", bound=PairConfig)


class DualEncoderRanker(DenseRanker[PairConfigT]):
    """Two encoders; the index depends on the one for chunks alone."""

    query_role = "query_encoder"
    context_role = "context_encoder"

    @property
    def pair_name(self) -> str:
        """The pair in use."""
        return self.config.encoder

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, by whose tokenizer chunks are cut, and both encoders."""
        query, context = encoder_pair(self.pair_name)
        return {"reader": Role(), self.query_role: Role(query, index=False), self.context_role: Role(context)}


def encoder_pair(name: str) -> tuple[str, str]:
    """The models that ``name`` stands for, of questions and of chunks, by preset name or folder.

    Raises UnknownNameError for a name that is neither a pair of presets nor a folder.
    """
    query, context = f"{name}-query", f"{name}-context"
    if query in presets() and context in presets():
        return query, context
    folder = written_path(name)
    if folder.is_dir():
        return str((folder / "query").resolve()), str((folder / "context").resolve())
    known = sorted(n.removesuffix("-query") for n in presets() if n.endswith("-query"))
    hint = "A folder with folders query and context works as well."
    raise UnknownNameError("encoder pair", name, known, hint=hint)


async def question_vector(encoder: Embedder, question: str) -> NDArray[np.float32]:
    """Its embedding, shape (dim,); a question that loses its end is flagged, ``question_cut``."""
    if encoder.truncated([question]):
        current_meter().events.add("question_cut")
    return (await encoder.embed([question])).ravel()


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """One vector, or rows, scaled to length 1; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)
