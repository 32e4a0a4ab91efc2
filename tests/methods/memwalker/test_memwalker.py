from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.models.spec import default_geometry
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from methods.memwalker import MemWalker, MemWalkerConfig
from methods.memwalker.tree import Tree
from methods.memwalker.walk import Action, parse_action
from tests.methods.writers import GEOMETRY, Models

SEGMENT = 8


def _document(segments: int) -> DocumentSet:
    """A text of that many segments: ``a1 a2 .. a8 b1 ..``; the summary of the first will be ``sum(a1)``."""
    words = [f"{chr(97 + s)}{i}" for s in range(segments) for i in range(1, SEGMENT + 1)]
    return DocumentSet((Document("", " ".join(words)),))


def _summarise(prompt: str) -> str:
    """``sum(first word)`` of a segment, ``over(first words)`` of several summaries."""
    source, _, instruction = prompt.rpartition("\n\n")
    if instruction.startswith(("Write", "Summarize")):
        return f"sum{source.split()[0]}"
    assert instruction.startswith(("Join", "Compress")), prompt
    return "over " + " ".join(part.split()[0] for part in source.split("\n\n"))


class Walker:
    """Summaries as above; replies to navigation prompts come from a list, each checked by what it says."""

    def __init__(self, replies: Iterable[str | Callable[[str], str]]) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    def __call__(self, prompt: str) -> str:
        if prompt.rpartition("\n\n")[2].startswith(("Write", "Join", "Summarize", "Compress")):
            return _summarise(prompt)
        self.asked.append(prompt)
        reply = self.replies.pop(0)
        return reply if isinstance(reply, str) else reply(prompt)


def _method(**options: object) -> MemWalker:
    settings = {"segment_tokens": SEGMENT, "group": 3, "summary_tokens": 12, "reasoning": "on", **options}
    return MemWalker(MemWalkerConfig.model_validate(settings), GEOMETRY)


def _walk(
    segments: int, replies: Iterable[str | Callable[[str], str]], **options: object
) -> tuple[Prediction, Walker, Models]:
    walker = Walker(replies)
    models = Models(walker, GEOMETRY)
    method = _method(**options)
    question = Question("Where is b2?", _document(segments), 4)

    async def both() -> Prediction:
        index = await method.index(question.documents, models)  # type: ignore[arg-type]
        models.writer.prompts.clear()
        return await method.answer(index, question, models)  # type: ignore[arg-type]

    return asyncio.run(both()), walker, models


def _index(documents: DocumentSet, **options: object) -> tuple[Index, Models]:
    models = Models(_summarise, GEOMETRY)
    return asyncio.run(_method(**options).index(documents, models)), models  # type: ignore[arg-type]


GO, BACK = "Reasoning: it may be there.\nAction: {}".format, "Reasoning: not told.\nAction: -1"
ANSWER = "Reasoning: it says so.\nAction: -2\nAnswer: {}".format


def _ids(prediction: Prediction) -> list[str]:
    """The nodes where the walk stood, in order."""
    return [step["nodes"][0]["id"] for step in prediction.trace["steps"]]


def test_a_tree_by_hand() -> None:
    index, models = _index(_document(4))
    nodes = index.data["nodes"]
    # Four segments with at most three under a parent: two and two, not three and one.
    assert [node["summary"] for node in nodes] == [
        *("suma1", "sumb1", "sumc1", "sumd1"),
        *("over suma1 sumb1", "over sumc1 sumd1"),
        "over over over",
    ]
    assert [node.get("children") for node in nodes] == [None] * 4 + [[0, 1], [2, 3], [4, 5]]
    assert [node["level"] for node in nodes] == [0, 0, 0, 0, 1, 1, 2]
    assert nodes[1]["segment"] == [[0, 24, 48, 8]], "spans only"
    leaves = Tree.from_index(index, _document(4)).nodes[:4]
    assert [chunk.index for leaf in leaves for chunk in leaf.segment] == [0, 1, 2, 3]
    assert models.writer.most_waiting == 4, "a level's summaries are in flight together"
    assert models.writer.prompts[4].startswith("suma1\n\nsumb1\n\nJoin the summaries above")


@pytest.mark.parametrize(("segments", "levels"), [(3, [3, 1]), (9, [9, 3, 1]), (10, [10, 4, 2, 1])])
def test_a_parent_has_at_most_group_children_and_never_one(segments: int, levels: list[int]) -> None:
    nodes = _index(_document(segments))[0].data["nodes"]
    assert [sum(node["level"] == level for node in nodes) for level in range(len(levels))] == levels
    assert all(2 <= len(node["children"]) <= 3 for node in nodes if node["level"])
    below = [child for node in nodes for child in node.get("children", [])]
    assert below == list(range(len(nodes) - 1)), "everything but the root has one parent, in order"


@pytest.mark.parametrize(
    ("tokens", "segments"),
    [
        ([5, 3, 5, 4], [[0, 1], [2], [3]]),  # 5 + 3 = 8 tokens, as many as a segment has
        ([3, 3, 0, 3, 10], [[0, 1], [3], [4], [4]]),  # a long one does not mix with others
    ],
)
def test_documents_that_fill_a_segment_exactly_share_it(tokens: list[int], segments: list[list[int]]) -> None:
    documents = DocumentSet(tuple(Document("", " ".join(["word"] * n)) for n in tokens))
    nodes = _index(documents)[0].data["nodes"]
    assert [[span[0] for span in node["segment"]] for node in nodes if node["level"] == 0] == segments


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Reasoning: x\nAction: 1", Action(1)),
        ("Action: 1", Action(1)),
        ("action: 1.", Action(1)),
        ("Reasoning: Action: 0 would do, but\nAction: 1", Action(1)),  # only a line of its own counts
        ("Action: 2", None),  # not offered
        ("Action: 0\nAction: 1", None),
        ("Action: 1\nAction: 1", None),
        ("Action: one", None),
        ("Action: 1 or 0", None),
        ("Action: 10", None),
        ("1", None),
        ("", None),
        ("Action: -1", None),
    ],
)
def test_triage_format(reply: str, expected: Action | None) -> None:
    assert parse_action(reply, [0, 1]) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Reasoning: x\nAction: -2\nAnswer: the mill", Action(-2, "the mill")),
        ("Action: -2, Answer: the mill", Action(-2, "the mill")),
        ("Action: -2\n\nanswer: the\nmill ", Action(-2, "the\nmill")),
        ("Action: -1", Action(-1)),
        ("Action: -1\nAnswer: ...", Action(-1)),
        ("Action: -2", None),
        ("Action: -2\nAnswer: ", None),
        ("Action: -2\nthe mill", None),
        ("Answer: the mill\nAction: -2", None),
        ("Answer: the mill", None),
        ("Action: 0", None),
    ],
)
def test_leaf_format(reply: str, expected: Action | None) -> None:
    assert parse_action(reply, [-2, -1]) == expected


def test_straight_down_to_the_answer() -> None:
    prediction, walker, _ = _walk(4, [GO(0), GO(1), ANSWER("in the mill")])
    assert prediction.text == "in the mill" and prediction.flags == () and not prediction.truncated
    assert _ids(prediction) == ["2.1", "1.1", "0.2"]
    assert [step["action"] for step in prediction.trace["steps"]] == [0, 1, -2]
    assert walker.asked[0].startswith(
        "The following summaries describe parts of one text.\n\nSummary 0:\nover suma1 sumb1\n\nSummary 1:\n"
        "over sumc1 sumd1\n\nQuestion:\nWhere is b2?\n\n"
    )
    # Working memory: what was entered on the way, the root first.
    assert walker.asked[2].startswith("Background:\nover over over\n\nover suma1 sumb1\n\nText:\n")
    assert "b1 b2 b3 b4 b5 b6 b7 b8 \n\nQuestion:\nWhere is b2?" in walker.asked[2]
    assert [(item.node, item.text.strip()) for item in prediction.context] == [
        ("2.1", "over over over"),
        ("1.1", "over suma1 sumb1"),
        (None, "b1 b2 b3 b4 b5 b6 b7 b8"),
    ]
    assert prediction.prompt_tokens == 3 + _tokens(walker.asked[2])
    assert prediction.completion_tokens == 3


def test_summaries_that_the_text_s_beginning_stands_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "_summarise", lambda prompt: "")
    prediction, _, _ = _walk(4, [GO(0), GO(1), ANSWER("in the mill")])
    assert prediction.flags == ("tree_empty_summary",)


def _tokens(text: str) -> int:
    return Models(lambda _: "").writer.count_tokens(text)


def test_going_back_marks_the_child_as_tried_and_remembers_the_segment() -> None:
    # Segment a, back to the first parent, segment b, back: both tried, so on to the root and down to d.
    replies = [GO(0), GO(0), BACK, GO(0), BACK, GO(0), GO(1), ANSWER("d2")]
    prediction, walker, _ = _walk(4, replies)
    assert _ids(prediction) == ["2.1", "1.1", "0.1", "1.1", "0.2", "2.1", "1.2", "0.4"]
    offered = [step["offered"] for step in prediction.trace["steps"] if "offered" in step]
    assert offered == [["1.1", "1.2"], ["0.1", "0.2"], ["0.2"], ["1.2"], ["0.3", "0.4"]]
    assert "Summary 0:\nsumb1\n\nQuestion" in walker.asked[3], "what is left is numbered from 0 again"
    assert prediction.trace["steps"][-1]["memory"] == ["2.1", "1.1", "0.1", "0.2", "1.2"]
    assert prediction.text == "d2"


def test_an_inner_node_can_send_the_walk_back_too() -> None:
    prediction, _, _ = _walk(4, [GO(0), BACK, GO(0), GO(0), ANSWER("c")])
    assert _ids(prediction) == ["2.1", "1.1", "2.1", "1.2", "0.3"]
    assert prediction.trace["steps"][-1]["memory"] == ["2.1", "1.1", "1.2"]


def test_when_everything_was_tried_there_is_no_answer() -> None:
    prediction, walker, _ = _walk(2, [GO(1), BACK, GO(0), BACK])
    assert prediction.text == "" and prediction.flags == ("navigation_failed",)
    assert prediction.trace["failure"] == "exhausted"
    assert prediction.completion_tokens == 0 and prediction.prompt_tokens == 3 + _tokens(walker.asked[-1])
    assert [item.text.strip() for item in prediction.context][-1].startswith("a1")


def test_a_prompt_beyond_the_window_is_flagged() -> None:
    """The check of the options leaves out template, question and retries."""
    least = 3 * 12 + 30  # the summaries under a parent, and the reply
    with pytest.raises(ConfigError, match=f"more than {least} tokens"):
        _method(window=least - 1)
    prediction, _, _ = _walk(2, [GO(0), ANSWER("b2")], window=least)
    assert "over_window" in prediction.flags
    prediction, _, _ = _walk(2, [GO(0), ANSWER("b2")])
    assert prediction.flags == ()


def test_the_root_is_a_segment() -> None:
    prediction, walker, _ = _walk(1, [ANSWER("b2")])
    assert prediction.text == "b2" and len(walker.asked) == 1
    assert walker.asked[0].startswith("Text:\na1 a2"), "nothing to remember yet"
    prediction, walker, _ = _walk(1, [BACK])
    assert prediction.flags == ("navigation_failed",) and len(walker.asked) == 1


def test_a_reply_without_a_possible_action_is_asked_for_again() -> None:
    wrong = "The answer is\nin part 7."
    prediction, walker, _ = _walk(2, [wrong, BACK, GO(1), "Action: -2", ANSWER("b2")])
    assert prediction.text == "b2" and prediction.flags == ("illegal_action",)
    assert prediction.trace["rejected_replies"] == 3
    assert prediction.trace["steps"][0]["rejected"] == [
        "The answer is in part 7.",
        "Reasoning: not told. Action: -1",  # there is nowhere to go back to from the root
    ]
    first, second, third = walker.asked[:3]
    assert second == (
        f"{first}\n\nThese replies were not accepted:\n1. The answer is in part 7.\n"
        "Reply in the format above. The action must be one of: 0, 1."
    )
    assert third.startswith(first) and third != second, "greedy decoding would repeat itself otherwise"
    assert walker.asked[4].endswith("The action must be one of: -2, -1.")


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_after_the_last_retry_the_walk_has_failed(retries: int) -> None:
    prediction, walker, _ = _walk(2, [GO(0), *["no idea"] * 9], retries=retries)
    assert len(walker.asked) == 2 + retries
    assert prediction.flags == ("navigation_failed", "illegal_action")
    assert prediction.trace["failure"] == "no_legal_action"
    assert prediction.trace["rejected_replies"] == 1 + retries
    assert prediction.trace["steps"][-1]["action"] is None


def test_the_oldest_memory_goes_first_where_the_window_is_short() -> None:
    replies = [GO(0), GO(0), BACK, GO(0), ANSWER("b2")]
    full, walker, _ = _walk(4, replies)
    last = walker.asked[-1]
    reply_room = 30 + 4  # one chunk of the geometry, and the answer
    needed = 3 + _tokens(last) + reply_room
    exact, _, _ = _walk(4, replies, window=needed)
    assert exact.trace["steps"][-1]["memory"] == ["2.1", "1.1", "0.1"] and not exact.truncated
    short, walker, _ = _walk(4, replies, window=needed - 1)
    assert short.trace["steps"][-1]["memory"] == ["1.1", "0.1"] and short.truncated
    assert walker.asked[-1].startswith("Background:\nover suma1 sumb1\n\na1 a2")
    assert [item.node for item in short.context] == ["1.1", None, None]
    assert not full.truncated


def test_a_long_answer_is_cut_to_what_other_methods_may_generate() -> None:
    prediction, _, _ = _walk(1, [ANSWER("one two three four five six")])
    assert prediction.text == "one two three four" and prediction.completion_tokens == 4


def test_every_call_is_credited_to_the_question() -> None:
    with metered(Meter()) as build:
        _index(_document(4))
    with metered(Meter()) as both:
        _, walker, _ = _walk(4, [GO(0), "nonsense", GO(1), ANSWER("b2")])
    before, after = (meter.usage["writer", "prefill"] for meter in (build, both))
    assert (before.calls, after.calls - before.calls) == (7, 4)
    assert after.new_tokens - before.new_tokens == sum(3 + _tokens(prompt) for prompt in walker.asked)


def test_lengths_follow_the_geometry_and_must_fit_the_window() -> None:
    paper = MemWalker(MemWalkerConfig(reasoning="on"), default_geometry(131072))
    lengths = {"segment_tokens": 1200, "group": 8, "summary_tokens": 300}
    assert paper.index_options() == {**lengths, "wording": "paper"}
    assert (paper.reply_tokens, paper.window) == (300, 8192)
    with pytest.raises(ConfigError, match=r"may need more than 1050 tokens .* the window has 1024"):
        MemWalker(MemWalkerConfig(group=34, reasoning="on"), GEOMETRY)
    with pytest.raises(ConfigError, match="window=4000: the model takes 2048"):
        MemWalker(MemWalkerConfig(window=4000), replace(GEOMETRY, input_limit=2048))
