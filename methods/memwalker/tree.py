"""MeMWalker's tree of summaries over the segments of a document."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from bench.method import LanguageModel, filled_in_order, join_passages, restored, stored, summarize
from bench.schema import Chunk, DocumentSet, Index, JsonValue
from methods.memwalker.prompts import Wording, memwalker_parent_prompt, memwalker_segment_prompt


@dataclass(frozen=True)
class _Node:
    """A segment (level 0) or a summary of the nodes below it."""

    level: int
    summary: str
    segment: tuple[Chunk, ...] = ()
    """A segment's chunks: one, or several from adjacent short documents."""
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tree:
    """Nodes level by level, segments first, in the order of the text; the last one is the root."""

    nodes: tuple[_Node, ...]
    events: Mapping[str, int]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """A readable id of every node: level from 0, then position in it from 1 (``0.3``)."""
        numbers: defaultdict[int, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
        return tuple(f"{node.level}.{next(numbers[node.level])}" for node in self.nodes)

    def to_index(self) -> Index:
        """The tree for storage, with segments as spans."""
        nodes: list[JsonValue] = []
        for node in self.nodes:
            below: dict[str, JsonValue] = {"children": list(node.children)}
            if not node.children:
                below = {"segment": [stored(chunk) for chunk in node.segment]}
            nodes.append({"level": node.level, "summary": node.summary, **below})
        return Index({"nodes": nodes, "events": dict(self.events)})

    @classmethod
    def from_index(cls, index: Index, documents: DocumentSet) -> Self:
        """The tree of a stored index, with segments cut from the documents."""
        nodes = []
        segments = [node.get("segment", ()) for node in index.data["nodes"]]
        chunks = iter(restored([chunk for segment in segments for chunk in segment], documents))
        for node, spans in zip(index.data["nodes"], segments, strict=True):
            segment = tuple(itertools.islice(chunks, len(spans)))
            nodes.append(_Node(node["level"], node["summary"], segment, tuple(node.get("children", ()))))
        return cls(tuple(nodes), index.data["events"])


def pack(chunks: Sequence[Chunk], segment_tokens: int) -> list[tuple[Chunk, ...]]:
    """Segments of consecutive chunks; short chunks of adjacent documents share one (our choice)."""
    return filled_in_order(chunks, (chunk.tokens for chunk in chunks), segment_tokens)


async def build_tree(
    segments: Sequence[tuple[Chunk, ...]],
    lm: LanguageModel,
    group: int,
    summary_tokens: int,
    wording: Wording = "ours",
) -> Tree:
    """The tree: summaries of the segments, then levels of summaries above, up to one root.

    All summaries of a level run concurrently. A single segment is the root and needs no summary.
    """
    events: Counter[str] = Counter()

    async def leaf(segment: tuple[Chunk, ...]) -> _Node:
        text = segment_text(segment)
        prompt = memwalker_segment_prompt(text, wording)
        return _Node(0, await summarize(lm, prompt, text, summary_tokens, events), segment)

    async def parent(level: int, children: Sequence[int]) -> _Node:
        below = [nodes[child].summary for child in children]
        prompt = memwalker_parent_prompt(below, wording)
        text = await summarize(lm, prompt, join_passages(below), summary_tokens, events)
        return _Node(level, text, children=tuple(children))

    if len(segments) == 1:
        return Tree((_Node(0, "", segments[0]),), {})
    nodes = list(await asyncio.gather(*map(leaf, segments)))
    level, width = 0, len(nodes)
    while width > 1:
        level += 1
        groups = _even_groups(range(len(nodes) - width, len(nodes)), group)
        nodes += await asyncio.gather(*(parent(level, children) for children in groups))
        width = len(groups)
    return Tree(tuple(nodes), {name: count for name, count in sorted(events.items()) if count})


def _even_groups(members: Sequence[int], most: int) -> list[Sequence[int]]:
    """The fewest groups of at most ``most`` neighbours, of sizes as even as possible.

    Nine summaries are five and four, not eight and one: a single child offers no choice.  # our choice
    """
    groups = -(-len(members) // most)
    edges = [len(members) * i // groups for i in range(groups + 1)]
    return [members[low:high] for low, high in zip(edges, edges[1:], strict=False)]


def segment_text(segment: Sequence[Chunk]) -> str:
    """The text of a segment: its chunks in order."""
    return join_passages([chunk.text for chunk in segment])
