"""Retrieval: rank what an index holds for the question, pick, read what was picked.

:class:`PickAndRead` is the base of every method that ranks once per question, whatever it ranks: chunks, or
the nodes of a tree or graph. :class:`RankThenRead` is the one for chunks, the base of BM25, SBERT and other
rankers: a ranker says how chunks are scored; chunking, the choice of k, the order in the context and the
reading are the same for all (PECAN, Sec. 4).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.flops.meter import Meter, charged
from bench.method.chunking import chunk_documents, restored, stored
from bench.method.contract import ConfigT, Method, MethodConfig, Replayed
from bench.method.prompts import DEFAULT_PROMPT, PROMPT_CHOICES, PromptStyle
from bench.method.reading import passages, read
from bench.models.conversation import ModelSet
from bench.schema import Chunk, DocumentSet, Index, JsonValue, Prediction, Question

Switch = Literal["on", "off"]
JOIN_DOCUMENTS = "on: several documents are one text before they are cut; off: each is cut by itself"
"""Description of a method's option ``join_documents``; on, since the costs of PECAN's Table 1 on HotpotQA and
MuSiQue are those of whole chunks."""
GAP_BUFFER = 5
"""Passages that ``k=gap`` reads beyond the gap (Adaptive-k's scripts: ``--retrieve_more 5``)."""


class RankConfig(MethodConfig):
    """Options of every rank-then-read method."""

    k: Annotated[int, Field(ge=1)] | Literal["gap"] = Field(
        5,
        description="passages kept; the papers use 5 and, at matched cost, 4 to 14; auto:METHOD finds the k "
        "that costs what METHOD costs on the same data and model; gap: those before the largest drop of the "
        "scores and five more (Adaptive-k, arXiv 2506.08479)",
    )
    order: Literal["rank", "document", "reverse"] = Field(
        "rank",
        description="order of the passages in the prompt: rank, best first; document, as in the source "
        "(OP-RAG, arXiv 2409.01666; DOS RAG, 2506.03989); reverse, best last",
    )  # our choice: the papers do not say
    chunk_tokens: int | None = Field(
        None, ge=8, description="chunk length in reader tokens; default: the model's geometry (papers: 300)"
    )
    overlap_tokens: int = Field(
        0, ge=0, description="tokens shared by neighbouring chunks"
    )  # PECAN: none; Graph of Records, Sec. 3.1: 32
    join_documents: Switch = Field("on", description=JOIN_DOCUMENTS)
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


RankConfigT = TypeVar("RankConfigT", bound=RankConfig)
RankedT = TypeVar("RankedT")


@dataclass(frozen=True)
class Picked:
    """The part of a ranking that is read, with the log of the choice."""

    positions: tuple[int, ...]
    """Of the picked items in the ranking, best first or in the order in which they are read."""
    trace: Mapping[str, JsonValue] = field(default_factory=dict)
    """The prediction's log."""


class PickAndRead(Method[ConfigT], Generic[ConfigT, RankedT]):
    """Rank once per question, pick by the options, read what was picked; subclasses write these three."""

    replayed = frozenset({"k"})

    @abstractmethod
    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedT:
        """The index ranked for the question; the same for every replayed option."""

    @abstractmethod
    def pick(self, ranked: RankedT, config: ConfigT) -> Picked:
        """The items that these options read; only chooses, never calls a model."""

    @abstractmethod
    async def read_picked(
        self, ranked: RankedT, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The reader's answer from the items at these positions."""

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer under this method's own options: a replay of one config."""
        return (await self.replay(index, question, models, [self.config]))[0].prediction

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[ConfigT]
    ) -> list[Replayed]:
        """One ranking for all configs; each distinct choice is read once."""
        with charged() as ranking:
            ranked = await self.rank(index, question, models)

        async def read_once(positions: tuple[int, ...]) -> Replayed:
            with charged() as reading:
                prediction = await self.read_picked(ranked, positions, question, models)
            return Replayed(prediction, Meter.combined([ranking, reading]))

        choices = [self.pick(ranked, config) for config in configs]
        distinct = list(dict.fromkeys(choice.positions for choice in choices))
        answers = dict(zip(distinct, await asyncio.gather(*map(read_once, distinct)), strict=True))
        return [
            Replayed(
                replace(answers[choice.positions].prediction, trace=choice.trace),
                answers[choice.positions].meter,
            )
            for choice in choices
        ]


@dataclass(frozen=True)
class RankedChunks:
    """The chunks with their scores, and their positions from best to worst."""

    chunks: Sequence[Chunk]
    scores: NDArray[np.float64]
    best_first: NDArray[np.intp]
    flags: tuple[str, ...] = ()
    """Events of the ranking, added to the prediction's."""
    trace: Mapping[str, JsonValue] = field(default_factory=dict)
    """The prediction's log."""
    candidates: int | None = None
    """How many, from the best on, were scored alike; None: all. ``k=gap`` looks among them."""


class RankThenRead(PickAndRead[RankConfigT, RankedChunks]):
    """Chunk, rank, read the best k; subclasses write :meth:`score` or :meth:`rank`, maybe :meth:`prepare`."""

    family = "rankers"

    @property
    def chunk_tokens(self) -> int:
        """Chunk length in reader tokens."""
        return self.config.chunk_tokens or self.geometry.chunk_tokens

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the text is cut; rankers with options of their own add them."""
        return {
            "chunk_tokens": self.chunk_tokens,
            "overlap_tokens": self.config.overlap_tokens,
            "join_documents": self.config.join_documents,
        }

    def choices(self) -> Mapping[str, JsonValue]:
        """How the text is cut."""
        return {
            "join_documents": self.config.join_documents,
            **({"overlap_tokens": self.config.overlap_tokens} if self.config.overlap_tokens else {}),
        }

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """What the ranker keeps besides the chunks: JSON data and arrays (default: nothing)."""
        return {}, {}

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """One score per chunk for ``question.query``, higher is better, shape (len(chunks),)."""
        raise NotImplementedError(f"{self.name} neither scores chunks nor ranks them")

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """Chunk spans and the ranker's own data."""
        chunks = chunk_documents(
            documents,
            models.lm().tokenize,
            self.chunk_tokens,
            self.config.overlap_tokens,
            join=self.config.join_documents == "on",
        )
        data, arrays = await self.prepare(chunks, models)
        return Index({"chunks": [stored(chunk) for chunk in chunks], **data}, arrays)

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """The chunks from best to worst; equal scores keep document order."""
        chunks = restored(index.data["chunks"], question.documents)
        scores = np.asarray(await self.score(chunks, index, question, models)) if chunks else np.zeros(0)
        if scores.shape != (len(chunks),):
            raise ValueError(f"score returned shape {scores.shape}, expected ({len(chunks)},): one per chunk")
        return RankedChunks(chunks, scores, np.argsort(-scores, kind="stable"))

    def pick(self, ranked: RankedChunks, config: RankConfigT) -> Picked:
        """The k best chunks, best first; with ``k=gap`` as many as :func:`before_gap` says."""
        scored = ranked.scores[ranked.best_first[: ranked.candidates]]
        k = before_gap(scored) if config.k == "gap" else config.k
        return Picked(tuple(int(chunk) for chunk in ranked.best_first[:k]), ranked.trace)

    async def read_picked(
        self, ranked: RankedChunks, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The reader's answer from the chunks in the configured order; drops the worst if they do not fit."""
        rank_of = {chunk: rank for rank, chunk in enumerate(positions)}
        orders = {"rank": positions, "document": sorted(positions), "reverse": positions[::-1]}
        order = orders[self.config.order]
        parts = [(i, part) for i in order for part in passages(ranked.chunks[i], question, ranked.scores[i])]
        context = [part for _, part in parts]
        worst_first = sorted(range(len(parts)), key=lambda at: (-rank_of[parts[at][0]], -at))
        flags = ranked.flags if ranked.chunks else ("empty_document", *ranked.flags)
        return await read(
            context, question, models.lm(), self.config.prompt, drop_order=worst_first, flags=flags
        )


def before_gap(scores: NDArray[np.float64]) -> int:
    """How many passages come before the largest drop of the scores, and ``GAP_BUFFER`` more.

    scores: of all passages, best first. The last tenth of the drops does not count; of equal drops the first
    does. More than there are passages means all of them. Adaptive-k (arXiv 2506.08479), as the authors' code
    runs it for questions: ``largest_gap``, ``ignore_extreme_tail`` 0.1, ``retrieve_more`` 5.
    """
    drops = -np.diff(scores)
    counted = drops[: len(drops) - len(drops) // 10]
    return (int(np.argmax(counted)) + 1 if len(counted) else 0) + GAP_BUFFER
