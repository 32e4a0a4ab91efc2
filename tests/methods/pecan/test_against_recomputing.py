"""The whole method on a small real model, against the paper done the plain way.

The plain way keeps nothing: every probe is a forward over the whole conversation with eager attention,
and scores come from the full attention matrices that it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from bench.engine.heads import Heads
from bench.method.prompts import ANSWER_INSTRUCTION
from bench.models.api import Generation
from bench.models.language_model import CausalLanguageModel
from bench.schema import Document, DocumentSet, Question
from methods.pecan import Pecan, PecanConfig
from methods.pecan.bullets import parse_bullets
from methods.pecan.graph import Graph, Node, fold
from methods.pecan.prompts import (
    PECAN_GRAPH_HEAD,
    PECAN_GRAPH_TAIL,
    PECAN_SEARCH_AFTER_QUESTION,
    PECAN_SEARCH_BEFORE_QUESTION,
)
from tests.bench.models.builders import GEOMETRY, causal_model, language_model
from tests.methods.pecan.scripted import ScriptedEmbedder, ScriptedModels

MARA = "Mara Feld hid the red kite in the old mill. She sold it to Otto Brand in the winter."
OTTO = "Otto Brand, the baker, walked to the harbour; he kept the river boat near the mill."
STORY = DocumentSet((Document("Mara", MARA), Document("Otto", OTTO)))
QUESTION = Question("Who sold the red kite?", STORY, max_new_tokens=5)
OPTIONS = PecanConfig(window=1000, summary_tokens=40, chunk_tokens=24, t_c=1.0)


HEADS = {
    "all": None,
    "top_layers": Heads(tuple((2, head) for head in range(8))),
    "0.5+1.0": Heads(((0, 5), (1, 0))),
}
"""What the option means: the Llama has three layers of eight heads, the others two."""


class Plain:
    """The same weights through stock transformers, one full forward at a time."""

    def __init__(self, lm: CausalLanguageModel, family: str, heads: Heads | None = None) -> None:
        self.lm, self.model, self.heads = lm, causal_model(family, "eager"), heads
        self.model = self.model.to(lm.engine.runner.model.dtype).float()  # the same weights, exact arithmetic

    def ids(self, text: str) -> list[int]:
        return list(self.lm.tokenize(text).ids)

    def appended(self, ids: list[int], node: str) -> list[int]:
        """Append a node of the prompts; returns the positions of its text."""
        piece = self.lm.tokenize(f"* {node}\n")
        inside = [len(ids) + i for i, (a, b) in enumerate(piece.offsets) if b > 2 and a < 2 + len(node)]
        ids += piece.ids
        return inside

    def attention(self, ids: Sequence[int]) -> np.ndarray[Any, Any]:
        """Mean attention over the heads that count, (tokens, tokens)."""
        with torch.no_grad():
            out = self.model(torch.tensor([list(ids)]), output_attentions=True, use_cache=False)
        each = torch.stack([a[0] for a in out.attentions])
        if self.heads is None:
            return each.mean((0, 1)).double().numpy()
        return torch.stack([each[place] for place in self.heads.pairs]).mean(0).double().numpy()

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.tensor([list(ids)]), use_cache=False).logits[0, -1].double()

    def greedy(self, ids: Sequence[int], most: int) -> Generation:
        answer: list[int] = []
        while len(answer) < most:
            token = int(self.logits([*ids, *answer]).argmax())
            if token in self.lm.stops:
                break
            answer.append(token)
        text, offsets = self.lm.decode(answer)
        return Generation(text, tuple(answer), "stop" if len(answer) < most else "length", len(ids), offsets)


def models_of(lm: CausalLanguageModel) -> ScriptedModels:
    return ScriptedModels(lm, ScriptedEmbedder())  # type: ignore[arg-type]


def written_graph() -> Graph:
    """Four chunks, three points above them, one on top, with drawn weights."""
    rng = np.random.default_rng(5)
    text = STORY.documents[0].full_text
    chunks = [Node(1, fold(text[at : at + 25]), 0, at, at + 25) for at in (0, 25, 50, 75)]
    points = [Node(2, name) for name in ("Mara hid the red kite.", "Otto bought it, in winter.", "The mill")]
    weights = [*rng.dirichlet(np.ones(4), 3), *rng.dirichlet(np.ones(3), 1)]
    return Graph(
        nodes=(*chunks, *points, Node(3, "Mara Feld and Otto Brand")),
        levels=((0, 1, 2, 3), (4, 5, 6), (7,)),
        upper=np.repeat(np.arange(4, 8, dtype=np.int32), [4, 4, 4, 3]),
        lower=np.array([0, 1, 2, 3] * 3 + [4, 5, 6], np.int32),
        weight=np.concatenate(weights).astype(np.float32),
        embeddings=np.zeros((8, 3), np.float32),
        notes={"builder": "hand", "levels": [4, 3, 1], "events": {}},
    )


@pytest.mark.parametrize(
    ("family", "option"), [("llama", "all"), ("qwen2", "all"), ("llama", "top_layers"), ("qwen2", "0.5+1.0")]
)
def test_edges_are_those_of_the_full_attention_matrices(family: str, option: str) -> None:
    lm = language_model(family)
    config = OPTIONS.model_copy(update={"heads": option})
    index = asyncio.run(Pecan(config, GEOMETRY).index(STORY, models_of(lm)))
    graph = Graph.from_index(index, STORY)
    plain = Plain(lm, family, HEADS[option])
    chunks = [node.text for node in graph.nodes if node.level == 1]
    assert len(chunks) == 4
    ids = [*lm.chat.opening, *plain.ids(PECAN_GRAPH_HEAD)]
    spans = [plain.appended(ids, text) for text in chunks]
    ids += [*plain.ids(PECAN_GRAPH_TAIL), *lm.chat.closing]
    summary = plain.greedy(ids, 40)
    attention = plain.attention([*ids, *summary.token_ids[: None if summary.finish == "stop" else -1]])
    bullets = parse_bullets(summary).bullets
    assert [n.text for n in graph.nodes if n.level == 2] == list(dict.fromkeys(b.text for b in bullets))
    compared = 0
    for bullet in bullets:
        rows = [len(ids) + t for t in bullet.tokens if len(ids) + t < len(attention)]
        if sum(b.text == bullet.text for b in bullets) > 1 or not rows:
            continue
        raw = np.array([attention[np.ix_(rows, span)].mean() for span in spans])
        node = next(i for i, n in enumerate(graph.nodes) if n.level == 2 and n.text == bullet.text)
        lower, weight = graph.sources(node)
        assert lower.tolist() == list(range(len(chunks)))
        np.testing.assert_allclose(weight, raw / raw.sum(), atol=2e-6)
        compared += 1
    assert compared


@pytest.mark.parametrize(
    ("family", "option", "dtype"),
    [
        ("llama", "all", torch.float32),
        ("phi", "all", torch.float32),
        ("mistral", "all", torch.float32),
        ("llama", "top_layers", torch.float32),
        ("mistral", "0.5+1.0", torch.float32),
        ("qwen2", "all", torch.bfloat16),
    ],
)
def test_path_attention_and_confidence_are_recomputed(family: str, option: str, dtype: torch.dtype) -> None:
    lm = language_model(family, dtype=dtype)
    rel = 1e-3 if dtype == torch.float32 else 0.3
    graph = written_graph()
    config = OPTIONS.model_copy(update={"heads": option})
    prediction = asyncio.run(Pecan(config, GEOMETRY).answer(graph.to_index(), QUESTION, models_of(lm)))
    plain = Plain(lm, family, HEADS[option])
    head = lm.tokenize(f"{PECAN_SEARCH_BEFORE_QUESTION}{QUESTION.text}{PECAN_SEARCH_AFTER_QUESTION}")
    begin = len(PECAN_SEARCH_BEFORE_QUESTION)
    ids = [*lm.chat.opening, *head.ids]
    asked = [
        len(lm.chat.opening) + i
        for i, (a, b) in enumerate(head.offsets)
        if b > begin and a < begin + len(QUESTION.text)
    ]
    yes, no = lm.choice_ids(["Yes", "No"])
    edge = np.zeros((len(graph.nodes), len(graph.nodes)))
    edge[graph.upper, graph.lower] = graph.weight
    spans = {node: plain.appended(ids, graph.nodes[node].text) for node in graph.top}
    for number, step in enumerate(prediction.trace["steps"]):
        logits = plain.logits([*ids, *lm.chat.closing])
        share = torch.softmax(logits[[yes, no]], 0)[0].item()
        assert step["p_yes"] == pytest.approx(share, abs=rel / 5)
        assert step["mass"] == pytest.approx(torch.softmax(logits, 0)[[yes, no]].sum().item(), rel=2 * rel)
        attention = plain.attention(ids)
        r = np.zeros(len(graph.nodes))
        for position, node in enumerate(spans, start=2):
            r[node] = attention[np.ix_(spans[node], asked)].mean() * position
        z = edge.T @ r
        for visit in step["nodes"]:
            assert visit["r"] == pytest.approx(r[graph.ids.index(visit["id"])], rel=rel)
        if number + 1 == len(prediction.trace["steps"]):
            break
        (following,) = prediction.trace["steps"][number + 1]["nodes"]
        chosen = graph.ids.index(following["id"])
        left = [n for n in range(len(graph.nodes)) if n not in spans]
        score = {n: z[n] / z[left].sum() if z[left].sum() > 0 else 0.0 for n in left}
        assert following["score"] == pytest.approx(score[chosen], rel=rel, abs=1e-9)
        assert score[chosen] >= max(score.values()) * (1 - rel)
        spans[chosen] = plain.appended(ids, graph.nodes[chosen].text)
    assert len(spans) == len(graph.nodes) and prediction.trace["stop"] == "exhausted"
    turn2 = [*lm.chat.reply_opening, *plain.ids("Yes"), *lm.chat.next_turn, *plain.ids(ANSWER_INSTRUCTION)]
    answer = plain.greedy([*ids, *turn2, *lm.chat.closing], 5)
    assert (prediction.text, prediction.prompt_tokens) == (answer.text, answer.prompt_tokens)


def test_without_progress_control_the_path_and_its_attention_are_the_same() -> None:
    """Nothing is asked between two nodes, and what was read is forwarded before its attention is."""
    graph = written_graph().to_index()

    def visits(**options: Any) -> list[dict[str, Any]]:
        config = OPTIONS.model_copy(update=options)
        models = models_of(language_model("llama"))
        prediction = asyncio.run(Pecan(config, GEOMETRY).answer(graph, QUESTION, models))
        assert all((step["p_yes"] is None) == bool(options) for step in prediction.trace["steps"])
        return [visit for step in prediction.trace["steps"] for visit in step["nodes"]]

    asked, fixed = visits(), visits(progress_control="off", n_nodes=8)
    assert [visit["id"] for visit in fixed] == [visit["id"] for visit in asked]
    assert len(fixed) == 8 and all(visit["r"] > 0 for visit in fixed)
    assert [visit["r"] for visit in fixed] == pytest.approx([visit["r"] for visit in asked], rel=1e-4)
