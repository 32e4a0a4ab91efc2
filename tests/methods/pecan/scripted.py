"""A language model that does as it is told, and counts what it is asked to read.

It implements the model protocols without any arithmetic: attention, p_yes, summaries and answers come
from a script, so that paths and edges can be computed by hand. It keeps a log of every token that it
forwards, so that a test can prove that none is forwarded twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bench.engine.heads import Heads
from bench.errors import WindowExceededError
from bench.flops.architecture import Architecture, architecture_from_config
from bench.flops.meter import Meter, Usage, current_meter
from bench.models.api import Generation, Geometry, Probe, Span
from tests.stand_ins import WordModel

GEOMETRY = Geometry(chunk_tokens=6, window=400, input_limit=1000, summary_tokens=60)
_NODE = re.compile(r"\* (.+)\n|(?!Summary|Can this)(.+)\n\n", re.DOTALL)
"""A node of PECAN's prompts, or of RAPTOR's."""
OPENING = ("<bos>", "<user>")
CLOSING = ("<eot>", "<assistant>")
NEXT_TURN = ("<eot>", "<user>")


@dataclass
class Script:
    """What the model says; everything has a harmless default."""

    summary: Callable[[list[str]], str] = lambda nodes: "\n".join(f"* about {node}" for node in nodes)
    """Texts of the nodes of a batch -> generated text."""
    edge: Callable[[str, str], float] = lambda line, node: 1.0
    """Generated line, node text -> attention of each of the line's tokens to the node."""
    relevance: Callable[[str], float] = lambda node: 1.0
    """Node text -> attention of each of its tokens to the question."""
    asked_again: Callable[[str], float] = lambda node: 1e6
    """Node text -> attention of each token of a repeated question to the node."""
    p_yes: Callable[[list[str]], float] = lambda nodes: 0.0
    """Texts of the nodes read so far -> confidence."""
    mass: float = 1.0
    mass_unread: float | None = None
    """The same before any node is read, where it is another."""
    answer: Callable[[list[str]], str] = lambda nodes: f"answer after {len(nodes)}"


@dataclass
class ScriptedModel(WordModel):
    """See :class:`bench.models.conversation.LanguageModel`."""

    script: Script = field(default_factory=Script)
    name: str = "scripted"
    geometry: Geometry = GEOMETRY
    flops_per_token: int = 1000
    contexts: list[ScriptedContext] = field(default_factory=list)
    held: int = 0
    """Contexts that were open where another prompt was read."""
    architecture: Architecture = architecture_from_config(
        {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2}
        | {"intermediate_size": 16, "vocab_size": 100, "max_position_embeddings": 1000}
    )
    chat_overhead = len(OPENING) + len(CLOSING)
    token = r" ?\w+| ?[^\w\s]|\s"

    async def open(self, max_tokens: int | None = None) -> ScriptedContext:
        room = self.geometry.window if max_tokens is None else max_tokens
        if room > self.geometry.input_limit:
            raise WindowExceededError(f"{room} tokens")
        context = ScriptedContext(self, room)
        self.contexts.append(context)
        return context

    async def generate(self, prompt: str, max_new_tokens: int) -> Generation:
        self.held += sum(not context.closed for context in self.contexts)
        async with await self.open(self.geometry.input_limit) as context:
            await context.extend(prompt)
            return await context.generate(max_new_tokens)

    @property
    def forwarded(self) -> int:
        """Tokens forwarded over all contexts."""
        return sum(len(context.log) for context in self.contexts)


@dataclass
class _Token:
    text: str
    owner: str
    """The node or generated line that it belongs to; empty for prompt and template."""


class ScriptedContext:
    """See :class:`bench.models.conversation.ReadingContext`."""

    def __init__(self, lm: ScriptedModel, capacity: int) -> None:
        self.lm, self.capacity = lm, capacity
        self.tokens = [_Token(t, "") for t in OPENING]
        self.cached = 0
        self.watched: list[tuple[Span, int]] = []
        self.heads: Heads | None = None
        self.rows: dict[int, list[float]] = {}
        self.log: list[tuple[int, str]] = []
        """Position and text of every token forwarded, probes included."""
        self.closed = False
        self.answered = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nodes(self) -> list[str]:
        """Texts of the nodes in the context, in order."""
        return list(dict.fromkeys(token.owner for token in self.tokens if token.owner))

    async def extend(self, text: str, *, focus: tuple[int, int] | None = None) -> Span:
        tokens = self.lm.tokenize(text)
        if self.length + len(tokens.ids) + len(CLOSING) > self.capacity:
            raise WindowExceededError(f"{self.length} + {len(tokens.ids)} tokens do not fit {self.capacity}")
        if self.answered:
            self.tokens += [_Token(t, "") for t in NEXT_TURN]
            self.answered = False
        node = _NODE.fullmatch(text)
        at = self.length
        self.tokens += [_Token(text[a:b], node[1] or node[2] if node else "") for a, b in tokens.offsets]
        start, end = (0, len(text)) if focus is None else focus
        inside = [i for i, (a, b) in enumerate(tokens.offsets) if a < end and b > start and start < end]
        return Span(at + inside[0], at + inside[-1] + 1) if inside else Span(at, at)

    async def probe(self, choices: Sequence[str]) -> Probe:
        assert tuple(choices) == ("Yes", "No") and not self.answered
        text = self.length - self.cached
        after = self.length + len(CLOSING)
        self._forward(self.length)
        self.log += [(self.length + i, t) for i, t in enumerate(CLOSING)]
        self._credit("prefill", text, text * after, 0)
        self._credit("probe", len(CLOSING), len(CLOSING) * after, 1)
        await asyncio.sleep(0)
        p, script = self.lm.script.p_yes(self.nodes), self.lm.script
        mass = script.mass if self.nodes or script.mass_unread is None else script.mass_unread
        return Probe({"Yes": p, "No": 1 - p}, {"Yes": p, "No": 1 - p}, mass)

    async def settle(self) -> None:
        new = self.length - self.cached
        self._forward(self.length)
        if new:
            self._credit("prefill", new, new * self.length, 1)

    async def generate(self, max_new_tokens: int) -> Generation:
        assert not self.answered
        self.tokens += [_Token(t, "") for t in CLOSING]
        prompt_tokens, new = self.length, self.length - self.cached
        self._credit("prefill", new, new * self.length, 1)
        self._forward(self.length)
        whole = self._reply()
        tokenization = self.lm.tokenize(whole)
        offsets = list(tokenization.offsets)[:max_new_tokens]
        finish: Literal["stop", "length", "window"] = (
            "stop" if len(offsets) == len(tokenization.ids) else "length"
        )
        text = whole[: offsets[-1][1]] if offsets else ""
        lines = text.split("\n")
        for a, b in offsets:
            row = text[:a].count("\n")
            line = re.sub(r"^\s*\* ?", "", lines[row])
            # Marker and line end attend to everything, so that a test sees it if they are counted.
            mark = whole[a:b].strip() in ("*", "")
            self.tokens.append(_Token(whole[a:b], "\x00" if mark else f"\x01{line}"))
        decoded = len(offsets) if finish == "stop" else len(offsets) - 1
        self._forward(prompt_tokens + max(decoded, 0))
        self._credit("decode", decoded, decoded * prompt_tokens, decoded, calls=decoded)
        self.answered = True
        await asyncio.sleep(0)
        lead = len(text) - len(text.lstrip())
        size = len(text.strip())
        clipped = tuple((min(max(a - lead, 0), size), min(max(b - lead, 0), size)) for a, b in offsets)
        return Generation(text.strip(), tuple(range(len(offsets))), finish, prompt_tokens, clipped)

    async def say(self, reply: str) -> None:
        assert not self.answered
        texts = [*CLOSING, *(reply[a:b] for a, b in self.lm.tokenize(reply).offsets), *NEXT_TURN]
        self.tokens += [_Token(t, "") for t in texts]

    def watch(self, span: Span, heads: Heads | None = None) -> int:
        if not 0 <= span.start < span.end <= self.length:
            raise ValueError(span)
        self.watched.append((span, self.length))
        self.heads = heads
        return len(self.watched) - 1

    def recorded(self, span: Span) -> NDArray[np.float32]:
        if not self.watched or span.start < self.watched[0][1]:
            raise ValueError(span)
        rows = [self.rows[p] for p in range(span.start, min(span.end, self.cached))]
        full = [row + [0.0] * (len(self.watched) - len(row)) for row in rows]
        return np.array(full, np.float32).reshape(len(rows), len(self.watched))

    def mark(self) -> int:
        return self.length

    def rewind(self, mark: int) -> None:
        assert mark <= self.length
        del self.tokens[mark:]
        self.cached = min(self.cached, mark)
        self.rows = {p: row for p, row in self.rows.items() if p < mark}
        self.answered = False

    def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> ScriptedContext:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def _reply(self) -> str:
        prompt = "".join(token.text for token in self.tokens)
        nodes = [owner for owner in self.nodes if not owner.startswith(("\x00", "\x01"))]
        if "Summary the following" in prompt or "Write a summary" in prompt:
            return self.lm.script.summary(nodes)
        return self.lm.script.answer(nodes)

    def _forward(self, until: int) -> None:
        for at in range(self.cached, until):
            token = self.tokens[at]
            self.log.append((at, token.text))
            if self.watched and at >= self.watched[0][1]:
                self.rows[at] = [self._attention(token, span) for span, since in self.watched if at >= since]
        self.cached = max(self.cached, until)

    def _attention(self, token: _Token, span: Span) -> float:
        node = self.tokens[span.start].owner
        if token.owner.startswith("\x01"):
            return self.lm.script.edge(token.owner[1:], node)
        if node and not token.owner:
            return self.lm.script.asked_again(node)
        if token.owner == "\x00" or not token.owner or token.text in ("*", "\n"):
            return 1e6
        return self.lm.script.relevance(token.owner)

    def _credit(self, phase: str, new: int, attended: int, logit_rows: int, calls: int = 1) -> None:
        if new:
            flops = new * self.lm.flops_per_token + attended
            current_meter().credit(self.lm.name, phase, Usage(calls, new, attended, logit_rows, flops))


@dataclass
class ScriptedEmbedder:
    """Vectors by text; unknown texts get a direction of their own."""

    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    dim: int = 3
    name: str = "vectors"
    max_tokens: int = 100
    asked: list[str] = field(default_factory=list)

    def truncated(self, texts: Sequence[str]) -> int:
        return 0

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> NDArray[np.float32]:
        self.asked += texts
        current_meter().credit(self.name, "embed", Usage(1, len(texts), len(texts), 0, 7 * len(texts)))
        vectors = [self.vectors.get(text, [0.0] * self.dim) for text in texts]
        return np.array(vectors, np.float32).reshape(-1, self.dim)


@dataclass
class ScriptedModels:
    """The model set of a test: one model in every role, unless others are given."""

    reader: ScriptedModel = field(default_factory=ScriptedModel)
    encoder: ScriptedEmbedder = field(default_factory=ScriptedEmbedder)
    others: Mapping[str, ScriptedModel] = field(default_factory=dict)

    def lm(self, role: str = "reader") -> Any:
        return self.others.get(role, self.reader)

    def embedder(self, role: str = "embedder") -> Any:
        return self.encoder


def models(**script: Any) -> ScriptedModels:
    """One model in every role, that does as the script says."""
    return ScriptedModels(ScriptedModel(Script(**script)))


def spent(meter: Meter, name: str = "scripted") -> int:
    """Tokens that a meter says went through a model."""
    return sum(usage.new_tokens for (model, _), usage in meter.usage.items() if model == name)
