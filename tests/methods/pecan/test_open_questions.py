"""The options for what the papers leave open: each changes what its description says, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bench.engine.heads import Heads
from bench.errors import ConfigError
from bench.method.options import build_config
from methods.pecan import PecanConfig
from methods.pecan.bullets import Bullet
from methods.pecan.construction import edge_weights, with_content_words
from methods.pecan.content_words import content_tokens
from methods.pecan.prompts import pecan_question_again
from methods.pecan.scores import Scoring
from tests.methods.pecan.scripted import Script, ScriptedModel, ScriptedModels
from tests.methods.pecan.worked_graph import DOCUMENTS, make_graph, method, path, search, visits

ALL = np.arange(3)
ATTENTION, SIMILARITY = np.array([0.6, 0.2, 0.2]), np.array([0.1, 0.5, 0.4])


def models(**script: Any) -> ScriptedModels:
    return ScriptedModels(ScriptedModel(Script(**script)))


def test_equal_weights_are_the_papers_plain_sum() -> None:
    score = Scoring("sum1", 0.5).combine(ATTENTION, SIMILARITY, ALL)
    assert score == pytest.approx(ATTENTION + SIMILARITY)


@pytest.mark.parametrize(("weight", "best"), [(0.0, 1), (0.25, 1), (0.75, 0), (1.0, 0)])
def test_the_weight_decides_between_attention_and_similarity(weight: float, best: int) -> None:
    assert Scoring("sum1", weight).combine(ATTENTION, SIMILARITY, ALL).argmax() == best


def test_ranks_do_not_depend_on_the_scale_of_a_score() -> None:
    scoring = Scoring("ranks", 0.5)
    scores = scoring.combine(ATTENTION, SIMILARITY, ALL)
    assert scores == pytest.approx([1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 62 + 1 / 62])
    assert (scoring.combine(ATTENTION**3, 9 * SIMILARITY, ALL) == scores).all()


def test_without_the_position_factor_a_late_node_counts_as_much_as_an_early_one() -> None:
    graph = make_graph(levels=[("alpha", "beta", "gamma"), ("p", "q")])
    first, second = visits(search(models(), graph)[0])[:2]
    assert (first["r"], second["r"]) == (2, 3)
    first, second = visits(search(models(), graph, position_factor="off")[0])[:2]
    assert first["r"] == second["r"] == 1


def test_the_question_is_repeated_behind_the_nodes_of_every_probe_and_rolled_back() -> None:
    plain, around = models(), models()
    expected = search(plain)[0]
    prediction, meter = search(around, probe_question="around")
    assert path(prediction) == path(expected)  # the script ignores the prompt
    assert prediction.prompt_tokens == expected.prompt_tokens  # nothing of it stays
    again = len(around.lm().tokenize(pecan_question_again("who")).ids)
    steps = len(prediction.trace["steps"])
    assert around.lm().forwarded == plain.lm().forwarded + steps * again
    spent = sum(usage.new_tokens for (model, _), usage in meter.usage.items() if model == "scripted")
    assert spent == around.lm().forwarded


def test_the_repeated_questions_attention_ranks_nodes_by_what_it_looks_at() -> None:
    graph = make_graph(levels=[("alpha", "beta", "gamma"), ("p", "q")])
    looks_at = {"p": 0.1, "q": 0.9}
    options: dict[str, Any] = {"probe_question": "around", "relevance": "question", "position_factor": "off"}
    prediction, _ = search(models(asked_again=lambda node: looks_at.get(node, 0.0)), graph, **options)
    assert [visit["r"] for visit in visits(prediction)[:2]] == pytest.approx([0.1, 0.9])
    assert path(prediction)[2] in ("1.2", "1.3")  # beta or gamma, below q
    prediction, _ = search(models(asked_again=lambda node: 1 - looks_at.get(node, 1.0)), graph, **options)
    assert path(prediction)[2] == "1.1"  # alpha, below p


def test_function_words_are_no_content_words() -> None:
    text = "Who is the owner of Orit?"
    offsets = [(0, 3), (3, 6), (6, 10), (10, 16), (16, 19), (19, 22), (22, 24), (24, 25)]
    assert content_tokens(text, offsets).tolist() == [False, False, False, True, False, True, True, False]


def test_a_text_of_function_words_alone_counts_as_a_whole() -> None:
    assert content_tokens("to be or not", [(0, 2), (2, 5), (5, 8), (8, 12)]).all()


def test_edges_of_content_words_leave_out_the_attention_of_function_words() -> None:
    bullet = Bullet("of Orit", (0, 1))
    attention = np.array([[0.9, 0.1], [0.2, 0.6]])  # of "of" and "Orit" to two nodes
    assert edge_weights([bullet], attention)[0].tolist() == [pytest.approx([1.1 / 1.8, 0.7 / 1.8])]
    content = content_tokens("of Orit", [(0, 2), (2, 7)])
    only = with_content_words(bullet, content)
    assert edge_weights([only], attention)[0].tolist() == [pytest.approx([0.25, 0.75])]


@pytest.mark.parametrize(
    ("option", "pairs"),
    [
        ("all", None),
        ("top_layers", ((2, 0), (2, 1), (3, 0), (3, 1))),  # the last third of four, rounded up
        ("3.1+0.0", ((0, 0), (3, 1))),
    ],
)
def test_the_heads_of_the_option_watch_in_graph_and_search(option: str, pairs: Any) -> None:
    asked, built = models(), models()
    search(asked, heads=option)
    asyncio.run(method(heads=option).index(DOCUMENTS, built))
    contexts = [*asked.lm().contexts, *built.lm().contexts]
    watching = [context for context in contexts if context.watched]
    assert len(watching) >= 2
    assert {context.heads for context in watching} == {pairs and Heads(pairs)}


@pytest.mark.parametrize("missing", ["4.0", "0.2"])
def test_heads_that_the_model_lacks_are_refused_before_anything_is_read(missing: str) -> None:
    asked, built = models(), models()
    expected = f"heads={missing}: scripted has 4 layers of 2 attention heads, 0.0 to 3.1."
    with pytest.raises(ConfigError, match=expected):
        search(asked, heads=missing)
    with pytest.raises(ConfigError, match=expected):
        asyncio.run(method(heads=missing).index(DOCUMENTS, built))
    assert not asked.lm().forwarded and not built.lm().forwarded


def test_a_list_of_heads_has_one_spelling_and_so_one_identity() -> None:
    assert method(heads="3.1+0.0").config == method(heads="0.0+3.1+3.1").config
    assert method(heads="3.1+0.0").index_options()["heads"] == "0.0+3.1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": "last"}, "layer.head, such as 3.1"),
        ({"heads": 3.10}, "reads as a number"),
        ({"heads": "top_layers", "attention": "off"}, "attention=off counts none"),
        ({"heads": "3.1", "search_model": "tiny"}, "heads of one model"),
        ({"attention_weight": 0.7, "similarity": "off"}, "one of them is off"),
        ({"relevance": "question"}, "probe_question=around"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(PecanConfig, options, "pecan")


def test_the_papers_choices_keep_the_identity_of_cells_and_graphs_from_before_the_options() -> None:
    new = {"attention_weight", "position_factor", "probe_question", "relevance", "tokens", "heads"}
    assert not new & method().config.model_dump().keys()
    assert not {"tokens", "heads"} & method().index_options().keys()
    assert method(tokens="content").index_options()["tokens"] == "content"
