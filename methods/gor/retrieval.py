"""What the methods on the graph of records have in common: its options, building it, reading the best nodes.

Graph of Records, Thought-Retriever and node2vec (as the GoR paper compares them) read the same nodes,
chunks and recorded answers; they differ in how they rank them. So they share one index per document, down
to its place in the cache, and their rows differ in nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    PAPER_CHUNK_TOKENS,
    PROMPT_CHOICES,
    ConfigError,
    Geometry,
    MethodConfig,
    ModelSet,
    PickAndRead,
    Picked,
    Prompting,
    PromptStyle,
    Role,
    passages,
    read,
)
from bench.schema import ContextItem, DocumentSet, Index, JsonValue, Prediction, Question
from methods.companion_models import AUTO, PAPER_ENCODER, SMALL_ENCODER, companion, is_small
from methods.gor.prompts import Wording, gor_answer_prompt
from methods.gor.records import Records, RecordsPlan, build_records

GOR_CHUNK_TOKENS, GOR_OVERLAP_TOKENS = 256, 32
"""Of a window of 8K tokens (R Sec. 3.1), where PECAN's chunks have 300."""


class RecordsConfig(MethodConfig):
    """Options of the graph of records and of reading from it; R = Graph of Records, C = its released code."""

    k: int = Field(6, ge=1, description="nodes that are read (R Sec. 3.1: 6)")

    # The graph (R Sec. 2.2).
    queries: int = Field(30, ge=0, le=1000, description="simulated queries per document set (R Sec. 3.1: 30)")
    records_k: int = Field(6, ge=1, description="nodes a simulated query is answered from (R Sec. 3.1: 6)")
    temperature: float = Field(
        0.5, ge=0, le=10, description="at which queries are simulated; 0: greedily (R Sec. 3.1: 0.5)"
    )
    chunk_tokens: int | None = Field(
        None,
        ge=8,
        description="chunk length in tokens of the records' model; default: 256/300 of the geometry's (R "
        "Sec. 3.1: 256, of LangChain's TokenTextSplitter, whose default is GPT-2's tokenizer)",
    )
    overlap_tokens: int | None = Field(
        None, ge=0, description="tokens shared by neighbouring chunks; default: an eighth (R Sec. 3.1: 32)"
    )
    graph_model: str = Field(
        "",
        description="the model that asks and answers simulated queries; default: --model (R: Mixtral-8x7B)",
    )
    embedder: str = Field(
        AUTO,
        description="encoder of queries and nodes; auto: contriever (R Sec. 3.1), and minilm for a reader "
        "that is used below the papers' lengths",
    )
    wording: Literal["auto", "paper", "ours"] = Field(
        "auto",
        description="of the prompts of queries, records and answers: paper (R App. D.1, D.2), or ours, on "
        "which the small readers were trained; auto: the paper's, and ours for a reader that is used below "
        "the papers' lengths",
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


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


class RecordsMethod(PickAndRead[RecordsConfigT, Ranked]):
    """Build the graph of records, rank its nodes, read the best k; subclasses write :meth:`score`."""

    family = "graphs and trees"
    index_name = "records"
    index_version = "1"

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
                f"chunk_tokens={plan.chunk_tokens}: with its question and answer {longest} tokens, more than "
                f"the model takes ({geometry.input_limit}). Lower it."
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
            question_tokens=max(4, chunk // 2),  # our choice: the paper does not say
            answer_tokens=chunk,  # our choice: the paper does not say
            seed=self.seed,
            wording=self.wording,
        )

    @property
    def wording(self) -> Wording:
        """Whose words queries and records are asked for in."""
        if self.config.wording == "auto":
            return "ours" if is_small(self.geometry) else "paper"
        return self.config.wording

    @property
    def prompt(self) -> Prompting:
        """The reader's prompt: at the papers' lengths that of the records (App. D.2)."""
        if self.config.prompt != DEFAULT_PROMPT or self.wording == "ours":
            return self.config.prompt
        return partial(gor_answer_prompt, wording=self.wording)

    def choices(self) -> Mapping[str, JsonValue]:
        """How the records are written."""
        return {"wording": self.wording, "answer_tokens": self.plan.answer_tokens}

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, the builder that writes the records, and the encoder."""
        encoder = Role(companion(self.config.embedder, SMALL_ENCODER, PAPER_ENCODER, self.geometry))
        return {"reader": Role(index=False), "builder": Role(self.config.graph_model), "embedder": encoder}

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the graph is built; every way of ranking shares it."""
        plan = asdict(self.plan)
        del plan["seed"]  # part of every index's key already
        return plan

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The graph of records of the documents."""
        records = await build_records(documents, models.lm("builder"), models.embedder(), self.plan)
        return records.to_index()

    @abstractmethod
    async def score(self, records: Records, index: Index, question: Question, models: ModelSet) -> Scores:
        """A score for every node, higher is better, shape (nodes,); never asked for a graph without nodes."""

    def choose(self, records: Records, scores: Scores, config: RecordsConfigT) -> list[int]:
        """The nodes to read, best first: the k with the highest scores; equal ones in the graph's order."""
        return [int(node) for node in np.argsort(-scores, kind="stable")[: config.k]]

    def remarks(self, index: Index) -> tuple[str, ...]:
        """Flags of every answer from this index."""
        return ()

    async def rank(self, index: Index, question: Question, models: ModelSet) -> Ranked:
        """The nodes with their scores."""
        records = Records.from_index(index, question.documents)
        if not records.nodes:
            return Ranked(records, np.zeros(0), ("empty_document",))
        scores = await self.score(records, index, question, models)
        learned = index.data.get("learned_from")
        about = {} if learned is None else {"learned_from": learned}
        return Ranked(records, scores, self.remarks(index), about)

    def pick(self, ranked: Ranked, config: RecordsConfigT) -> Picked:
        """The nodes that these options read, by name in the trace."""
        nodes = self.choose(ranked.records, ranked.scores, config)
        return Picked(tuple(nodes), {"nodes": [ranked.records.id(node) for node in nodes], **ranked.about})

    async def read_picked(
        self, ranked: Ranked, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The reader's answer from the nodes in this order; should they not fit, the last go first."""
        records = ranked.records
        context: list[ContextItem] = []
        for node in positions:
            at, score = records.nodes[node], float(ranked.scores[node])
            if at.chunk is not None:
                context += passages(at.chunk, question, score)
            else:
                context.append(ContextItem(at.text, node=records.id(node), score=score))
        return await read(context, question, models.lm(), self.prompt, flags=ranked.flags)
