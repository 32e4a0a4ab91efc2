"""Graph construction (PECAN, Sec. 3.1): chunks, summarised batch by batch, level by level.

The builder reads a batch of nodes in one context and generates a list of information points. Each point
becomes a node of the next level, and the attention of its tokens to the tokens of each node of the batch,
normalised over the batch, is the weight of its edges. Nothing is read twice: attention is recorded while the
list is generated. The batches of a level are independent and run concurrently.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.method import (
    ConfigError,
    Embedder,
    InvalidLogitsError,
    LanguageModel,
    NoAttentionError,
    Span,
    chunk_documents,
    filled_in_order,
    unit_rows,
)
from bench.schema import Document, DocumentSet
from methods.pecan.bullets import Bullet, Bullets, parse_bullets, whole_text
from methods.pecan.content_words import content_tokens
from methods.pecan.graph import Graph, Node, fold
from methods.pecan.heads import ALL, heads_of
from methods.pecan.prompts import PECAN_GRAPH_HEAD, PECAN_GRAPH_TAIL, PECAN_NODE
from methods.raptor.clustering import hard_clusters
from methods.raptor.prompts import raptor_summary_prompt

T = TypeVar("T")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GraphPlan:
    """How to build a graph; lengths in tokens of the builder."""

    kind: Literal["ip", "tree"]
    window: int
    chunk_tokens: int
    summary_tokens: int
    max_levels: int
    seed: int
    tokens: Literal["all", "content"] = "all"
    """Tokens of a bullet whose attention makes its edges."""
    heads: str = ALL
    """Heads whose attention it is, as the option says."""


async def build_graph(
    documents: DocumentSet,
    builder: LanguageModel,
    embedder: Embedder,
    plan: GraphPlan,
    *,
    attention: bool = True,
) -> Graph:
    """The graph of these documents; documents without text give a graph without nodes.

    attention: whether edges must come from the builder's attention. If not, a builder behind a server, which
    returns no attention, makes edges of equal weight.
    Raises ConfigError if the window leaves no room for nodes or the builder lacks a head that the plan names,
    and whatever the models raise.
    """
    return await _Construction(builder, embedder, plan, attention).build(documents)


@dataclass(frozen=True)
class _Summary:
    """The builder's summary of a batch."""

    parsed: Bullets
    weights: Floats
    """e_ij of each bullet over the nodes of the batch, shape (bullets, nodes); rows sum to 1."""
    cut: bool
    unattended: int
    """Number of bullets without attention to any node; their row is uniform."""


@dataclass
class _Level:
    """A level under construction: its nodes and, for each, the edges to the level below."""

    members: list[int] = field(default_factory=list)
    of_text: dict[str, int] = field(default_factory=dict)
    rows: dict[int, list[tuple[list[int], Floats]]] = field(default_factory=dict)


class _Construction:
    """The construction of one graph."""

    def __init__(self, builder: LanguageModel, embedder: Embedder, plan: GraphPlan, attention: bool) -> None:
        self.lm, self.embedder, self.plan = builder, embedder, plan
        self.attention = attention
        self.heads = heads_of(plan.heads, builder)
        self.head, self.piece, self.tail = PECAN_GRAPH_HEAD, PECAN_NODE, PECAN_GRAPH_TAIL
        if plan.kind == "tree":  # RAPTOR's code ends every text of a cluster with an empty line
            self.head, self.tail = raptor_summary_prompt("\x00").split("\x00")
            self.piece = "{text}\n\n"
        self.room = self._room()
        self.nodes: list[Node] = []
        self.costs: list[int] = []
        """Tokens of every node as a piece of the prompt."""
        self.levels: list[list[int]] = []
        self.edges: list[tuple[int, NDArray[np.int32], NDArray[np.float32]]] = []
        self.embeddings: list[NDArray[np.float32]] = []
        self.events: Counter[str] = Counter()

    async def build(self, documents: DocumentSet) -> Graph:
        """Chunks, then level upon level until one comes from a single batch."""
        self.levels.append(self._chunks(documents))
        while self.levels[-1]:
            batches = await self._batches(self.levels[-1])
            summaries = await _all([self._summarize(batch) for batch in batches])
            below, level = self.levels[-1], self._add_level(batches, summaries)
            if len(batches) == 1:
                break
            # A level is smaller if it has fewer nodes or fewer tokens: bullets are many but short.
            if len(level) >= len(below) and self._tokens(level) >= self._tokens(below):
                self.events["level_not_smaller"] += 1
                break
            if len(self.levels) == self.plan.max_levels:
                self.events["max_levels"] += 1
                break
        return await self._finished()

    def _room(self) -> int:
        """Maximum tokens of the nodes of one batch: s minus template, prompt and summary."""
        frame = self.lm.chat_overhead + self.lm.count_tokens(self.head) + self.lm.count_tokens(self.tail)
        room = self.plan.window - frame - self.plan.summary_tokens
        if room <= self._cost(""):
            raise ConfigError(
                f"A window of {self.plan.window} tokens leaves {max(room, 0)} for the nodes of a batch: "
                f"template and prompt take {frame} with {self.lm.name}, a summary "
                f"{self.plan.summary_tokens}. Raise window, or lower summary_tokens."
            )
        return room

    def _cost(self, text: str) -> int:
        return self.lm.count_tokens(self.piece.format(text=text))

    def _tokens(self, level: Sequence[int]) -> int:
        return sum(self.costs[node] for node in level)

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        self.costs.append(self._cost(node.text))
        return len(self.nodes) - 1

    def _chunks(self, documents: DocumentSet) -> list[int]:
        """Level 1; a chunk of only white space is not a node."""
        level = []
        for chunk in chunk_documents(documents, self.lm.tokenize, self.plan.chunk_tokens):
            for start, end in self._pieces(chunk.text):
                text = fold(chunk.text[start:end])
                if text:
                    node = Node(1, text, chunk.document, chunk.start + start, chunk.start + end)
                    level.append(self._add(node))
                else:
                    self.events["blank_chunk"] += 1
        return level

    def _pieces(self, text: str) -> list[tuple[int, int]]:
        """Character ranges of the pieces of a text: one, unless the text exceeds a batch."""
        if self._cost(fold(text)) <= self.room:
            return [(0, len(text))]
        self.events["split_node"] += 1
        size = min(self.plan.chunk_tokens, self.room)
        while True:
            pieces = [
                (chunk.start, chunk.end)
                for chunk in chunk_documents(DocumentSet((Document("", text),)), self.lm.tokenize, size)
            ]
            # A cut can increase the number of tokens, and the node's marker adds some.
            if size == 1 or all(self._cost(fold(text[start:end])) <= self.room for start, end in pieces):
                return pieces
            size = max(1, size * 3 // 4)

    async def _batches(self, level: Sequence[int]) -> list[tuple[int, ...]]:
        """The nodes of a level in groups that are summarised together, each within the room."""
        costs = [self.costs[node] for node in level]
        if self.plan.kind == "tree":
            await self._embed()
            vectors = np.stack([self.embeddings[node] for node in level])
            groups = hard_clusters(vectors, costs, max_tokens=self.room, seed=self.plan.seed)
            return [tuple(level[i] for i in group) for group in groups]
        return filled_in_order(level, costs, self.room)

    async def _summarize(self, batch: Sequence[int]) -> _Summary:
        """The bullets for a batch, with their attention to each of its nodes."""
        texts, begin = [self.nodes[node].text for node in batch], self.piece.index("{text}")
        async with await self.lm.open(self.plan.window) as context:
            await context.extend(self.head)
            spans = []
            for text in texts:
                piece = self.piece.format(text=text)
                spans.append(await context.extend(piece, focus=(begin, begin + len(text))))
            await context.extend(self.tail)
            watched = [j for j, span in enumerate(spans) if len(span)]
            try:
                for j in watched:
                    context.watch(spans[j], self.heads)
            except NoAttentionError:
                if self.attention:
                    raise
                watched = []
                self.events["no_attention"] += 1
            summary = await context.generate(self.plan.summary_tokens)
            parsed = parse_bullets(summary) if self.plan.kind == "ip" else whole_text(summary)
            attention = np.zeros((len(summary.token_ids), len(batch)))
            if watched and parsed.bullets:
                # If the last token was not forwarded, its row is missing and stays 0.
                answer = Span(summary.prompt_tokens, summary.prompt_tokens + len(summary.token_ids))
                recorded = context.recorded(answer)
                attention[: len(recorded), watched] = recorded
        bullets = parsed.bullets
        if self.plan.tokens == "content":
            content = content_tokens(summary.text, summary.offsets)
            bullets = tuple(with_content_words(bullet, content) for bullet in bullets)
        weights, unattended = edge_weights(bullets, attention)
        return _Summary(parsed, weights, summary.finish != "stop", unattended if watched else 0)

    def _add_level(self, batches: Sequence[Sequence[int]], summaries: Sequence[_Summary]) -> list[int]:
        """The next level, from the summaries of all batches in order."""
        level = _Level()
        number = max(self.nodes[node].level for node in self.levels[-1]) + 1
        for batch, summary in zip(batches, summaries, strict=True):
            bullets = summary.parsed.bullets
            self._count_events(summary)
            if not bullets:
                level.members += batch  # they move up unchanged
                continue
            for at, (bullet, row) in enumerate(zip(bullets, summary.weights, strict=True)):
                cut = summary.cut and at == len(bullets) - 1
                for start, end in self._pieces(bullet.text):
                    self._add_point(level, Node(number, fold(bullet.text[start:end]), cut=cut), batch, row)
        for node in level.members:
            if node in level.rows:
                lower, weight = _averaged(level.rows[node])
                self.edges.append((node, lower, weight))
        self.levels.append(level.members)
        return level.members

    def _add_point(self, level: _Level, node: Node, batch: Sequence[int], row: Floats) -> None:
        """Add a node to the level; a duplicate text only adds its edges to the existing node."""
        position = level.of_text.get(node.text)
        if position is None:
            position = level.of_text[node.text] = self._add(node)
            level.members.append(position)
        else:
            self.events["duplicate_bullet"] += 1
        level.rows.setdefault(position, []).append((list(batch), row))

    def _count_events(self, summary: _Summary) -> None:
        parsed = summary.parsed
        self.events["empty_summary"] += not parsed.bullets
        if self.plan.kind == "ip" and parsed.bullets:
            self.events["no_bullets"] += parsed.marker == "none"
            self.events["other_marker"] += parsed.marker == "other"
        self.events["text_outside_bullets"] += parsed.outside
        self.events["nested_bullet"] += parsed.nested
        self.events["heading_left_out"] += parsed.headings
        self.events["cut_bullet"] += bool(summary.cut and parsed.bullets)
        self.events["zero_row"] += summary.unattended

    async def _embed(self) -> None:
        """Compute the unit embeddings of nodes that have none."""
        texts = [node.text for node in self.nodes[len(self.embeddings) :]]
        if texts:
            # Clustering amplifies rounding differences into other groups.
            vectors = await self.embedder.embed(texts, exact=self.plan.kind == "tree")
            self.events["truncated_embedding"] += self.embedder.truncated(texts)
            self.embeddings += list(unit_rows(vectors))

    async def _finished(self) -> Graph:
        await self._embed()
        sizes = [len(lower) for _, lower, _ in self.edges]
        return Graph(
            nodes=tuple(self.nodes),
            levels=tuple(tuple(level) for level in self.levels if level),
            upper=np.repeat(np.array([node for node, _, _ in self.edges], np.int32), sizes),
            lower=np.concatenate([np.zeros(0, np.int32), *(lower for _, lower, _ in self.edges)]),
            weight=np.concatenate([np.zeros(0, np.float32), *(weight for _, _, weight in self.edges)]),
            embeddings=np.stack(self.embeddings)
            if self.embeddings
            else np.zeros((0, self.embedder.dim), np.float32),
            notes={
                "kind": self.plan.kind,
                "builder": self.lm.name,
                "levels": [len(level) for level in self.levels if level],
                "tokens": [self._tokens(level) for level in self.levels if level],
                "events": {name: count for name, count in sorted(self.events.items()) if count},
                "embedder": self.embedder.name,
                "embedder_max_tokens": self.embedder.max_tokens,
            },
        )


def with_content_words(bullet: Bullet, content: NDArray[np.bool_]) -> Bullet:
    """The bullet with its content words' tokens only, or with all if it has no content words."""
    return replace(bullet, tokens=tuple(at for at in bullet.tokens if content[at]) or bullet.tokens)


def edge_weights(bullets: Sequence[Bullet], attention: Floats) -> tuple[Floats, int]:
    """e_ij: mean attention of a bullet's tokens to each node, divided by its sum over the nodes.

    attention: as recorded, shape (generated tokens, nodes). Returns weights of shape (bullets, nodes), and
    the number of bullets without attention to any node, whose row is uniform. Raises InvalidLogitsError for
    non-finite attention.
    """
    if not np.isfinite(attention).all():
        raise InvalidLogitsError("the attention recorded while a summary was generated is not a number")
    weights = np.zeros((len(bullets), attention.shape[1]))
    unattended = 0
    for i, bullet in enumerate(bullets):
        row = attention[list(bullet.tokens)].mean(axis=0) if bullet.tokens else weights[i]
        total = row.sum()
        if total > 0:
            weights[i] = row / total
        else:
            weights[i] = 1 / attention.shape[1]
            unattended += 1
    return weights, unattended


def _averaged(rows: Sequence[tuple[list[int], Floats]]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The mean of several edge rows over the union of their nodes, normalised again."""
    lower, place = np.unique(np.concatenate([nodes for nodes, _ in rows]), return_inverse=True)
    weight = np.zeros(len(lower))
    np.add.at(weight, place, np.concatenate([row for _, row in rows]))
    weight /= weight.sum()
    return lower.astype(np.int32), weight.astype(np.float32)


async def _all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of concurrent coroutines; if one fails, the others are cancelled before it is raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
