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
from methods.pecan.prompts import PECAN_QUESTION_BEHIND
from methods.pecan.scores import Scoring
from tests.methods.pecan.scripted import ScriptedContext, models, spent
from tests.methods.pecan.worked_graph import DOCUMENTS, make_graph, method, path, question, search, visits

ALL = np.arange(3)
ATTENTION, SIMILARITY = np.array([0.6, 0.2, 0.2]), np.array([0.1, 0.5, 0.4])


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_equal_weights_are_the_papers_plain_sum_and_others_decide_between_the_two(weight: float) -> None:
    score = Scoring("sum1", weight).combine(ATTENTION, SIMILARITY, ALL)
    assert score == pytest.approx(2 * weight * ATTENTION + 2 * (1 - weight) * SIMILARITY)


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


@pytest.mark.parametrize("behind", ["around", "asked"])
def test_the_question_behind_the_nodes_of_every_probe_is_rolled_back(behind: Any) -> None:
    plain, around = models(), models()
    expected = search(plain)[0]
    prediction, meter = search(around, probe_question=behind)
    assert path(prediction) == path(expected)  # the script ignores the prompt
    assert prediction.prompt_tokens == expected.prompt_tokens  # nothing of it stays
    again = len(around.lm().tokenize(PECAN_QUESTION_BEHIND[behind].format(question="who")).ids)
    steps = len(prediction.trace["steps"])
    assert around.lm().forwarded == plain.lm().forwarded + steps * again
    assert spent(meter) == around.lm().forwarded


@pytest.mark.parametrize("behind", ["around", "asked"])
def test_the_repeated_questions_attention_ranks_nodes_by_what_it_looks_at(behind: str) -> None:
    graph = make_graph(levels=[("alpha", "beta", "gamma"), ("p", "q")])
    looks_at = {"p": 0.1, "q": 0.9}
    options: dict[str, Any] = {"probe_question": behind, "relevance": "question", "position_factor": "off"}
    prediction, _ = search(models(asked_again=lambda node: looks_at.get(node, 0.0)), graph, **options)
    assert [visit["r"] for visit in visits(prediction)[:2]] == pytest.approx([0.1, 0.9])
    assert path(prediction)[2] in ("1.2", "1.3")  # beta or gamma, below q
    prediction, _ = search(models(asked_again=lambda node: 1 - looks_at.get(node, 1.0)), graph, **options)
    assert path(prediction)[2] == "1.1"  # alpha, below p


def test_a_question_that_its_template_contains_is_found_in_its_place(monkeypatch: Any) -> None:
    """“No” was found in the instruction behind the question, whose attention then ranked."""
    extend, focused = ScriptedContext.extend, list[Any]()

    async def spy(self: Any, text: str, *, focus: Any = None) -> Any:
        focused.append((text, focus))
        return await extend(self, text, focus=focus)

    monkeypatch.setattr(ScriptedContext, "extend", spy)
    search(models(), asked=question("No"), probe_question="asked", relevance="question")
    again = PECAN_QUESTION_BEHIND["asked"].format(question="No")
    at = again.index("No”")
    assert {focus for text, focus in focused if text == again} == {(at, at + 2)}


def test_confidence_is_relative_to_the_same_questions_first_probes() -> None:
    """p_yes .2 before reading, .5 after the top level, then .6, .8: log-odds of 4, 1, 1.5, 4 to 1."""
    p_yes = {0: 0.2, 1: 0.5, 2: 0.6, 3: 0.8}
    asked: dict[str, Any] = {"p_yes": lambda nodes: p_yes.get(len(nodes), 0.1)}
    ends = {
        (confidence, t_c): search(models(**asked), confidence=confidence, t_c=t_c)[0].trace
        for confidence, thresholds in {"over_nothing": (0.79, 0.81), "over_top": (0.59, 0.61)}.items()
        for t_c in thresholds
    }
    assert [len(trace["steps"]) for trace in ends.values()] == [1, 2, 2, 3]
    assert {trace["base"] for (over, _), trace in ends.items() if over == "over_nothing"} == {0.2}
    assert {trace["base"] for (over, _), trace in ends.items() if over == "over_top"} == {0.5}


def test_without_a_threshold_a_relative_yes_is_one_that_is_likelier_than_at_first() -> None:
    rising = models(p_yes=lambda nodes: 0.01 * (1 + len(nodes)))
    told = question(paper_values={"pecan": {"t_c": 0.98}})
    assert len(search(rising, asked=told, confidence="over_top")[0].trace["steps"]) == 2


def test_what_is_asked_before_reading_costs_a_context_of_its_own_and_nothing_else() -> None:
    plain, relative = models(), models()
    _, alone = search(plain, t_c=1)
    _, both = search(relative, t_c=1, confidence="over_nothing")
    unread, walk = relative.lm().contexts
    assert both.new_tokens == alone.new_tokens + len(unread.log)
    assert walk.log == plain.lm().contexts[0].log


@pytest.mark.parametrize("p_yes", [0.0, 1.0])
def test_a_reader_that_is_always_sure_is_no_surer_than_at_first(p_yes: float) -> None:
    prediction, _ = search(models(p_yes=lambda nodes: p_yes), confidence="over_top", t_c=0.4)
    assert len(prediction.trace["steps"]) == 1  # 0.5 and not a division by zero


def test_an_answer_from_chunks_reads_the_text_below_the_chosen_nodes_in_its_order() -> None:
    """top (mostly alpha), then q (beta and gamma alike: the first), p (mostly alpha), then delta itself."""
    graph = make_graph(similarity={"p": 0.8, "q": 0.9, "delta": 0.7})
    options: dict[str, Any] = {"attention": "off", "answer_from": "chunks", "t_c": 0.5}
    expected = [["alpha"], ["beta"], ["alpha", "beta"], ["alpha", "beta", "delta"]]
    for read, chunks in enumerate(expected, start=1):
        asked = models(p_yes=lambda nodes, read=read: float(len(nodes) >= read))
        prediction, meter = search(asked, graph, **options)
        assert [item.text for item in prediction.context] == chunks
        assert meter.new_tokens == asked.lm().forwarded + len(asked.encoder.asked)
        assert not asked.lm().held  # two walks that each held a context waited for one another's


def test_where_no_chunk_fits_the_answer_the_record_names_no_node_of_the_search_as_read() -> None:
    prediction, _ = search(models(), asked=question(max_new_tokens=970), answer_from="chunks")
    assert not prediction.context and prediction.truncated and prediction.flags == ("empty_context",)


def test_function_words_are_no_content_words() -> None:
    text = "Who is the owner of Orit?"
    offsets = [(0, 3), (3, 6), (6, 10), (10, 16), (16, 19), (19, 22), (22, 24), (24, 25)]
    assert content_tokens(text, offsets).tolist() == [False, False, False, True, False, True, True, False]
    assert content_tokens("to be or not", [(0, 2), (2, 5), (5, 8), (8, 12)]).all(), "there is no other"


def test_edges_of_content_words_leave_out_the_attention_of_function_words() -> None:
    bullet = Bullet("of Orit", (0, 1))
    attention = np.array([[0.9, 0.1], [0.2, 0.6]])  # of "of" and "Orit" to two nodes
    assert edge_weights([bullet], attention)[0].tolist() == [pytest.approx([1.1 / 1.8, 0.7 / 1.8])]
    only = with_content_words(bullet, content_tokens("of Orit", [(0, 2), (2, 7)]))
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
        ({"heads": "top_layers", "attention": "off"}, "heads=top_layers does nothing with"),
        ({"tokens": "content", "attention": "off"}, "tokens=content does nothing with attention=off"),
        ({"relevance": "question", "probe_question": "around", "attention": "off"}, "relevance=question"),
        ({"t_p": 3, "n_nodes": 5, "progress_control": "off"}, "t_p=3 does nothing with"),
        ({"heads": "3.1", "search_model": "tiny"}, "heads of one model"),
        ({"attention_weight": 0.7, "similarity": "off"}, "one of them is off"),
        ({"relevance": "question"}, "probe_question=around"),
        ({"confidence": "over_top", "progress_control": "off"}, "confidence=over_top does nothing with"),
        ({"probe_question": "asked", "progress_control": "off"}, "probe_question=asked does nothing"),
        ({"second_turn": "none"}, "set probe_question=asked, and"),
        ({"second_turn": "none", "probe_question": "asked"}, "relevance=question or attention=off"),
        ({"answer_from": "chunks", "second_turn": "restated"}, "answer_from=chunks asks another"),
        ({"prompt": "longbench"}, "prompt=longbench repeats the question.*prompt=pecan"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(PecanConfig, options, "pecan")


def test_the_papers_choices_keep_the_identity_of_cells_and_graphs_from_before_the_options() -> None:
    new = {"attention_weight", "position_factor", "probe_question", "relevance", "tokens", "heads"}
    new |= {"confidence", "answer_from", "second_turn", "prompt"}
    assert not new & method().config.model_dump().keys()
    assert method(second_turn="restated").config.model_dump()["second_turn"] == "restated"
    assert not {"tokens", "heads"} & method().index_options().keys()
    assert method(tokens="content").index_options()["tokens"] == "content"
