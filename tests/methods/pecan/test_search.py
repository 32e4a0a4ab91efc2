from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.errors import BenchError, ConfigError, InvalidLogitsError, WindowExceededError
from bench.method.prompts import ANSWER_INSTRUCTION
from bench.schema import DocumentSet
from methods.pecan import Pecan, PecanConfig
from methods.pecan.prompts import PECAN_NODE, pecan_search_head
from tests.methods.pecan.scripted import (
    CLOSING,
    GEOMETRY,
    NEXT_TURN,
    OPENING,
    Script,
    ScriptedModel,
    ScriptedModels,
    models,
    spent,
)
from tests.methods.pecan.worked_graph import CHUNKS, make_graph, method, path, question, search, visits

count = ScriptedModel().count_tokens

# --------------------------------------------------------------------------------- where to go next


def test_a_path_and_all_its_numbers_by_hand() -> None:
    """Attention alone, unnormalised: r = attention x position, z = sum of r e over the visited above.

    top: r = 0.1 x 2 = 0.2           -> p: 0.75 x 0.2 = 0.15, q: 0.25 x 0.2 = 0.05    -> p
    p:   r = 0.2 x 3 = 0.6           -> alpha: 0.75 x 0.6 = 0.45, beta: 0.15          -> alpha
    alpha: r = 0.5 x 4 = 2, no edges -> beta 0.15, q 0.05                             -> beta
    beta: nothing new                                                                 -> q
    q:   r = 0.1 x 6 = 0.6           -> gamma: 0.5 x 0.6 = 0.3                        -> gamma
    delta has no edge and z = 0, and comes last.
    """
    attention = {"top": 0.1, "p": 0.2, "alpha": 0.5, "beta": 0.5, "q": 0.1, "gamma": 0.5, "delta": 0.5}
    prediction, _ = search(models(relevance=lambda n: attention[n]), similarity="off", score_norm="none")
    assert path(prediction) == ["3.1", "2.1", "1.1", "1.2", "2.2", "1.3", "1.4"]
    read = visits(prediction)
    assert [n["position"] for n in read] == [2, 3, 4, 5, 6, 7, 8]
    assert [n["r"] for n in read] == pytest.approx([0.2, 0.6, 2.0, 2.5, 0.6, 3.5, 4.0])
    assert [n["z"] for n in read[1:]] == pytest.approx([0.15, 0.45, 0.15, 0.05, 0.3, 0.0])
    assert [n["score"] for n in read[1:]] == [n["z"] for n in read[1:]]
    assert read[0]["z"] is None and read[0]["score"] is None
    assert prediction.trace["stop"] == "exhausted"


def test_position_multiplies_so_that_a_later_node_weighs_more() -> None:
    """Two top nodes with the same attention: the fourth position counts twice the second."""
    graph = make_graph((CHUNKS, ("p", "q", "s")), {"p": {"alpha": 1.0}, "s": {"gamma": 1.0}})
    prediction, _ = search(models(), graph, similarity="off")
    assert [n["r"] for n in visits(prediction)[:3]] == [2.0, 3.0, 4.0]
    assert path(prediction)[3:5] == ["1.3", "1.1"]


def test_a_node_with_two_visited_above_it_adds_both() -> None:
    """beta: r_p 0.25 + r_q 0.5 = 2 x 0.25 + 3 x 0.5 = 2; alpha 2 x 0.75 = 1.5; gamma 3 x 0.5 = 1.5."""
    prediction, _ = search(models(), make_graph((CHUNKS, ("p", "q"))), similarity="off", score_norm="none")
    assert path(prediction)[2] == "1.2" and visits(prediction)[2]["z"] == 2.0


def test_scores_are_normalised_over_the_candidates_and_added() -> None:
    """z of p, q: 1.5 and 0.5 -> 0.75, 0.25. Similarities q 0.125, delta 0.375, alpha -0.5 (counts as 0).

    Sum 0.5: q 0.25, delta 0.75. Scores: p 0.75, q 0.25 + 0.25 = 0.5, delta 0.75: a tie of p and delta,
    and delta is on the lower level.
    """
    graph = make_graph(similarity={"p": 0.0, "q": 0.125, "delta": 0.375, "alpha": -0.5})
    prediction, _ = search(models(), graph)
    second = visits(prediction)[1]
    assert second["id"] == "1.4" and second["score"] == pytest.approx(0.75) and second["z"] == 0.0
    assert second["similarity"] == pytest.approx(0.375)


def test_garlic_sums_over_all_nodes_visited_ones_too() -> None:
    """GARLIC, Sec. 3.2.2: z and similarity "so that the sum of their elements equals 1", then added.

    Similarities top 0.5, q 0.125, delta 0.375: the sum is 1, so that delta has 0.375 and p's 0.75 wins, where
    the sum over what is left to read makes delta its equal.
    """
    graph = make_graph(similarity={"top": 0.5, "p": 0.0, "q": 0.125, "delta": 0.375, "alpha": -0.5})
    second = visits(search(models(), graph, variant="garlic")[0])[1]
    assert second["id"] == "2.1" and second["score"] == pytest.approx(0.75)
    assert visits(search(models(), graph)[0])[1]["id"] == "1.4"
    assert PecanConfig(variant="garlic").norm == "sum1_all" and PecanConfig().norm == "sum1"


def test_without_normalisation_scores_are_added_as_they_are() -> None:
    """After top: p 1.5, q 0.5 - 0.5 = 0, delta 0.375, alpha -0.125. After p: alpha 2.25 - 0.125, beta 0.75.

    q and gamma end with 0: the lower level first.
    """
    graph = make_graph(similarity={"delta": 0.375, "q": -0.5, "alpha": -0.125})
    prediction, _ = search(models(), graph, score_norm="none")
    assert path(prediction) == ["3.1", "2.1", "1.1", "1.2", "1.4", "1.3", "2.2"]
    scores = [n["score"] for n in visits(prediction)[1:]]
    assert scores == pytest.approx([1.5, 2.125, 0.75, 0.375, 0.0, 0.0])


@pytest.mark.parametrize(
    ("similarity", "read"),
    [
        ({"gamma": 0.9, "q": 0.3}, ["1.3", "2.2"]),  # every unvisited node is a candidate
        (dict.fromkeys(("p", "beta", "alpha", "q"), 0.5), ["1.1", "1.2", "2.1", "2.2"]),  # ties
    ],
)
def test_ties_go_to_the_lower_level_then_earlier_node(similarity: dict[str, float], read: list[str]) -> None:
    prediction, _ = search(models(relevance=lambda node: 0.0), make_graph(similarity=similarity))
    assert path(prediction)[: 1 + len(read)] == ["3.1", *read]


def test_attention_alone_begins_at_the_earliest_of_the_highest_level_when_there_is_none() -> None:
    prediction, _ = search(models(relevance=lambda node: 0.0), similarity="off")
    assert path(prediction) == ["3.1", "2.1", "2.2", "1.1", "1.2", "1.3", "1.4"]


def test_similarity_alone_records_no_attention_and_reads_by_cosine_below_0_too() -> None:
    fixed, below = models(), {"alpha": -0.9, "beta": -0.1, "q": -0.5}
    graph = make_graph(similarity={"gamma": 0.9, "p": 0.8, "delta": 0.1, **below})
    prediction, _ = search(fixed, graph, attention="off")
    assert path(prediction) == ["3.1", "1.3", "2.1", "1.4", "1.2", "2.2", "1.1"]
    assert all(n["r"] is None and n["z"] is None for n in visits(prediction))
    assert not fixed.reader.contexts[0].watched


def test_the_question_alone_is_attended_to_not_its_instruction() -> None:
    fixed = models()
    search(fixed, asked=question("who hid it"))
    context = fixed.reader.contexts[0]
    ((span, since),) = context.watched
    assert [t.text for t in context.tokens[span.start : span.end]] == ["who", " hid", " it"]
    assert since == len(OPENING) + count(pecan_search_head("who hid it"))


# ------------------------------------------------------------------------------------ what is read


def test_each_token_is_forwarded_exactly_once() -> None:
    """Tokens forwarded = prompt, question, visited nodes, probes and the answer: a ratio of 1.000."""
    fixed = models(p_yes=lambda nodes: 0.9 if len(nodes) == 4 else 0.1, answer=lambda nodes: "in the mill")
    prediction, meter = search(fixed)
    (context,) = fixed.reader.contexts
    kept = [(at, token) for at, token in context.log if at < prediction.prompt_tokens]
    nodes = [PECAN_NODE.format(text=text) for text in ("top", "p", "alpha", "beta")]
    probes = 4 * len(CLOSING)
    first_turn = len(OPENING) + count(pecan_search_head("who")) + sum(map(count, nodes))
    second = len(CLOSING) + 1 + len(NEXT_TURN) + count(ANSWER_INSTRUCTION) + len(CLOSING)
    decoded = count("in the mill")  # each of them went through the layers, to find that the answer ends
    assert len(path(prediction)) == 4
    assert context.lm.forwarded == first_turn + probes + second + decoded
    assert prediction.prompt_tokens == first_turn + second
    assert spent(meter) == context.lm.forwarded
    text = [at for at, token in kept if token not in (*CLOSING, *NEXT_TURN)]
    assert len(text) == len(set(text))


RESTATED = f"{ANSWER_INSTRUCTION}\n\nQuestion: who\nAnswer:"
"""Turn 2 for a reader of real text that would answer turn 1 again."""
LONGBENCH = {"prompt": "longbench", "second_turn": "restated"}
ONE_TURN = {"second_turn": "none", "probe_question": "asked", "relevance": "question"}


@pytest.mark.parametrize(
    ("options", "turn2"),
    [
        ({}, ANSWER_INSTRUCTION),
        ({"second_turn": "restated"}, RESTATED),
        ({"second_turn": "restated", "prompt": "longbench"}, "Answer in a word.\n\nQuestion: who"),
        ({**ONE_TURN, "prompt": "longbench"}, "\n\nAnswer in a word.\n\nQuestion: who"),
    ],
)
def test_the_conversation_is_the_papers_word_for_word_or_restates_the_question_or_is_one_turn(
    options: dict[str, Any], turn2: str
) -> None:
    fixed = models(p_yes=lambda nodes: 0.9 if len(nodes) == 2 else 0.1)
    template = "Read this.\n{context}\n\nAnswer in a word.\n\nQuestion: {input}"
    prediction, _ = search(fixed, asked=question(longbench_prompt=template), **options)
    (context,) = fixed.reader.contexts
    one = options.get("second_turn") == "none"
    turn1 = ("Read this.\n" if one else pecan_search_head("who")) + "* top\n* p\n"
    said = [] if one else [*CLOSING, "Yes", *NEXT_TURN]
    wanted = "".join([*OPENING, turn1, *said, turn2, *CLOSING, "answer after 2"])
    final = "".join(token for _, token in sorted(dict(context.log).items()))
    assert final[: len(wanted) if one else None] == wanted  # of one turn, the probe reached further
    assert prediction.text == "answer after 2"


def test_the_context_of_a_record_is_what_was_read() -> None:
    prediction, _ = search(models(p_yes=lambda nodes: 0.9 if len(nodes) == 3 else 0.1))
    top, p, alpha = prediction.context
    assert (top.node, top.text, top.start) == ("3.1", "top", None)
    assert (p.node, p.text) == ("2.1", "p")
    assert (alpha.node, alpha.text, alpha.document, alpha.start, alpha.end) == (None, "alpha", 0, 0, 5)
    assert prediction.completion_tokens == 3


# ------------------------------------------------------------------------------------ when to stop


@pytest.mark.parametrize(
    ("options", "nodes", "stop"),
    [
        ({"t_p": 1, "t_c": 0.5}, 2, "patience"),
        ({"t_p": 2, "t_c": 0.5}, 4, "patience"),
        ({"t_p": 2, "t_c": 0.5, "patience": "consecutive"}, 5, "patience"),
        ({"t_p": 3, "t_c": 0.5, "patience": "consecutive"}, 7, "exhausted"),
        ({"t_p": 1, "t_c": 0.6}, 4, "patience"),  # a confidence that equals the threshold is no Yes
        ({"t_p": 1, "t_c": 0.9}, 7, "exhausted"),
        ({"t_p": 1, "t_c": 0.0}, 1, "patience"),
        ({"t_p": 7, "t_c": 0.0}, 7, "patience"),
        ({"t_p": 1, "t_c": 1.0}, 7, "exhausted"),
    ],
)
def test_a_yes_is_above_the_threshold_and_is_counted(options: dict[str, Any], nodes: int, stop: str) -> None:
    confidence = [0.1, 0.6, 0.2, 0.8, 0.7, 0.1, 0.9]
    prediction, _ = search(models(p_yes=lambda nodes: confidence[len(nodes) - 1]), **options)
    assert (len(path(prediction)), prediction.trace["stop"]) == (nodes, stop)
    assert [step["p_yes"] for step in prediction.trace["steps"]] == confidence[:nodes]
    assert prediction.text == f"answer after {nodes}"


PAPERS = {"pecan": {"t_c": 0.98, "fixed_nodes": None}, "garlic": {"t_c": 0.5, "fixed_nodes": 3}}


@pytest.mark.parametrize(
    ("papers", "options", "t_c"),
    [
        (PAPERS, {}, 0.98),
        (PAPERS, {"variant": "garlic"}, 0.5),
        (PAPERS, {"t_c": 0.7}, 0.7),
        (PAPERS, {"variant": "garlic", "t_c": 0.9}, 0.9),
        ({}, {}, 0.5),  # data that no paper knows
    ],
)
def test_the_threshold_is_the_papers_unless_given(papers: Any, options: dict[str, Any], t_c: float) -> None:
    prediction, _ = search(models(), asked=question(paper_values=papers), **options)
    assert prediction.trace["t_c"] == t_c


def test_a_threshold_of_the_card_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"t_c=1.5 in the card of data set 'toy' \(pecan\)"):
        search(models(), asked=question(paper_values={"pecan": {"t_c": 1.5}}))


# ----------------------------------------------------------------------------- a fixed number of nodes


@pytest.mark.parametrize(
    ("n_nodes", "read", "stop"), [(1, 1, "n_nodes"), (5, 5, "n_nodes"), (99, 7, "exhausted")]
)
def test_a_fixed_count_reads_that_many_asks_nothing_and_ranks(n_nodes: int, read: int, stop: str) -> None:
    """Three levels: 5 // 3 = 1 of the top, one also of 1 // 3; then p, alpha, beta, ... by z."""
    fixed = models(p_yes=lambda nodes: 1.0)
    prediction, meter = search(fixed, progress_control="off", n_nodes=n_nodes, similarity="off")
    assert path(prediction)[:5] == ["3.1", "2.1", "1.1", "1.2", "2.2"][:n_nodes]
    assert len(path(prediction)) == read and prediction.trace["stop"] == stop
    assert all(step["p_yes"] is None and step["mass"] is None for step in prediction.trace["steps"])
    assert not any(phase == "probe" for _, phase in meter.usage)


def test_a_fixed_count_begins_with_a_share_of_the_top_by_similarity_in_order() -> None:
    """Two levels, 4 // 2 = 2 of three top nodes: the most similar, in document order."""
    graph = make_graph((CHUNKS, ("p", "q", "s")), {}, {"p": 0.1, "q": 0.4, "s": 0.9, "beta": 0.5})
    prediction, _ = search(models(), graph, progress_control="off", n_nodes=4, attention="off")
    assert path(prediction) == ["2.2", "2.3", "1.2", "2.1"]
    assert prediction.trace["top_level"] == {"nodes": 3, "left_out": 1} and not prediction.truncated


def test_the_fixed_count_is_the_papers_for_the_data_set_or_has_to_be_given() -> None:
    prediction, _ = search(models(), asked=question(paper_values=PAPERS), progress_control="off")
    assert len(path(prediction)) == 3
    with pytest.raises(ConfigError, match="n_nodes"):
        search(models(), progress_control="off")


# ----------------------------------------------------------------------------------- room and windows


HEAD = ScriptedModel.chat_overhead + count(pecan_search_head("who"))
FRAME = HEAD + 2 * ScriptedModel.chat_overhead + 1 + count(ANSWER_INSTRUCTION) + 8
"""Tokens of everything but nodes: template, question, and the second turn at its bound."""


@pytest.mark.parametrize(("room", "read"), [(2, 0), (3 * 3 + 2, 3), (4 * 3, 4)])
def test_the_search_ends_where_the_next_node_would_pass_the_window(room: int, read: int) -> None:
    """A node is three tokens here: the star, the word, the line end. The first may be without room, too."""
    prediction, _ = search(models(), window=FRAME + room)
    assert len(path(prediction)) == read and prediction.text == f"answer after {read}"
    assert prediction.trace["stop"] == "window" and prediction.truncated


def test_a_restated_question_takes_its_room() -> None:
    longer = count(RESTATED) - count(ANSWER_INSTRUCTION)
    window = FRAME + 4 * 3
    found = [search(models(), second_turn="restated", window=window + more)[0] for more in (longer, 0)]
    assert longer > 0 and len(path(found[0])) == 4 > len(path(found[1]))


def test_an_answer_always_fits_behind_what_was_read() -> None:
    window = FRAME + 3 * 3
    prediction, _ = search(models(answer=lambda nodes: "word " * 50), window=window)
    assert prediction.completion_tokens == 8 and prediction.prompt_tokens + 8 <= window


@pytest.mark.parametrize(
    ("similarity", "room", "read"),
    [
        ({"p": 0.3, "q": 0.1, "s": 0.9}, 2 * 3, ["2.1", "2.3"]),
        ({"p": 0.9, "q": 0.8, "s s s s s s": 0.1}, 4 * 3, ["2.1", "2.2"]),  # nor is there room for it later
    ],
)
def test_a_top_level_longer_than_the_window_keeps_its_most_similar_nodes_in_order(
    similarity: dict[str, float], room: int, read: list[str]
) -> None:
    graph = make_graph((CHUNKS, tuple(similarity)), {}, similarity)
    prediction, _ = search(models(relevance=lambda node: 0.0), graph, window=FRAME + room)
    assert path(prediction) == read and prediction.trace["stop"] == "window"
    assert prediction.truncated and "top_level_cut" in prediction.flags
    assert prediction.trace["top_level"] == {"nodes": 3, "left_out": 1}


def test_similarity_is_computed_for_a_long_top_level_even_where_it_does_not_rank() -> None:
    graph = make_graph((CHUNKS, ("p", "q")), {}, {"p": 0.1, "q": 0.9})
    prediction, _ = search(fixed := models(), graph, similarity="off", window=FRAME + 3)
    assert path(prediction) == ["2.2"] and fixed.encoder.asked == ["who"]
    search(fixed := models(), similarity="off")
    assert fixed.encoder.asked == []


def test_a_question_longer_than_the_window_fails_with_its_length() -> None:
    with pytest.raises(WindowExceededError, match="question"):
        search(models(), asked=question("why " * 400))


# ----------------------------------------------------------------------------------- faults and flags


def test_an_empty_document_is_answered_from_the_question_alone() -> None:
    asked = replace(question(), documents=DocumentSet(()))
    prediction, _ = search(fixed := models(), make_graph((), {}), asked)
    assert prediction.flags == ("empty_document", "empty_context") and not prediction.context
    assert prediction.text == "answer after 0"
    search(fixed, make_graph((), {}), replace(asked, longbench_prompt="wholly {context}"), **LONGBENCH)
    assert "wholly" in {text for _, text in fixed.lm().contexts[-1].log}


@pytest.mark.parametrize(("text", "options"), [("", {}), (" \n", {}), ("", ONE_TURN), (" \n", ONE_TURN)])
def test_an_empty_question_attends_to_nothing_and_is_flagged(text: str, options: dict[str, Any]) -> None:
    prediction, _ = search(models(), make_graph(similarity={"beta": 0.5}), question(text), **options)
    assert "empty_question" in prediction.flags
    if not text or options:
        assert {n["r"] for n in visits(prediction)} == {0.0} and path(prediction)[1] == "1.2"


def test_hardly_any_probability_of_yes_or_no_is_flagged() -> None:
    prediction, _ = search(models(mass=0.01))
    assert "low_yes_no_mass" in prediction.flags and prediction.trace["steps"][0]["mass"] == 0.01
    assert search(models(mass=0.06))[0].flags == ()
    for rule, flags in (
        ("over_nothing", ("low_yes_no_mass",)),
        ("over_top", ()),
    ):  # the other asks after reading
        assert search(models(mass_unread=0.01), confidence=rule)[0].flags == flags


def test_what_went_wrong_with_the_graph_is_flagged_on_its_questions() -> None:
    graph = replace(
        make_graph(), notes={"builder": "b", "levels": [4, 2, 1], "events": {"cut_bullet": 2, "zero_row": 1}}
    )
    prediction, _ = search(models(), graph)
    assert prediction.flags == ("graph_cut_bullet",) and prediction.trace["graph"]["events"]["zero_row"] == 1


def test_a_fault_of_the_model_is_raised_and_the_context_given_back() -> None:
    def broken(nodes: list[str]) -> float:
        if len(nodes) == 2:
            raise InvalidLogitsError("not numbers")
        return 0.0

    fixed = models(p_yes=broken)
    with pytest.raises(InvalidLogitsError):
        search(fixed)
    assert fixed.reader.contexts[0].closed


# ------------------------------------------------------------------------------------------ two models


def two(reader: int = 400, searcher: int = 400, **script: Any) -> ScriptedModels:
    """A model that answers and another that searches, with windows of so many tokens."""
    large, small = (
        ScriptedModel(Script(**script), name, replace(GEOMETRY, window=window))
        for name, window in (("large", reader), ("small", searcher))
    )
    return ScriptedModels(large, others={"searcher": small})


def test_one_model_searches_and_another_answers_from_what_was_read() -> None:
    both = two(p_yes=lambda nodes: 0.9 if len(nodes) == 3 else 0.1)
    searcher, reader = both.lm("searcher"), both.reader
    reader.script.answer = lambda nodes: "read " + " ".join(nodes)
    prediction, meter = search(both, search_model="small")
    assert path(prediction) == ["3.1", "2.1", "1.1"] and prediction.text == "read top p alpha"
    assert (spent(meter, "small"), spent(meter, "large")) == (searcher.forwarded, reader.forwarded)
    assert all(context.closed for context in (*searcher.contexts, *reader.contexts))
    assert "probe" not in {phase for name, phase in meter.usage if name == "large"}


@pytest.mark.parametrize(("windows", "read"), [({"reader": FRAME + 2 * 3}, 2), ({"searcher": HEAD + 9}, 3)])
def test_both_models_must_have_room(windows: dict[str, int], read: int) -> None:
    """The smaller window counts; the reader's has to hold the answer as well."""
    prediction, _ = search(two(**windows), search_model="small")
    assert len(path(prediction)) == read and prediction.trace["stop"] == "window"


def test_a_top_level_that_only_the_searcher_has_room_for_is_left_out_in_part() -> None:
    """The reader answers from what was read, in its own window: the most similar of the top level stay."""
    graph = make_graph(
        (CHUNKS, ("p", "q", "s")), {"p": {"alpha": 1.0}}, similarity={"p": 0.1, "q": 0.9, "s": 0.5}
    )
    prediction, _ = search(two(reader=FRAME + 2 * 3), graph, search_model="small")
    assert path(prediction) == ["2.2", "2.3"] and prediction.truncated
    assert prediction.text == "answer after 2" and prediction.trace["stop"] == "window"


def test_the_same_model_in_both_roles_is_one_context() -> None:
    same = ScriptedModel()
    search(ScriptedModels(same, others={"searcher": same}))
    assert len(same.contexts) == 1


# --------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"t_p": 0}, "t_p"),
        ({"t_c": 1.5}, "t_c"),
        ({"n_nodes": 0, "progress_control": "off"}, "n_nodes"),
        ({"n_nodes": 5}, "progress_control"),
        ({"attention": "off", "similarity": "off"}, "keep one on"),
        ({"score_norm": "max"}, "score_norm"),
        ({"max_levels": 1}, "max_levels"),
        ({"variant": "other"}, "variant"),
        ({"steps": 3}, "steps"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PecanConfig(**options)


def test_a_window_that_the_model_cannot_have_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(BenchError, match="window=5000"):
        Pecan(PecanConfig(window=5000), GEOMETRY)


def index_models(method: Pecan) -> dict[str, str]:
    return {name: role.model for name, role in method.roles().items() if role.index}


def test_search_options_and_the_searcher_share_the_graph() -> None:
    plain = method()
    for options in (
        {"t_p": 3, "t_c": 0.9, "patience": "consecutive"},
        {"variant": "garlic", "score_norm": "none"},
        {"attention": "off"},
        {"similarity": "off"},
        {"progress_control": "off", "n_nodes": 4},
        {"search_model": "other"},
    ):
        other = method(**options)
        assert other.index_options() == plain.index_options()
        assert index_models(other) == index_models(plain) == {"builder": "", "embedder": "minilm"}
    of_graph = {"graph": "tree", "chunk_tokens": 9, "window": 300, "summary_tokens": 20, "max_levels": 3}
    for name, value in of_graph.items():
        assert method(**{name: value}).index_options() != plain.index_options()
    assert index_models(method(graph_model="other"))["builder"] == "other"


def test_the_models_fill_in_what_the_options_leave_open() -> None:
    lengths = {"window": 400, "chunk_tokens": 6, "summary_tokens": 60, "max_levels": 8}
    assert method().index_options() == {"kind": "ip", **lengths}
    assert method(graph="tree").index_options()["summary_tokens"] == 6
