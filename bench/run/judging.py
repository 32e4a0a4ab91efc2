"""Two answers to the same questions compared by a model: which is better, by four criteria, in both orders.

The criteria are those of Graph of Records, which has them from GraphRAG (Edge et al. 2024); the wording is
ours. A judge favours a place: so every pair is shown twice, once in each order, and an answer wins only if it
is preferred in both. Otherwise it is a tie; that the two orders disagree is counted by itself. A reply that
names none of the three possible verdicts, or several, is unparsable, and so is its pair.

Whatever the judge says is kept at once, one line per reply with its cost; the same command again asks what is
missing, and with ``--retry-failed`` also what could not be asked. Judged are the stored records: nothing is
answered anew. Of a method that answers from several random draws, the first answer is judged.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict

from bench.errors import QuestionError
from bench.files.atomic import write_json
from bench.files.hashing import stable_hash
from bench.flops.meter import Meter, metered
from bench.metrics.statistics import clustered_bootstrap
from bench.models.api import LanguageModel
from bench.results.comparison import paired
from bench.results.json_lines import JsonLines, Row, valid_rows
from bench.results.models import Interval
from bench.results.records import TFLOP, Failure, Record
from bench.schema import JsonValue

CRITERIA: Mapping[str, str] = {
    "comprehensiveness": "How many of the aspects and details that the question asks about does the answer "
    "cover?",
    "diversity": "How varied is the answer: how many different sides of the matter does it show?",
    "empowerment": "How well does the answer help a reader to understand the matter and to judge for "
    "themselves?",
    "overall": "All in all, which answer is better?",
}
"""Criterion -> what the judge is told of it (Graph of Records, App. D.3; GraphRAG, Sec. 4.1.2; our words)."""

Order = Literal["AB", "BA"]
"""Which of the two methods' answers is shown first."""
Verdict = Literal["first", "second", "tie"]
"""The judge's word on the answers as shown."""
Outcome = Literal["win", "loss", "tie", "unparsable"]
"""Of the first method, from both orders."""

VERDICT_TOKENS = 16
"""Most tokens of a reply: a line of two words.  # our choice"""
NO_ANSWER = "(no answer)"
"""What the judge is shown for an empty answer or a failed question."""
IN_FLIGHT = 32

VERDICTS_FILE, JUDGEMENT_FILE, SUMMARY_FILE = "verdicts.jsonl", "judgement.json", "summary.json"


def judge_prompt(question: str, first: str, second: str, criterion: str) -> str:
    """The question, both answers in the order they are to be shown, one criterion, and how to reply."""
    return (
        f"Two answers to the same question are to be compared.\n\nQuestion:\n{question}\n\n"
        f"Answer 1:\n{first.strip() or NO_ANSWER}\n\nAnswer 2:\n{second.strip() or NO_ANSWER}\n\n"
        f"Criterion: {criterion}. {CRITERIA[criterion]}\n\n"
        "Which answer is better by this criterion? Reply with one of these and nothing else: Answer 1, "
        "Answer 2, Tie."
    )


_NAMED = re.compile(r"\b(?:answer\s*)?(?P<number>[12])\b|\b(?P<tie>tie)\b", re.IGNORECASE)


def parse_verdict(reply: str) -> Verdict | None:
    """The verdict in the first line of a reply that has text; None where that names none, or several."""
    line = next((line for line in reply.splitlines() if line.strip()), "")
    named = {"tie" if found["tie"] else found["number"] for found in _NAMED.finditer(line)}
    return {"1": "first", "2": "second", "tie": "tie"}[named.pop()] if len(named) == 1 else None  # type: ignore[return-value]


def outcome(shown_first: Verdict | None, shown_second: Verdict | None) -> Outcome:
    """The first method's outcome, from the verdict when it was shown first, and when it was shown second."""
    if shown_first is None or shown_second is None:
        return "unparsable"
    if (shown_first, shown_second) == ("first", "second"):
        return "win"
    if (shown_first, shown_second) == ("second", "first"):
        return "loss"
    return "tie"


class Reply(Row):
    """What the judge said once."""

    example_id: str
    criterion: str
    order: Order
    reply: str | None
    """None when the judge could not be asked."""
    verdict: Verdict | None
    """None: unparsable."""
    flops: int
    usage: dict[str, JsonValue]
    """Model -> phase -> usage, as in records."""
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What was asked."""
        return self.example_id, self.criterion, self.order


class CriterionSummary(BaseModel):
    """The first method's outcomes by one criterion, in questions."""

    model_config = ConfigDict(frozen=True)
    win: int
    loss: int
    tie: int
    unparsable: int
    inconsistent: int
    """Ties of which the two orders disagree."""
    preference: Interval
    """Wins less losses, -1..1, unparsable pairs in it as 0."""


class JudgementSummary(BaseModel):
    """``summary.json`` of a judgement."""

    model_config = ConfigDict(frozen=True)
    n: int
    """Questions."""
    criteria: dict[str, CriterionSummary]
    replies: int
    unparsable_replies: int
    errors: dict[str, int]
    """Kind of error -> replies that could not be had."""
    flops: int
    """Of the judge, for all replies."""

    @property
    def tflops(self) -> float:
        """Of the judge, for all replies."""
        return self.flops / TFLOP


@dataclass(frozen=True)
class Judgement:
    """Two cells compared by a judge."""

    folder: Path
    summary: JudgementSummary
    asked: int
    """Replies given now; 0 when all were there."""


def judgement_id(first: Sequence[Record], second: Sequence[Record], judge: Mapping[str, JsonValue]) -> str:
    """The hash of all that the verdicts depend on: questions, both methods' answers, judge, prompts."""
    shown = [
        [p.first.example_id, p.first.question, _text(p.first), _text(p.second)] for p in paired(first, second)
    ]
    prompts = [judge_prompt("question", "one", "two", name) for name in CRITERIA]
    return stable_hash({"shown": shown, "judge": dict(judge), "prompts": prompts, "tokens": VERDICT_TOKENS})


def judge_records(
    first: Sequence[Record],
    second: Sequence[Record],
    folder: Path,
    lm: Callable[[], LanguageModel],
    about: Mapping[str, JsonValue],
    *,
    in_flight: int = IN_FLIGHT,
    retry_failed: bool = False,
) -> Judgement:
    """Every pair judged by every criterion in both orders; replies that are in ``folder`` are kept.

    first, second: the records of two cells with questions in common. lm: the judge, loaded only when there is
    something to ask. about: what is written beside the verdicts, with ``judgement_id``.
    retry_failed: ask again where the judge could not be asked; a reply that names no verdict is no failure.
    Raises ConfigError where the cells have no question in common, BenchError when nothing can be written.
    """
    pairs = paired(first, second)
    wanted = [
        (pair.first, pair.second, criterion, order)
        for pair in pairs
        for criterion in CRITERIA
        for order in get_args(Order)
    ]
    with ReplyStore(folder) as store:
        write_json(folder / JUDGEMENT_FILE, dict(about))
        if retry_failed:
            store.discard([key for key, reply in store.done.items() if reply.error is not None])
        missing = [w for w in wanted if (w[0].example_id, w[2], w[3]) not in store.done]
        if missing:
            asyncio.run(_ask_all(missing, lm(), store, in_flight))
        summary = summarize_replies(store.done, [(p.first, p.second) for p in pairs])
        write_json(folder / SUMMARY_FILE, summary.model_dump(mode="json", exclude_unset=True))
    return Judgement(folder, summary, len(missing))


def stored_summary(
    folder: Path, first: Sequence[Record], second: Sequence[Record]
) -> JudgementSummary | None:
    """The summary of the replies in a folder, which is only read; None while some are missing."""
    if not (folder / VERDICTS_FILE).is_file():
        return None
    replies = {reply.key: reply for reply in valid_rows(folder / VERDICTS_FILE, Reply)}
    try:
        return summarize_replies(replies, [(pair.first, pair.second) for pair in paired(first, second)])
    except KeyError:
        return None


async def _ask_all(
    missing: Sequence[tuple[Record, Record, str, Order]], lm: LanguageModel, store: ReplyStore, in_flight: int
) -> None:
    queue = iter(missing)

    async def worker() -> None:
        for a, b, criterion, order in queue:
            store.append(await _ask(a, b, criterion, order, lm))

    await asyncio.gather(*(worker() for _ in range(min(in_flight, len(missing)))))


async def _ask(a: Record, b: Record, criterion: str, order: Order, lm: LanguageModel) -> Reply:
    """One reply; a pair that does not fit the judge's window is recorded with the reason."""
    shown = (_text(a), _text(b)) if order == "AB" else (_text(b), _text(a))
    reply = error = None
    with metered(Meter()) as meter:
        try:
            reply = (await lm.generate(judge_prompt(a.question, *shown, criterion), VERDICT_TOKENS)).text
        except QuestionError as fault:
            error = str(Failure(type(fault).__name__, str(fault)))
    return Reply(
        example_id=a.example_id,
        criterion=criterion,
        order=order,
        reply=reply,
        verdict=None if reply is None else parse_verdict(reply),
        flops=meter.flops,
        usage=meter.to_json(),
        error=error,
    )


def _text(record: Record) -> str:
    return record.prediction or ""


def summarize_replies(
    replies: Mapping[tuple[str, str, str], Reply],
    pairs: Sequence[tuple[Record, Record]],
    seed: int = 0,
) -> JudgementSummary:
    """Per criterion: outcomes of the first method, and its preference (wins less losses), from all replies.

    The preference is in -1..1, unparsable pairs in it as 0, with a 95 % interval that resamples documents.
    ``inconsistent`` are ties of which the two orders disagree. Raises KeyError for a reply that is missing.
    """
    clusters = [" ".join(first.document_ids) for first, _ in pairs]
    criteria: dict[str, CriterionSummary] = {}
    for criterion in CRITERIA:
        both = [
            (replies[a.example_id, criterion, "AB"].verdict, replies[a.example_id, criterion, "BA"].verdict)
            for a, _ in pairs
        ]
        outcomes = [outcome(*verdicts) for verdicts in both]
        counts = Counter(outcomes)
        values = [{"win": 1.0, "loss": -1.0}.get(one, 0.0) for one in outcomes]
        interval = clustered_bootstrap(values, clusters, rng=np.random.default_rng([seed, len(values)]))
        criteria[criterion] = CriterionSummary(
            win=counts["win"],
            loss=counts["loss"],
            tie=counts["tie"],
            unparsable=counts["unparsable"],
            inconsistent=sum(
                found == "tie" and verdicts != ("tie", "tie")
                for found, verdicts in zip(outcomes, both, strict=True)
            ),
            preference=Interval(mean=interval.mean, low=interval.low, high=interval.high),
        )
    given = list(replies.values())
    errors = Counter(Failure.parsed(reply.error).kind for reply in given if reply.error)
    return JudgementSummary(
        n=len(pairs),
        criteria=criteria,
        replies=len(given),
        unparsable_replies=sum(reply.verdict is None for reply in given),
        errors=dict(sorted(errors.items())),
        flops=sum(reply.flops for reply in given),
    )


class ReplyStore(JsonLines[Reply, tuple[str, str, str]]):
    """The replies of one judgement by what was asked; a torn last line is asked for again."""

    file_name = VERDICTS_FILE
    sibling_files = (JUDGEMENT_FILE, SUMMARY_FILE)
    damage_notice = "these verdicts are asked for again"
    row = Reply

    def key(self, row: Reply) -> tuple[str, str, str]:
        """What was asked."""
        return row.key
