"""Two answers to the same questions compared by a model: which is better, by a protocol.

How the judge is asked and read is a protocol's (:mod:`bench.run.judge_protocol`): ours, by four criteria in
both orders, or Graph of Records' own.

Whatever the judge says is kept at once, one line per reply with its cost; the same command again asks what is
missing, and with ``--retry-failed`` also what could not be asked. Judged are the stored records: no question
is answered again. Of a method that answers from several random draws, the first answer is judged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bench.errors import BenchError
from bench.files.atomic import write_json
from bench.files.hashing import stable_hash
from bench.flops.meter import Meter, metered
from bench.metrics.statistics import Interval
from bench.models.conversation import LanguageModel
from bench.results.comparison import Pair, paired
from bench.results.json_lines import JsonLines, Line, valid_rows
from bench.results.records import TFLOP, Record, error_kind
from bench.results.summary import mean_of
from bench.run.judge_protocol import JudgeProtocol, Order, Verdict
from bench.run.redaction import fault_text
from bench.run.runner import Asking
from bench.schema import JsonValue

Outcome = Literal["win", "loss", "tie", "unparsable"]
"""Of the first method, from both orders."""

VERDICTS_FILE, JUDGEMENT_FILE, SUMMARY_FILE = "verdicts.jsonl", "judgement.json", "summary.json"


def outcome(verdicts: Mapping[Order, Verdict | None]) -> Outcome:
    """The first method's outcome, from the verdict in every order in which it was shown.

    A win needs all of them, and a loss; otherwise it is a tie. One that cannot be read makes the pair
    unparsable.
    """
    if None in verdicts.values():
        return "unparsable"
    ours: Mapping[Order, Verdict] = {"AB": "first", "BA": "second"}
    if all(verdict == ours[order] for order, verdict in verdicts.items()):
        return "win"
    if all(verdict not in ("tie", ours[order]) for order, verdict in verdicts.items()):
        return "loss"
    return "tie"


class Reply(Line):
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
    win_rate: Interval | None = None
    """Wins among wins and losses, 0..1, as Graph of Records counts; None where there is neither."""


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


def judgement_id(
    first: Sequence[Record],
    second: Sequence[Record],
    judge: Mapping[str, JsonValue],
    protocol: JudgeProtocol,
) -> str:
    """The hash of all that the verdicts depend on: questions, both methods' answers, judge, prompts."""
    shown = [
        [p.first.example_id, p.first.question, _text(p.first), _text(p.second)] for p in paired(first, second)
    ]
    prompts = [protocol.prompt("question", "one", "two", name) for name in protocol.criteria]
    return stable_hash({"shown": shown, "judge": dict(judge), "prompts": prompts, "tokens": protocol.tokens})


def judge_records(
    first: Sequence[Record],
    second: Sequence[Record],
    folder: Path,
    lm: Callable[[], LanguageModel],
    about: Mapping[str, JsonValue],
    protocol: JudgeProtocol,
    asking: Asking,
) -> Judgement:
    """Every pair judged as the protocol says; replies that are in ``folder`` are kept.

    first, second: the records of two cells with questions in common. lm: the judge, loaded only when there is
    something to ask. about: what is written beside the verdicts, with ``judgement_id``.
    asking: its concurrency; with its ``retry_failed`` the judge is asked again where it could not be asked,
    which a reply that names no verdict is not.
    Raises ConfigError where the cells have no question in common, BenchError when nothing can be written.
    """
    pairs = paired(first, second)
    wanted = [
        (pair.first, pair.second, criterion, order)
        for pair in pairs
        for criterion in protocol.criteria
        for order in protocol.orders(pair.first.example_id)
    ]
    with ReplyStore(folder) as store:
        write_json(folder / JUDGEMENT_FILE, dict(about))
        kept = {key for key, reply in store.done.items() if reply.error is None or not asking.retry_failed}
        missing = [w for w in wanted if (w[0].example_id, w[2], w[3]) not in kept]
        if missing:
            asyncio.run(_ask_all(missing, lm(), protocol, store, asking.in_flight))
            store.put_in_order(list(store.done))  # without failures that were asked again
        summary = summarize_replies(store.done, pairs, protocol)
        write_json(folder / SUMMARY_FILE, summary.model_dump(mode="json", exclude_unset=True))
    return Judgement(folder, summary, len(missing))


def stored_summary(
    folder: Path, first: Sequence[Record], second: Sequence[Record], protocol: JudgeProtocol
) -> JudgementSummary | None:
    """The summary of the replies in a folder, which is only read; None while some are missing."""
    if not (folder / VERDICTS_FILE).is_file():
        return None
    replies = {reply.key: reply for reply in valid_rows(folder / VERDICTS_FILE, Reply)}
    try:
        return summarize_replies(replies, paired(first, second), protocol)
    except KeyError:
        return None


async def _ask_all(
    missing: Sequence[tuple[Record, Record, str, Order]],
    lm: LanguageModel,
    protocol: JudgeProtocol,
    store: ReplyStore,
    in_flight: int,
) -> None:
    queue = iter(missing)

    async def worker() -> None:
        for a, b, criterion, order in queue:
            store.append(await _ask(a, b, criterion, order, lm, protocol))

    await asyncio.gather(*(worker() for _ in range(min(in_flight, len(missing)))))


async def _ask(
    a: Record, b: Record, criterion: str, order: Order, lm: LanguageModel, protocol: JudgeProtocol
) -> Reply:
    """One reply; a pair that does not fit the judge's window is recorded with the reason."""
    shown = (_text(a), _text(b)) if order == "AB" else (_text(b), _text(a))
    reply = error = None
    with metered(Meter()) as meter:
        try:
            prompt = protocol.prompt(a.question, *shown, criterion)
            reply = (await lm.generate(prompt, protocol.tokens)).text
        except BenchError:
            raise  # the judge is at fault, not the pair
        except Exception as fault:
            error = fault_text(fault)
    return Reply(
        example_id=a.example_id,
        criterion=criterion,
        order=order,
        reply=reply,
        verdict=None if reply is None else protocol.verdict(reply),
        flops=meter.flops,
        usage=meter.to_json(),
        error=error,
    )


def _text(record: Record) -> str:
    return record.prediction or ""


def summarize_replies(
    replies: Mapping[tuple[str, str, str], Reply], pairs: Sequence[Pair], protocol: JudgeProtocol
) -> JudgementSummary:
    """Per criterion: outcomes of the first method, and its preference (wins less losses), from all replies.

    The preference is in -1..1, unparsable pairs in it as 0, with a 95 % interval that resamples documents.
    ``inconsistent`` are ties of which the two orders disagree. Raises KeyError for a reply that is missing.
    """
    clusters = [" ".join(one.first.document_ids) for one in pairs]
    ids = [one.first.example_id for one in pairs]
    criteria: dict[str, CriterionSummary] = {}
    for criterion in protocol.criteria:
        verdicts: list[dict[Order, Verdict | None]] = [
            {order: replies[id_, criterion, order].verdict for order in protocol.orders(id_)} for id_ in ids
        ]
        outcomes = [outcome(one) for one in verdicts]
        counts = Counter(outcomes)
        values = [{"win": 1.0, "loss": -1.0}.get(one, 0.0) for one in outcomes]
        decided = [at for at, result in enumerate(outcomes) if result in ("win", "loss")]
        won = [float(outcomes[at] == "win") for at in decided]
        criteria[criterion] = CriterionSummary(
            win=counts["win"],
            loss=counts["loss"],
            tie=counts["tie"],
            unparsable=counts["unparsable"],
            inconsistent=sum(
                result == "tie" and set(one.values()) != {"tie"}
                for result, one in zip(outcomes, verdicts, strict=True)
            ),
            preference=mean_of(values, clusters),
            win_rate=mean_of(won, [clusters[at] for at in decided]) if decided else None,
        )
    judged = list(replies.values())
    errors = Counter(error_kind(reply.error) for reply in judged if reply.error)
    return JudgementSummary(
        n=len(pairs),
        criteria=criteria,
        replies=len(judged),
        unparsable_replies=sum(reply.verdict is None for reply in judged),
        errors=dict(sorted(errors.items())),
        flops=sum(reply.flops for reply in judged),
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
