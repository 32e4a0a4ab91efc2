from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.errors import ConfigError, InvalidLogitsError, NoAttentionError
from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet
from methods.pecan.bullets import Bullet
from methods.pecan.construction import GraphPlan, build_graph, edge_weights
from methods.pecan.graph import Graph
from methods.pecan.prompts import PECAN_GRAPH_HEAD, PECAN_GRAPH_TAIL
from methods.raptor.prompts import raptor_summary_prompt
from tests.methods.pecan.scripted import (
    CLOSING,
    OPENING,
    Script,
    ScriptedContext,
    ScriptedEmbedder,
    ScriptedModel,
    spent,
)

PROMPTS = {"ip": PECAN_GRAPH_HEAD + PECAN_GRAPH_TAIL, "tree": raptor_summary_prompt("")}


def plan(
    room: int = 200, *, kind: Any = "ip", chunk_tokens: int = 4, summary: int = 60, levels: int = 8
) -> GraphPlan:
    """A plan whose batches have room for ``room`` tokens of nodes."""
    frame = ScriptedModel.chat_overhead + ScriptedModel().count_tokens(PROMPTS[kind])
    return GraphPlan(kind, frame + summary + room, chunk_tokens, summary, levels, seed=0)


def documents(*texts: str) -> DocumentSet:
    return DocumentSet(tuple(Document("", text) for text in texts))


def build(
    script: Script, docs: DocumentSet, how: GraphPlan, embedder: ScriptedEmbedder | None = None
) -> tuple[Graph, ScriptedModel]:
    model = ScriptedModel(script)
    return asyncio.run(build_graph(docs, model, embedder or ScriptedEmbedder(), how)), model


def points(graph: Graph) -> list[str]:
    """The texts of the first level above the chunks."""
    return [node.text for node in graph.nodes if node.level == 2]


def edges(graph: Graph) -> dict[str, dict[str, float]]:
    weights: dict[str, dict[str, float]] = {}
    for upper, lower, weight in zip(graph.upper, graph.lower, graph.weight, strict=True):
        weights.setdefault(graph.nodes[upper].text, {})[graph.nodes[lower].text] = round(float(weight), 6)
    return weights


def events(graph: Graph) -> dict[str, int]:
    return dict(graph.notes["events"])


def saying(*replies: str) -> Callable[[list[str]], str]:
    """Replies in the order of asking; each level's batches are asked in order."""
    waiting = list(replies)
    return lambda nodes: waiting.pop(0)


TWO, THREE = documents("a b c d e f g h"), documents("a b c d e f g h i j k l")
"""Texts of two and of three chunks."""


def test_edges_are_the_attention_of_a_bullets_own_tokens_normalised_over_its_batch() -> None:
    """Markers and line ends attend with a million in the script: counting one would drown the rest."""
    attention = {"red kite": {"a b c d": 3.0, "e f g h": 1.0}, "blue": {"a b c d": 0.0, "e f g h": 0.5}}
    script = Script(summary=saying("* red kite\n* blue"), edge=lambda line, node: attention[line][node])
    graph, model = build(script, TWO, plan())
    assert [n.text for n in graph.nodes] == ["a b c d", "e f g h", "red kite", "blue"]
    assert edges(graph) == {
        "red kite": {"a b c d": 0.75, "e f g h": 0.25},
        "blue": {"a b c d": 0.0, "e f g h": 1.0},
    }
    assert graph.levels == ((0, 1), (2, 3)) and graph.top == (2, 3)
    assert graph.ids == ("1.1", "1.2", "2.1", "2.2")
    assert graph.weight.dtype == np.float32 and events(graph) == {}
    assert model.contexts[0].closed


def test_the_builder_reads_the_papers_prompt_word_for_word_and_each_token_once() -> None:
    _, model = build(Script(summary=saying("* x\n* y")), TWO, plan())
    (context,) = model.contexts
    prompt = f"{PECAN_GRAPH_HEAD}* a b c d\n* e f g h\n{PECAN_GRAPH_TAIL}"
    assert "".join(token for _, token in context.log) == "".join([*OPENING, prompt, *CLOSING, "* x\n* y"])
    assert [at for at, _ in context.log] == list(range(len(context.log)))


def test_batches_are_filled_in_order_and_their_levels_follow_until_one_batch_makes_the_top() -> None:
    """Chunks of four tokens are seven with marker and line end ("* a b c d\\n": "*", " a", ..., "\\n")."""
    piece = ScriptedModel().count_tokens("* a b c d\n")
    assert piece == 6
    script = Script(summary=saying("* p\n* q", "* r", "* top"))
    graph, model = build(script, THREE, plan(room=2 * piece))
    assert [[graph.nodes[n].text for n in level] for level in graph.levels] == [
        *(["a b c d", "e f g h", "i j k l"], ["p", "q", "r"], ["top"])
    ]
    assert edges(graph) == {
        "p": {"a b c d": 0.5, "e f g h": 0.5},
        "q": {"a b c d": 0.5, "e f g h": 0.5},
        "r": {"i j k l": 1.0},
        "top": {"p": 0.333333, "q": 0.333333, "r": 0.333333},
    }
    assert [context.nodes[:2] for context in model.contexts] == [
        *(["a b c d", "e f g h"], ["i j k l", "\x00"], ["p", "q"])
    ]
    assert graph.notes["levels"] == [3, 3, 1] and graph.notes["tokens"] == [18, 9, 3]


def test_a_batch_never_passes_the_window_and_fills_it_where_it_can() -> None:
    script = Script(summary=lambda nodes: "* " + " ".join("w" for _ in nodes))
    how = plan(room=20)
    _, model = build(script, documents(" ".join("abcdefghijklmnopqrstuvwxyz" * 3)), how)
    assert all(context.log[-1][0] <= how.window for context in model.contexts)
    first = [c for c in model.contexts if "a b c d" in c.nodes][0]
    assert len([n for n in first.nodes if "\x01" not in n and "\x00" not in n]) == 20 // 6


def test_a_document_of_one_chunk_is_still_summarised_once() -> None:
    graph, model = build(Script(summary=saying("* sum")), documents("one"), plan())
    assert [len(level) for level in graph.levels] == [1, 1] and len(model.contexts) == 1
    assert edges(graph) == {"sum": {"one": 1.0}}


@pytest.mark.parametrize("docs", [DocumentSet(()), documents(""), documents(" \n\t ", "")])
def test_no_text_gives_a_graph_without_nodes_and_asks_nothing(docs: DocumentSet) -> None:
    graph, model = build(Script(), docs, plan())
    assert not graph.nodes and not graph.levels and not graph.top and not model.contexts
    assert graph.embeddings.shape == (0, 3)


def test_chunks_remember_their_place_and_are_read_on_one_line() -> None:
    docs = DocumentSet((Document("Title", "a\nb"), Document("", "c\n\n d  e")))
    graph, _ = build(Script(summary=saying("* s")), docs, plan(chunk_tokens=12))
    first, second = graph.nodes[:2]
    assert (first.document, first.start, first.end, first.text) == (0, 0, 9, "Title a b")
    assert (second.document, second.start, second.end, second.text) == (1, 0, 8, "c d e")


def test_a_chunk_of_white_space_is_no_node() -> None:
    graph, _ = build(Script(summary=saying("* s")), documents("a b c d" + "\n" * 8 + "e f g h"), plan())
    assert [n.text for n in graph.nodes if n.level == 1] == ["a b c d", "e f g h"]
    assert events(graph) == {"blank_chunk": 2}


def test_an_empty_summary_moves_its_nodes_up_unchanged() -> None:
    graph, _ = build(Script(summary=saying("* p", "", "* top")), THREE, plan(room=12))
    assert [[graph.nodes[n].text for n in level] for level in graph.levels] == [
        *(["a b c d", "e f g h", "i j k l"], ["p", "i j k l"], ["top"])
    ]
    assert [n.level for n in graph.nodes] == [1, 1, 1, 2, 3]
    assert edges(graph)["top"] == {"i j k l": 0.5, "p": 0.5}
    assert events(graph) == {"empty_summary": 1}


def test_when_every_summary_is_empty_the_chunks_are_the_top() -> None:
    graph, model = build(Script(summary=lambda nodes: ""), THREE, plan(room=12))
    assert graph.top == (0, 1, 2) and not len(graph.upper)
    assert events(graph) == {"empty_summary": 2, "level_not_smaller": 1} and len(model.contexts) == 2


@pytest.mark.parametrize(
    ("replies", "levels", "counted"),
    [
        # The same number of nodes and longer: nothing would be gained by going on.
        (["* a b c d more\n* e f g h more", "* i j k l more"], [3, 3], {"level_not_smaller": 1}),
        # More nodes with fewer tokens are a smaller level.
        (["* p\n* q", "* r\n* t", "* top"], [3, 4, 1], {}),
    ],
)
def test_a_level_no_smaller_is_last(replies: list[str], levels: list[int], counted: dict[str, int]) -> None:
    graph, _ = build(Script(summary=saying(*replies)), THREE, plan(room=12))
    assert graph.notes["levels"] == levels and events(graph) == counted


def test_levels_end_at_the_most_that_are_allowed() -> None:
    script = Script(summary=lambda nodes: "\n".join(f"* {node[: len(node) // 2]}" for node in nodes))
    graph, _ = build(script, documents(" ".join("abcdefghijklmnopqrstuvwxyz")), plan(room=12, levels=3))
    assert len(graph.levels) == 3 and events(graph)["max_levels"] == 1


def test_repeated_bullets_are_one_node_with_the_mean_of_their_edges() -> None:
    """Twice in one batch with (3/4, 1/4) each, once in another: means (3/4, 1/4, 0) * 2 and (0, 0, 1)."""
    script = Script(
        summary=saying("* same\n* same", "* same\n* own", "* top"),
        edge=lambda line, node: 3.0 if node == "a b c d" else 1.0,
    )
    graph, _ = build(script, THREE, plan(room=12))
    assert points(graph) == ["same", "own"]
    assert edges(graph)["same"] == {"a b c d": 0.5, "e f g h": round(0.5 / 3, 6), "i j k l": round(1 / 3, 6)}
    assert events(graph) == {"duplicate_bullet": 2}


def test_a_bullet_that_was_cut_short_is_kept_and_flagged() -> None:
    script = Script(summary=lambda nodes: "* whole\n* " + "cut " * 100)
    graph, _ = build(script, documents("a b c d"), plan(summary=10))
    assert [(n.text, n.cut) for n in graph.nodes if n.level == 2] == [
        ("whole", False),
        ("cut cut cut cut cut cut", True),
    ]
    assert events(graph) == {"cut_bullet": 1}


def test_a_bullet_of_the_last_token_alone_has_no_attention_and_uniform_edges() -> None:
    """The last generated token was never forwarded, so nothing was recorded for it."""
    script = Script(summary=lambda nodes: "* a\n* b c", edge=lambda line, n: 1.0 if n == "e f g h" else 0.0)
    graph, _ = build(script, TWO, plan(summary=5))
    assert edges(graph) == {"a": {"a b c d": 0.0, "e f g h": 1.0}, "b": {"a b c d": 0.5, "e f g h": 0.5}}
    assert events(graph) == {"cut_bullet": 1, "zero_row": 1}


@pytest.mark.parametrize(
    ("reply", "texts", "counted"),
    [
        ("First. \nSecond.", ["First.", "Second."], {"no_bullets": 1}),
        ("- one\n- two", ["one", "two"], {"other_marker": 1}),
        ("Sure!\n\n* one", ["one"], {"text_outside_bullets": 1}),
        ("* again\n" * 500, ["again"], {"cut_bullet": 1, "duplicate_bullet": 19}),
    ],
)
def test_other_lists_are_read_and_counted(reply: str, texts: list[str], counted: dict[str, int]) -> None:
    graph, _ = build(Script(summary=lambda nodes: reply), documents("a b c d"), plan())
    assert points(graph) == texts and events(graph) == counted


def test_a_node_longer_than_a_batch_is_split_at_chunk_size() -> None:
    """A level above chunks: both pieces keep the edges of the bullet they came from."""
    script = Script(summary=saying("* x y z u v w", "* short", "* top", "* end"))
    graph, _ = build(script, TWO, plan(room=7))
    assert points(graph) == ["x y z u", "v w", "short"]
    assert edges(graph)["x y z u"] == edges(graph)["v w"] == {"a b c d": 1.0}
    assert events(graph)["split_node"] == 1


def test_a_chunk_longer_than_a_batch_is_split_within_its_place_in_the_document() -> None:
    text = " ".join("abcdefghijkl")
    graph, model = build(Script(), documents(text), plan(room=10, chunk_tokens=12))
    chunks = [n for n in graph.nodes if n.level == 1]
    assert "".join(text[n.start : n.end] for n in chunks) == text and len(chunks) == 2
    assert all(model.count_tokens(f"* {n.text}\n") <= 10 for n in chunks)


def test_no_room_for_nodes_is_an_error_of_the_set_up() -> None:
    with pytest.raises(ConfigError, match="window"):
        build(Script(), documents("a b c d"), plan(room=3))


def test_attention_that_is_not_a_number_is_never_an_edge() -> None:
    with pytest.raises(InvalidLogitsError):
        edge_weights([Bullet("x", (0,))], np.array([[np.nan, 1.0]]))


def test_every_row_of_edge_weights_sums_to_1() -> None:
    """Also that of a bullet without tokens, or one that attends to nothing: as much to each node."""
    bullets = [Bullet("read", (0, 1)), Bullet("blind", (2,)), Bullet("bare", ())]
    attention = np.array([[0.2, 0.0, 0.0], [0.4, 0.2, 0.0], [0.0, 0.0, 0.0]])
    weights, unattended = edge_weights(bullets, attention)
    np.testing.assert_allclose(weights, [[0.75, 0.25, 0], [1 / 3] * 3, [1 / 3] * 3])
    assert unattended == 2


def test_batches_of_a_level_are_in_flight_together() -> None:
    open_at_once: list[int] = []

    class Watching(ScriptedModel):
        async def open(self, max_tokens: int | None = None) -> Any:
            context = await super().open(max_tokens)
            await asyncio.sleep(0)
            open_at_once.append(sum(not c.closed for c in self.contexts))
            return context

    asyncio.run(build_graph(THREE, Watching(Script()), ScriptedEmbedder(), plan(room=6)))
    assert max(open_at_once) == 3


def test_one_failing_batch_stops_the_others_and_is_what_is_raised() -> None:
    def fails(nodes: list[str]) -> str:
        if "e f g h" in nodes:
            raise InvalidLogitsError("not numbers")
        return "* fine"

    model = ScriptedModel(Script(summary=fails))
    with pytest.raises(InvalidLogitsError):
        asyncio.run(build_graph(THREE, model, ScriptedEmbedder(), plan(room=6)))
    assert all(context.closed for context in model.contexts)


def test_every_node_is_embedded_once_and_to_unit_length() -> None:
    embedder = ScriptedEmbedder({"a b c d": (3, 4, 0), "s": (0, 0, 2)})
    graph, _ = build(Script(summary=saying("* s")), documents("a b c d"), plan(), embedder)
    assert embedder.asked == ["a b c d", "s"]
    assert graph.embeddings.tolist() == [[pytest.approx(0.6), pytest.approx(0.8), 0.0], [0.0, 0.0, 1.0]]


def test_building_is_paid_by_whoever_asked() -> None:
    with metered(Meter()) as meter:
        _, model = build(Script(), THREE, plan(room=12))
    assert spent(meter) == model.forwarded


def test_a_tree_has_one_summary_a_group_with_edges_from_attention() -> None:
    script = Script(
        summary=saying("Mara is a baker.\nShe hid it."),
        edge=lambda line, node: 2.0 if node == "a b c d" else 1.0,
    )
    graph, model = build(script, TWO, plan(kind="tree"))
    assert edges(graph) == {"Mara is a baker. She hid it.": {"a b c d": 0.666667, "e f g h": 0.333333}}
    prompt = raptor_summary_prompt("a b c d\n\ne f g h\n\n")
    assert prompt in "".join(token for _, token in model.contexts[0].log)


def test_a_tree_over_few_nodes_is_one_group_cut_only_by_the_room() -> None:
    script = Script(summary=lambda nodes: f"sum {len(nodes)}")
    graph, model = build(script, THREE, plan(room=14, kind="tree"))
    assert graph.notes["kind"] == "tree" and graph.notes["levels"] == [3, 2, 1]
    assert [n.text for n in graph.nodes[3:]] == ["sum 2", "sum 1", "sum 2"]
    assert len(model.contexts) == 3


def test_without_attention_a_served_builder_writes_equal_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    docs, how = documents("one two three four. five six seven eight. nine ten eleven twelve."), plan()
    script = Script(edge=lambda line, node: float(len(node)))
    known, _ = build(script, docs, how)

    def refuse(self: ScriptedContext, span: Any, heads: Any) -> int:
        raise NoAttentionError("behind a server")

    monkeypatch.setattr(ScriptedContext, "watch", refuse)
    with pytest.raises(NoAttentionError):
        build(script, docs, how)
    served = asyncio.run(build_graph(docs, ScriptedModel(script), ScriptedEmbedder(), how, attention=False))
    assert [node.text for node in served.nodes] == [node.text for node in known.nodes]
    assert "no_attention" in events(served) and "zero_row" not in events(served)
    for lower in edges(served).values():
        assert set(lower.values()) == {round(1 / len(lower), 6)}
    assert edges(known) != edges(served)
