"""What the methods on the graph of records have in common: its options, building it, reading the best nodes.

Graph of Records, Thought-Retriever and node2vec (as the GoR paper compares them) read the same nodes,
chunks and recorded answers; they differ in how they rank them. So they share one index per document, down
to its place in the cache, and their rows differ in nothing else.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.errors import ConfigError
from bench.metering import Meter, metered
from bench.method import Method, MethodConfig, Replayed
from bench.models.api import Geometry, ModelSet
from bench.models.presets import PAPER_CHUNK_TOKENS
from bench.prompts import PromptStyle
from bench.reading import passage, read
from bench.schema import ContextItem, DocumentSet, Index, JsonValue, Prediction, Question
from methods.gor.records import Records, RecordsPlan, build_records
from methods.stand_ins import AUTO, encoder_for

GOR_CHUNK_TOKENS, GOR_OVERLAP_TOKENS = 256, 32
"""Of a window of 8K tokens (R Sec. 4.1), where PECAN's chunks have 300."""


class RecordsConfig(MethodConfig):
    """Options of the graph of records and of reading from it; R = Graph of Records, C = its released code."""

    k: int = Field(6, ge=1, description="nodes that are read (R Sec. 4.1: 6)")

    # The graph (R Sec. 3.1).
    queries: int = Field(30, ge=0, le=1000, description="simulated queries per document set (R Sec. 4.1: 30)")
    records_k: int = Field(
        6, ge=1, description="nodes that a simulated query is answered from (R Sec. 4.1: 6)"
    )
    temperature: float = Field(
        0.5, ge=0, le=10, description="at which queries are simulated; 0: greedily (R Sec. 4.1: 0.5)"
    )
    chunk_tokens: int | None = Field(
        None, ge=8, description="chunk length in tokens; default: 256/300 of the geometry's (R Sec. 4.1: 256)"
    )
    overlap_tokens: int | None = Field(
        None, ge=0, description="tokens shared by neighbouring chunks; default: an eighth (R Sec. 4.1: 32)"
    )
    question_tokens: int | None = Field(
        None, ge=4, description="most tokens of a simulated query; default: half a chunk"
    )  # our choice: the paper does not say
    answer_tokens: int | None = Field(
        None, ge=4, description="most tokens of a recorded answer; default: one chunk"
    )  # our choice: the paper does not say
    graph_model: str = Field(
        "",
        description="the model that asks and answers simulated queries; default: --model (R: Mixtral-8x7B)",
    )
    embedder: str = Field(
        AUTO,
        description="encoder of queries and nodes; auto: contriever (R Sec. 4.1), and minilm for a reader "
        "that is used below the papers' lengths",
    )
    prompt: PromptStyle = Field("pecan", description="the reader's prompt: pecan or longbench")


RecordsConfigT = TypeVar("RecordsConfigT", bound=RecordsConfig)
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """The nodes of a question with their scores, and what is to be said of the whole ranking."""

    records: Records
    scores: Scores
    """Higher is better, shape (nodes,)."""
    flags: tuple[str, ...] = ()
    about: Mapping[str, JsonValue] = field(default_factory=dict)
    """Added to the trace."""


class RecordsMethod(Method[RecordsConfigT]):
    """Build the graph of records, rank its nodes, read the best k; subclasses write :meth:`score`."""

    index_name = "records"
    index_version = "1"
    replayed = frozenset({"k"})

    def __init__(self, config: RecordsConfigT, geometry: Geometry, seed: int = 0) -> None:
        """Keep options, geometry and seed; raises ConfigError for lengths that do not fit together."""
        super().__init__(config, geometry, seed)
        plan = self.plan
        if plan.overlap_tokens >= plan.chunk_tokens:
            raise ConfigError(
                f"overlap_tokens={plan.overlap_tokens} is not less than chunk_tokens={plan.chunk_tokens}. "
                "Lower it."
            )
        longest = plan.chunk_tokens + plan.question_tokens + plan.answer_tokens
        if longest > geometry.input_limit:
            raise ConfigError(
                f"chunk_tokens={plan.chunk_tokens}, question_tokens={plan.question_tokens} and answer_tokens="
                f"{plan.answer_tokens} are together more than the model takes ({geometry.input_limit})."
            )

    @property
    def plan(self) -> RecordsPlan:
        """The options of the graph with their defaults filled in."""
        config = self.config
        chunk = config.chunk_tokens or max(
            8, self.geometry.chunk_tokens * GOR_CHUNK_TOKENS // PAPER_CHUNK_TOKENS
        )
        overlap = chunk * GOR_OVERLAP_TOKENS // GOR_CHUNK_TOKENS
        return RecordsPlan(
            chunk_tokens=chunk,
            overlap_tokens=overlap if config.overlap_tokens is None else config.overlap_tokens,
            queries=config.queries,
            k=config.records_k,
            temperature=config.temperature,
            question_tokens=config.question_tokens or max(4, chunk // 2),
            answer_tokens=config.answer_tokens or chunk,
            seed=self.seed,
        )

    def models(self) -> Mapping[str, str]:
        """The run's reader, the builder that writes the records, and the encoder."""
        given = self.config.embedder
        embedder = encoder_for(self.geometry) if given == AUTO else given
        return {"reader": "", "builder": self.config.graph_model, "embedder": embedder}

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the graph is built; every way of ranking shares it."""
        plan = asdict(self.plan)
        del plan["seed"]  # part of every index's key already
        return plan

    def index_roles(self) -> frozenset[str]:
        """Who writes the records and what compares them; who reads does not matter."""
        return frozenset({"builder", "embedder"})

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The graph of records of the documents."""
        records = await build_records(documents, models.lm("builder"), models.embedder(), self.plan)
        return records.to_index()

    @abstractmethod
    async def score(self, records: Records, index: Index, question: Question, models: ModelSet) -> Scores:
        """A score for every node, higher is better, shape (nodes,); never asked for a graph without nodes."""

    def pick(self, records: Records, scores: Scores, config: RecordsConfigT) -> list[int]:
        """The nodes to read, best first: the k with the highest scores; equal ones in the graph's order."""
        return [int(node) for node in np.argsort(-scores, kind="stable")[: config.k]]

    def remarks(self, index: Index) -> tuple[str, ...]:
        """Flags of every answer from this index."""
        return ()

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer from the picked nodes."""
        ranked = await self._rank(index, question, models)
        picked = self.pick(ranked.records, ranked.scores, self.config)
        return await self._read(ranked, picked, question, models)

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[RecordsConfigT]
    ) -> list[Replayed]:
        """One ranking for all k; each distinct choice of nodes is read once."""
        with metered(Meter()) as ranking:
            ranked = await self._rank(index, question, models)

        async def read_nodes(picked: tuple[int, ...]) -> Replayed:
            with metered(Meter()) as reading:
                prediction = await self._read(ranked, picked, question, models)
            return Replayed(prediction, Meter.combined([ranking, reading]))

        wanted = [tuple(self.pick(ranked.records, ranked.scores, config)) for config in configs]
        distinct = list(dict.fromkeys(wanted))
        found = dict(zip(distinct, await asyncio.gather(*map(read_nodes, distinct)), strict=True))
        return [found[picked] for picked in wanted]

    async def _rank(self, index: Index, question: Question, models: ModelSet) -> Ranked:
        records = Records.from_index(index, question.documents)
        if not records.nodes:
            return Ranked(records, np.zeros(0), ("empty_document",))
        scores = await self.score(records, index, question, models)
        learned = index.data.get("learned_from")
        about = {} if learned is None else {"learned_from": learned}
        return Ranked(records, scores, self.remarks(index), about)

    async def _read(
        self, ranked: Ranked, picked: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The reader's answer from the nodes in this order; should they not fit, the last go first."""
        records = ranked.records
        context = []
        for node in picked:
            at, score = records.nodes[node], float(ranked.scores[node])
            if at.chunk is not None:
                context.append(passage(at.chunk, question, score))
            else:
                context.append(ContextItem(at.text, node=records.id(node), score=score))
        prediction = await read(context, question, models.lm(), self.config.prompt, flags=ranked.flags)
        return replace(prediction, trace={"nodes": [records.id(node) for node in picked], **ranked.about})
