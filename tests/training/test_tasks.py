import random
import re
from collections import Counter

import pytest

from bench.method.prompts import ANSWER_INSTRUCTION
from methods.memwalker.prompts import MEMWALKER_ANSWER, MEMWALKER_GO_BACK
from methods.memwalker.walk import parse_action
from methods.pecan.prompts import PECAN_SEARCH_BEFORE_QUESTION
from training.generator.names import NameSource
from training.tasks import UNANSWERABLE, Options, Teacher, fold

NAMES = NameSource("train")
ALL = Options(share=0.5, hops=0.3, unanswerable=0.2, checks=0.1, styled=0.6, adversarial=0.5, unevenness=0.2)


def teacher(**options: float) -> Teacher:
    return Teacher(NAMES, Options(**options))


@pytest.mark.parametrize("seed", range(5))
def test_answers_stand_in_the_context_or_are_not_to_be_found(seed: int) -> None:
    kinds: Counter[str] = Counter()
    for n in range(20):
        turns = Teacher(NAMES, ALL).answer(random.Random(f"{seed}{n}"), 15, 6)
        for turn in turns:
            kinds[turn.kind] += 1
            if turn.kind in ("one", "two", "more"):
                # passages may be cut within an answer
                assert set(turn.reply.lower().split()) <= set(re.findall(r"\w+", turns[0].user.lower()))
            elif turn.kind == "none":
                assert turn.reply == UNANSWERABLE
    assert set(kinds) == {"one", "two", "more", "none", "check"}
    assert kinds["one"] > kinds["two"] > kinds["more"]


@pytest.mark.parametrize("adversarial", [0.0, 1.0])
def test_search_says_yes_exactly_when_the_answer_has_been_told(adversarial: float) -> None:
    replies: Counter[str] = Counter()
    for seed in range(150):
        turns = teacher(adversarial=adversarial, share=0.7).search(random.Random(seed), 8)
        assert turns[0].user.startswith(PECAN_SEARCH_BEFORE_QUESTION)
        for turn in turns:
            if turn.kind.startswith("suff") and turn.kind != "suff_answer":
                replies[turn.reply] += 1
        if turns[-1].kind == "suff_answer":
            text = fold(" ".join(t.user for t in turns[:-1]))
            assert (turns[-2].reply == "Yes") == (turns[-1].reply != UNANSWERABLE)
            if turns[-1].reply != UNANSWERABLE:
                assert turns[-1].reply.lower() in text.lower()
    assert 0.5 < replies["Yes"] / 75 < 1.5


@pytest.mark.parametrize("task", ["search", "walk", "read_first", "descend"])
def test_a_search_may_be_for_a_yes_or_no(task: str) -> None:
    """tiny answered PECAN's yes/no questions with names: in its searches there had been none."""
    answers: Counter[str] = Counter()
    for seed in range(60):
        turns = getattr(teacher(checks_first=1.0, hops=0.0), task)(random.Random(seed), 10)
        assert turns[0].user.startswith(PECAN_SEARCH_BEFORE_QUESTION)
        if turns[-1].user == ANSWER_INSTRUCTION:
            answers[turns[-1].reply] += 1
    assert set(answers) <= {"Yes", "No", UNANSWERABLE}
    assert min(answers["Yes"], answers["No"]) >= 5


def test_the_last_summary_that_is_left_is_chosen_unless_there_is_a_way_back() -> None:
    """With one part offered, `tiny` replied "Action: 1", since no training row had had fewer than two."""
    replies: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for seed in range(300):
        first, *rest = teacher().triage(random.Random(seed), 12)
        if "Summary 1:" not in first.user:
            back = f"or {MEMWALKER_GO_BACK} if none" in first.user
            replies[back].update(int(turn.reply.split("Action: ")[1]) for turn in (first, *rest))
    assert set(replies[False]) == {0}
    assert set(replies[True]) == {0, MEMWALKER_GO_BACK}


def test_leaf_answers_in_the_format_or_goes_back() -> None:
    actions = Counter[str]()
    for seed in range(40):
        turns = teacher().leaf(random.Random(seed), 30)
        reasoned = "Reasoning: ..." in turns[0].user
        for turn in turns:
            action = parse_action(turn.reply, (MEMWALKER_ANSWER, MEMWALKER_GO_BACK))
            assert turn.reply.startswith("Reasoning:") == reasoned
            assert bool(action.answer) == (action.number == MEMWALKER_ANSWER)
            actions[f"{reasoned} {action.number}"] += 1
    assert len(actions) == 4


def test_a_walk_says_yes_from_the_node_on_that_completes_what_is_asked() -> None:
    answered = unanswered = late = 0
    for seed in range(80):
        turns = teacher().walk(random.Random(seed), 14)
        says = [turn.reply for turn in turns if turn.kind in ("suff", "suff_two")]
        assert says == sorted(says)  # No before Yes
        assert turns[0].user.startswith(PECAN_SEARCH_BEFORE_QUESTION)
        late += len(says) > 1 and says[-1] == "Yes" and says[0] == "No"
        if turns[-1].user == ANSWER_INSTRUCTION:
            answered += turns[-1].reply != UNANSWERABLE
            unanswered += turns[-1].reply == UNANSWERABLE
            text = " ".join(turn.user for turn in turns[:-1]).lower()
            assert turns[-1].reply == UNANSWERABLE or turns[-1].reply.lower() in text
    assert answered > 25 and unanswered > 3 and late > 5
