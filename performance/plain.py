"""PECAN's prompts on plain transformers, one question at a time: the same tokens, without our engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flops.formulas import forward_usage
from bench.flops.meter import current_meter
from bench.method.prompts import ANSWER_INSTRUCTION
from bench.models.api import Generation, Tokenization
from bench.models.language_model import CausalLanguageModel
from bench.models.tokenizer import token_span
from methods.pecan.graph import Graph, Node
from methods.pecan.prompts import (
    PECAN_CHOICES,
    PECAN_GRAPH_HEAD,
    PECAN_GRAPH_TAIL,
    PECAN_NODE,
    PECAN_SEARCH_BEFORE_QUESTION,
    pecan_search_head,
)


@dataclass(frozen=True)
class Piece:
    """A part of a prompt in tokens, and which of them say what it is about."""

    ids: tuple[int, ...]
    focus: tuple[int, int]

    @classmethod
    def of(cls, tokenization: Tokenization, start: int, end: int) -> Piece:
        """The part whose characters from ``start`` to ``end`` are in focus."""
        span = token_span(tokenization, start, end)
        return cls(tokenization.ids, (span.start, span.end))


@dataclass(frozen=True)
class SummaryPrompt:
    """A prompt in tokens, and where in it each node's text stands."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


class PlainModel:
    """A stock transformers model with the prompts of PECAN in the tokens of one of ours.

    What it forwards is credited to the current meter, as the engine's forwards are.
    """

    def __init__(self, lm: CausalLanguageModel, model: Any) -> None:
        """lm: whose tokenizer and chat template are used; model: the same weights, its own attention."""
        self.lm, self.model = lm, model

    def head(self, question: str) -> Piece:
        """The beginning of a search, template included; the question is in focus."""
        at = len(PECAN_SEARCH_BEFORE_QUESTION)
        piece = Piece.of(self.lm.tokenize(pecan_search_head(question)), at, at + len(question))
        opening = self.lm.chat.opening
        start, end = piece.focus
        return Piece((*opening, *piece.ids), (start + len(opening), end + len(opening)))

    def node(self, node: Node) -> Piece:
        """A node's line; its text is in focus."""
        at = PECAN_NODE.index("{text}")
        return Piece.of(self.lm.tokenize(PECAN_NODE.format(text=node.text)), at, at + len(node.text))

    @property
    def closing(self) -> tuple[int, ...]:
        """What ends the user's turn before the model is asked."""
        return self.lm.chat.closing

    @property
    def second_turn(self) -> tuple[int, ...]:
        """The Yes, and the question's second turn, up to the answer."""
        chat = self.lm.chat
        yes = self.lm.tokenize(chat.answer_prefix + PECAN_CHOICES[0]).ids
        asked = self.lm.tokenize(ANSWER_INSTRUCTION).ids
        return (*chat.reply_opening, *yes, *chat.next_turn, *asked, *chat.closing)

    def summary_prompt(self, nodes: Sequence[Node]) -> SummaryPrompt:
        """The prompt that asks for information points about these nodes, template included."""
        ids = [*self.lm.chat.opening, *self.lm.tokenize(PECAN_GRAPH_HEAD).ids]
        spans = []
        for node in nodes:
            piece = self.node(node)
            spans.append((len(ids) + piece.focus[0], len(ids) + piece.focus[1]))
            ids += piece.ids
        return SummaryPrompt((*ids, *self.lm.tokenize(PECAN_GRAPH_TAIL).ids, *self.closing), tuple(spans))

    def choices(self, logits: Any) -> tuple[float, float]:
        """Logits of Yes and No."""
        yes, no = self.lm.choice_ids(PECAN_CHOICES)
        return float(logits[yes]), float(logits[no])

    def generate(self, prompt: Sequence[int], most: int, cache: Any = None) -> Generation:
        """The greedy ``generate`` of transformers, on a cache of the prompt's beginning if there is one."""
        import torch

        stops = sorted(self.lm.stops)
        cached = 0 if cache is None else cache.get_seq_length()
        with torch.inference_mode():
            ids = self.model.generate(
                torch.tensor([list(prompt)]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                past_key_values=cache,
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=stops,
                pad_token_id=stops[0],
            )[0, len(prompt) :].tolist()
        self._credit(len(prompt), cached)
        for at in range(len(ids) - 1):
            self._credit(len(prompt) + at + 1, len(prompt) + at)
        stopped = bool(ids) and ids[-1] in self.lm.stops
        answer = tuple(ids[:-1] if stopped else ids)
        text, offsets = self.lm.decode(answer)
        return Generation(text, answer, "stop" if stopped else "length", len(prompt), offsets)

    def read(self, ids: Sequence[int], cache: Any) -> Any:
        """Logits after these tokens, which are put into the cache, shape (vocabulary,)."""
        import torch

        with torch.inference_mode():
            out = self.model(torch.tensor([list(ids)]), past_key_values=cache, logits_to_keep=1)
        total = cache.get_seq_length()
        self._credit(total, total - len(ids))
        return out.logits[0, -1].float()

    def look(self, ids: Sequence[int]) -> tuple[Any, NDArray[np.float32]]:
        """Logits after a whole text, and its attention matrix (tokens, tokens): everything, anew."""
        import torch

        with torch.inference_mode():
            out = self.model(
                torch.tensor([list(ids)]), use_cache=False, output_attentions=True, logits_to_keep=1
            )
            mean = torch.stack([layer[0].mean(0) for layer in out.attentions]).mean(0)
        self._credit(len(ids), 0)
        return out.logits[0, -1].float(), np.asarray(mean.numpy())

    def _credit(self, total: int, cached: int) -> None:
        usage = forward_usage(self.lm.architecture, total - cached, cached)
        current_meter().credit(self.lm.name, "plain", usage)


def plain_model(lm: CausalLanguageModel, attention: str) -> PlainModel:
    """A second copy of a shipped model's weights, with that attention of transformers."""
    from bench.models.loader import load_causal
    from bench.models.spec import resolve

    model = load_causal(resolve(lm.name, dtype="float32", device="cpu"))
    model.set_attn_implementation(attention)
    return PlainModel(lm, model)


def search_on_a_cache(
    plain: PlainModel, graph: Graph, question: str, steps: Sequence[Sequence[int]], most: int
) -> Generation:
    """A search whose path is known, on transformers' cache, which forgets each probe again; records nothing.

    steps: the nodes read between two probes.
    """
    from transformers import DynamicCache

    cache = DynamicCache(config=plain.model.config)
    read: list[int] = []
    new = list(plain.head(question).ids)
    for nodes in steps:
        for node in nodes:
            new += plain.node(graph.nodes[node]).ids
        plain.choices(plain.read([*new, *plain.closing], cache))
        cache.crop(-len(plain.closing))
        read, new = read + new, []
    return plain.generate([*read, *plain.second_turn], most, cache)
