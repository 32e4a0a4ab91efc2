"""Judging stored records: both orders, wins, ties and what cannot be read; kept and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.flops.meter import Usage, current_meter
from bench.models.api import Generation
from bench.results.records import Record
from bench.run.judge_protocol import BOTH_ORDERS, CRITERIA, PAPER, JudgeProtocol
from bench.run.judging import (
    VERDICTS_FILE,
    Reply,
    ReplyStore,
    judge_records,
    judgement_id,
    outcome,
    stored_summary,
)
from bench.run.runner import Asking
from tests import cells


def record(number: int, prediction: str | None) -> Record:
    return cells.record(
        number,
        document_ids=[f"d{number}"],
        question=f"What is told in text {number}?",
        prediction=prediction,
        scores={"rouge_1": 0.0},
        error=None if prediction is not None else "QuestionError: no",
    )


class Judge:
    """A model that says what a rule makes of the two answers as shown."""

    def __init__(self, rule: Callable[..., str]) -> None:
        self.rule, self.asked = rule, 0

    def reply(self, prompt: str) -> str:
        first = prompt.split("Answer 1:\n")[1].split("\n\nAnswer 2:")[0]
        second = prompt.split("Answer 2:\n")[1].split("\n\nCriterion:")[0]
        return self.rule(first, second, prompt.split("Criterion: ")[1].split(".")[0])

    async def generate(self, prompt: str, max_new_tokens: int) -> Generation:
        self.asked += 1
        current_meter().credit("judge", "decode", Usage(calls=1, new_tokens=7, flops=100))
        return Generation(self.reply(prompt), (1,), "stop", 10)


def longer(first: str, second: str, criterion: str) -> str:
    return "Tie" if len(first) == len(second) else f"Answer {1 if len(first) > len(second) else 2}."


ONE = [record(0, "a long answer"), record(1, "short"), record(2, "equal"), record(3, None)]
AGAIN = Asking(retry_failed=True)
TWO = [record(0, "brief"), record(1, "a longer one"), record(2, "other"), record(3, "")]


def run(
    path: Path,
    judge: Judge,
    one: list[Record] = ONE,
    two: list[Record] = TWO,
    protocol: JudgeProtocol = BOTH_ORDERS,
    asking: Asking = Asking(),  # noqa: B008 - immutable
) -> Any:
    return judge_records(one, two, path, lambda: judge, {"first": "one"}, protocol, asking)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Answer 1", "first"),
        ("answer 2.", "second"),
        ("Tie", "tie"),
        ("\n  **Answer 1** is better.\nAnswer 2 is shorter.", "first"),
        ("Answer 1 is better than Answer 2", None),
        ("It is a tie between answer 1 and answer 2", None),
        ("", None),
    ],
)
def test_a_reply_names_one_verdict_or_none(reply: str, verdict: str | None) -> None:
    assert BOTH_ORDERS.verdict(reply) == verdict


@pytest.mark.parametrize(
    ("shown_first", "shown_second", "expected"),
    [
        ("first", "second", "win"),
        ("second", "first", "loss"),
        ("tie", "tie", "tie"),
        ("first", "first", "tie"),  # the judge likes what stands first
        ("first", "tie", "tie"),
        (None, "second", "unparsable"),
    ],
)
def test_a_win_needs_both_orders(shown_first: Any, shown_second: Any, expected: str) -> None:
    assert outcome({"AB": shown_first, "BA": shown_second}) == expected


def test_every_pair_is_judged_by_every_criterion_in_both_orders(tmp_path: Path) -> None:
    judge = Judge(longer)
    judged = run(tmp_path, judge)
    assert judge.asked == judged.asked == 4 * len(CRITERIA) * 2
    for summary in judged.summary.criteria.values():
        assert (summary.win, summary.loss, summary.tie) == (1, 1, 2)
        assert summary.unparsable == summary.inconsistent == 0
        assert summary.preference.mean == 0
    assert judged.summary.flops == 100 * judge.asked
    lines = [json.loads(line) for line in (tmp_path / VERDICTS_FILE).read_text().splitlines()]
    assert {(x["example_id"], x["criterion"], x["order"]) for x in lines} == {
        (f"q{n}", c, o) for n in range(4) for c in CRITERIA for o in ("AB", "BA")
    }
    assert lines[0]["usage"]["judge"]["decode"]["new_tokens"] == 7


def test_what_cannot_be_read_is_counted_and_criteria_are_apart(tmp_path: Path) -> None:
    def rule(first: str, second: str, criterion: str) -> str:
        return "hm" if criterion == "diversity" else longer(first, second, criterion)

    judged = run(tmp_path, Judge(rule))
    assert judged.summary.criteria["diversity"].unparsable == 4
    assert judged.summary.criteria["overall"].unparsable == 0
    assert judged.summary.unparsable_replies == 8


def test_replies_are_kept_and_only_what_is_missing_is_asked_again(tmp_path: Path) -> None:
    whole = run(tmp_path, Judge(longer))
    again = Judge(longer)
    assert run(tmp_path, again).summary == whole.summary and again.asked == 0
    path = tmp_path / VERDICTS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])  # cut off in the middle of a line
    assert stored_summary(tmp_path, ONE, TWO, BOTH_ORDERS) is None
    third = Judge(longer)
    assert run(tmp_path, third).summary == whole.summary
    assert third.asked == 2
    assert stored_summary(tmp_path, ONE, TWO, BOTH_ORDERS) == whole.summary
    assert len(path.read_bytes().splitlines()) == len(lines)


def test_a_judgement_is_another_one_if_an_answer_or_the_judge_changes() -> None:
    base = judgement_id(ONE, TWO, {"name": "tiny"}, BOTH_ORDERS)
    assert judgement_id(ONE, TWO, {"name": "tiny"}, BOTH_ORDERS) == base
    others = (TWO, ONE, "tiny"), (ONE, TWO, "other"), (ONE, [record(0, "else"), *TWO[1:]], "tiny")
    assert base not in [judgement_id(one, two, {"name": judge}, BOTH_ORDERS) for one, two, judge in others]


def test_rendering_only_reads_and_leaves_a_running_judges_file_where_it_is(tmp_path: Path) -> None:
    whole = run(tmp_path, Judge(longer))
    path = tmp_path / VERDICTS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    with ReplyStore(tmp_path) as judging:
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])  # a judge is in the middle of its last line
        before, inode, files = path.read_bytes(), path.stat().st_ino, sorted(tmp_path.iterdir())
        assert stored_summary(tmp_path, ONE, TWO, BOTH_ORDERS) is None
        assert path.read_bytes() == before and path.stat().st_ino == inode
        assert sorted(tmp_path.iterdir()) == files
        path.write_bytes(b"".join(lines[:-1]))
        judging.append(Reply.model_validate_json(lines[-1]))
    assert stored_summary(tmp_path, ONE, TWO, BOTH_ORDERS) == whole.summary


def test_a_failed_reply_is_asked_again_with_retry_failed_and_only_then(tmp_path: Path) -> None:
    failing = True

    def rule(first: str, second: str, criterion: str) -> str:
        if failing and "a long answer" in (first, second):
            raise RuntimeError("out of memory")
        return "hm" if "equal" in (first, second) else longer(first, second, criterion)

    first = run(tmp_path, Judge(rule))
    assert first.summary.errors == {"RuntimeError": 8} and first.summary.unparsable_replies == 16
    failing = False
    assert run(tmp_path, Judge(rule)).asked == 0
    with pytest.raises(ZeroDivisionError):  # the failures were dropped before the judge was there
        judge_records(ONE, TWO, tmp_path, lambda: 1 / 0, {"first": "one"}, BOTH_ORDERS, AGAIN)  # type: ignore[arg-type, return-value]
    assert stored_summary(tmp_path, ONE, TWO, BOTH_ORDERS) == first.summary
    again = run(tmp_path, Judge(rule), asking=AGAIN)
    assert again.asked == 8, "what was said and cannot be read is no failure"
    assert again.summary.errors == {} and again.summary.unparsable_replies == 8
    assert again.summary.criteria["overall"].win == 1
    assert run(tmp_path, Judge(rule), asking=AGAIN).asked == 0


def paper_reply(winner: object, **others: object) -> str:
    return json.dumps({"Comprehensiveness": {"Winner": "Answer 1"}, **others, "Overall Winner": winner})


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (paper_reply({"Winner": "Answer 1", "Explanation": "more {detail}"}), "first"),
        ("Here it is:\n```json\n" + paper_reply({"Winner": "answer 2"}) + "\n```", "second"),
        ("<think>{ Answer 1? }</think>" + paper_reply({"Winner": "[Answer 2]"}), "second"),
        (paper_reply({"Winner": "Answer 1"}) + paper_reply({"Winner": "Answer 2"}), "second"),
        (paper_reply({"Winner": "Tie"}), None),
        (paper_reply({"Explanation": "Answer 1"}), None),
        (paper_reply("Answer 1"), None),  # not the object that was asked for
        (paper_reply({"Winner": "Answer 1"})[:-1], None),  # cut off
        ("", None),
    ],
)
def test_the_papers_reply_is_a_whole_json_object_or_failed(reply: str, verdict: str | None) -> None:
    assert PAPER.verdict(reply) == verdict


def test_the_papers_prompt_has_braces_of_json_and_answers_as_they_are() -> None:
    prompt = PAPER.prompt("What of {it}?", "{answer2}", "b {0}", "overall")
    assert "Here is the question: What of {it}?" in prompt
    assert "Answer 1: {answer2}; Answer 2: b {0}\n" in prompt
    assert '{ "Comprehensiveness": { "Winner": "[Answer 1 or Answer 2]"' in prompt and "{{" not in prompt


class PaperJudge(Judge):
    """Prefers by the paper's prompt; fails where an answer is ``broken``."""

    def reply(self, prompt: str) -> str:
        first, second = prompt.split("two answers: Answer 1: ")[1].split("\n\n")[0].split("; Answer 2: ")
        return "{" if "broken" in (first, second) else paper_reply({"Winner": self.rule(first, second)})


def by_length(first: str, second: str) -> str:
    return f"Answer {1 if len(first) > len(second) else 2}"


def test_the_papers_protocol_asks_once_and_leaves_failed_replies_out_of_win_rates(tmp_path: Path) -> None:
    one = [record(n, "a long answer" if n < 6 else "short") for n in range(9)] + [record(9, "broken")]
    two = [record(n, "medium one") for n in range(10)]
    judge = PaperJudge(by_length)
    summary = run(tmp_path, judge, one, two, protocol=PAPER).summary
    assert judge.asked == 10 == summary.replies
    overall = summary.criteria["overall"]
    assert (overall.win, overall.loss, overall.tie, overall.unparsable) == (6, 3, 0, 1)
    assert overall.win_rate.mean == pytest.approx(6 / 9)
    assert set(summary.criteria) == {"overall"}
    assert stored_summary(tmp_path, one, two, PAPER) == summary
    assert judgement_id(one, two, {}, BOTH_ORDERS) != judgement_id(one, two, {}, PAPER)


def test_the_papers_protocol_shows_either_answer_first_but_the_same_on_every_run(tmp_path: Path) -> None:
    one, two = [record(n, "a") for n in range(40)], [record(n, "b") for n in range(40)]
    shown: list[str] = []

    def first_place(first: str, second: str) -> str:
        shown.append(first)
        return "Answer 1"

    judged = run(tmp_path, PaperJudge(first_place), one, two, protocol=PAPER)
    rate = judged.summary.criteria["overall"].win_rate
    assert 0.25 < rate.mean < 0.75, "a favour for a place is no favour for a method"
    assert {"a", "b"} == set(shown)
    assert [PAPER.orders(r.example_id) for r in one] == [PAPER.orders(r.example_id) for r in two]
