"""What PECAN's stop signal knows: the reader's Yes against what it has read.

``python -m performance.stop_signal pairs --model tiny`` asks the reader, about questions whose supporting
paragraphs are known, whether lists of paragraphs with and without them suffice; the lists differ in one thing
at a time, in length, order or content, so that dilution, position and question can be told apart.
``python -m performance.stop_signal steps CELL ...`` judges the same rules on the steps of recorded searches.

``python -m performance.stop_signal turns`` answers from all paragraphs of a question: as one prompt, as one
with the list that a search reads, and in the two turns of a search: what its conversation loses, without any
graph.

A rule is a log-odds of Yes: absolute, or relative to the same question's before anything is read
(``over_nothing``) or after the first list or the top level (``over_top``).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import ArrayLike

from bench.data import load
from bench.data.own import card_for
from bench.errors import DataError
from bench.method import read
from bench.method.trace import SearchTrace
from bench.metrics import get_metrics
from bench.metrics.auroc import auroc
from bench.metrics.retrieval import retrieval_quality
from bench.metrics.scoring import question_scores
from bench.metrics.statistics import clustered_bootstrap
from bench.models.model_set import LoadedModels
from bench.models.spec import DTYPES, DType, resolve
from bench.results.models import read_description
from bench.results.records import Record, load_records
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.threads import Threads
from bench.schema import ContextItem, Example
from bench.tables.formats import in_brackets, percent
from methods.pecan.graph import fold
from methods.pecan.prompts import (
    PECAN_CHOICES,
    PECAN_NODE,
    PECAN_QUESTION_BEHIND,
    pecan_search_head,
    pecan_turns,
)
from performance.command import run_command

PROBES = ("before", "around", "asked")
AT_ONCE, WINDOW = 8, 4096
"""Questions at a time, and the tokens of one."""
GOLD, OTHERS = 2, 8
"""Supporting paragraphs of a question, and the most others that are read with or without them."""

LISTS: Mapping[str, tuple[str, ...]] = {
    "2 gold": ("g0", "g1"),
    "2 gold + 3": ("g0", "g1", "o0", "o1", "o2"),
    "2 gold + 8": ("g0", "g1", *(f"o{n}" for n in range(8))),
    "3, then 2 gold": ("o0", "o1", "o2", "g0", "g1"),
    "1 gold + 1": ("g0", "o0"),
    "2 others": ("o0", "o1"),
    "5 others": tuple(f"o{n}" for n in range(5)),
    "8 others": tuple(f"o{n}" for n in range(8)),
}
"""What is read, in order: gold paragraphs g, others o."""

DECISIVE = (
    ("2 gold", "2 others"),
    ("2 gold + 3", "5 others"),
    ("3, then 2 gold", "5 others"),
    ("2 gold + 8", "8 others"),
)
"""Lists of one length, with and without the gold paragraphs."""


@dataclass(frozen=True)
class Case:
    """A list of paragraphs, or the context at a step, and the log-odds of Yes after it by probe."""

    question: str
    documents: str
    name: str
    sufficient: bool
    tokens: int
    odds: Mapping[str, float]
    step: int = 0


def log_odds(p_yes: float) -> float:
    """The log-odds of a probability, finite."""
    p = min(max(p_yes, 1e-9), 1 - 1e-9)
    return math.log(p / (1 - p))


async def cases_of(example: Example, lm: Any, window: int) -> list[Case]:
    """Every list of a question, once, by every probe."""
    gold = list(dict.fromkeys(evidence.document for evidence in example.evidence or ()))[:GOLD]
    rest = [at for at in range(len(example.documents.documents)) if at not in gold]
    random.Random(example.id).shuffle(rest)
    order = {f"g{n}": at for n, at in enumerate(gold)} | {f"o{n}": at for n, at in enumerate(rest[:OTHERS])}
    texts = {
        key: PECAN_NODE.format(text=fold(example.documents.documents[at].full_text))
        for key, at in order.items()
    }
    found: list[Case] = []
    # Of the lists that begin with another one, the longest is read, and probed on the way.
    longest = [
        ids
        for ids in LISTS.values()
        if not any(other[: len(ids)] == ids != other for other in LISTS.values())
    ]
    for ids in longest:
        async with await lm.open(window) as context:
            await context.extend(pecan_search_head(example.question))
            for n in range(len(ids) + 1):
                if n:
                    await context.extend(texts[ids[n - 1]])
                seen = {case.name for case in found}
                names = [name for name, other in ({"nothing": ()} | LISTS).items() if other == ids[:n]]
                for name in (name for name in names if name not in seen):
                    odds, told = await _probed(context, example.question), {"g0", "g1"} <= set(ids[:n])
                    found.append(Case(example.id, example.documents.id, name, told, context.length, odds))
    return found


async def _probed(context: Any, question: str) -> dict[str, float]:
    """The log-odds of Yes by every probe; nothing of a probe stays in the context."""
    odds, mark = {}, context.mark()
    for probe in PROBES:
        if behind := PECAN_QUESTION_BEHIND[probe].format(question=question):
            await context.extend(behind)
        said = await context.probe(PECAN_CHOICES)
        odds[probe] = log_odds(said.probabilities[PECAN_CHOICES[0]])
        context.rewind(mark)
    return odds


def relative(cases: Sequence[Case], base: str) -> list[Case]:
    """The cases with each question's log-odds of the case called ``base`` subtracted."""
    bases = {case.question: case.odds for case in cases if case.name == base}
    return [
        replace(c, odds={p: v - bases[c.question][p] for p, v in c.odds.items()})
        for c in cases
        if c.question in bases
    ]


def pooled(cases: Sequence[Case], probe: str, *, at_one_step: bool = False) -> str:
    """AUROC over all cases, or over those of the same step of their searches; documents resampled."""
    if not cases:
        return "-"
    value = auroc(
        [case.odds[probe] for case in cases],
        [case.sufficient for case in cases],
        [case.documents for case in cases],
        [case.step for case in cases] if at_one_step else 0,
        rng=np.random.default_rng(0),
    )
    return f"{value.mean:.2f}{in_brackets(value, '{:.2f}'.format)}" if value else "-"


def within(cases: Sequence[Case], probe: str) -> str:
    """Share of a question's pairs of a sufficient and an insufficient case in order, mean over questions."""
    shares = []
    for _, group in itertools.groupby(sorted(cases, key=lambda c: c.question), key=lambda c: c.question):
        own = list(group)
        yes, no = ([c.odds[probe] for c in own if c.sufficient is told] for told in (True, False))
        pairs = [0.5 if a == b else float(a > b) for a in yes for b in no]
        shares += [sum(pairs) / len(pairs)] if pairs else []
    return f"{100 * sum(shares) / len(shares):.0f} % ({len(shares)})" if shares else "-"


def _print(rows: Iterable[Sequence[str]]) -> None:
    for first, *others in rows:
        click.echo(f"{first:<44}" + "".join(f"{text:>22}" for text in others))


@click.group()
def main() -> None:
    """What PECAN's stop signal knows."""


@main.command()
@click.option("--model", default="tiny", show_default=True)
@click.option("--data", default="sample", show_default=True)
@click.option("--dataset", default="hotpotqa", show_default=True)
@click.option("--skip", default=0, help="leave out the first questions")
@click.option("--limit", type=click.IntRange(1), default=24, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="keep the log-odds of every case")
def pairs(model: str, data: str, dataset: str, skip: int, limit: int, out: Path | None) -> None:
    """Ask about lists of paragraphs that differ in one thing at a time."""
    examples = [
        example
        for example in load(card_for(dataset, data), data).examples[skip:]
        if len({e.document for e in example.evidence or ()}) == GOLD
        and len(example.documents.documents) >= GOLD + OTHERS
    ][:limit]
    if not examples:
        raise DataError(
            f"{data}: of {dataset} behind the first {skip} no question has {GOLD} documents marked as its "
            f"evidence among {GOLD + OTHERS} or more; expected data that mark them, and a smaller --skip."
        )
    spec = resolve(model)
    Threads.begin(None).settle([spec], alone=True)
    lm = LoadedModels({"reader": spec}).lm()
    window = min(WINDOW, lm.geometry.input_limit)

    async def run() -> list[Case]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(example: Example) -> list[Case]:
            async with slots:
                return await cases_of(example, lm, window)

        return list(itertools.chain.from_iterable(await asyncio.gather(*map(one, examples))))

    cases = asyncio.run(run())
    if out is not None:
        out.write_text(json.dumps([case.__dict__ for case in cases], indent=1), "utf-8")
    click.echo(f"{len(examples)} questions of {dataset}, read by {spec.label}\n")
    _print([("mean p_yes", "tokens", *PROBES)])
    for name in ("nothing", *LISTS):
        own = [case for case in cases if case.name == name]
        p = [np.mean([1 / (1 + math.exp(-case.odds[probe])) for case in own]) for probe in PROBES]
        _print([(name, f"{np.mean([case.tokens for case in own]):.0f}", *(f"{value:.2f}" for value in p))])
    click.echo()
    _print([("AUROC of the log-odds", *PROBES)])
    for pair in DECISIVE:
        own = [case for case in cases if case.name in pair]
        _print([(" against ".join(pair), *(pooled(own, probe) for probe in PROBES))])
        _print([("  within one question", *(within(own, probe) for probe in PROBES))])
    every = [case for case in cases if case.name in set(itertools.chain(*DECISIVE))]
    _print([("all lengths pooled", *(pooled(every, probe) for probe in PROBES))])
    for base, rule in (("nothing", "over_nothing"), ("2 others", "over_top")):
        shifted = [
            c for c in relative(cases, base) if c.name in set(itertools.chain(*DECISIVE)) and c.name != base
        ]
        _print([(f"the same, {rule}", *(pooled(shifted, probe) for probe in PROBES))])
    _print([("within one question, all lengths", *(within(every, probe) for probe in PROBES))])


def steps_of(record: Record, example: Example, told_by: str) -> list[Case]:
    """The judged steps of a search, each with the verdict's rules and the number of its step, a mere clock.

    told_by: ``answer``, a reference stands in what was read; ``evidence``, every supporting document is read.
    Texts that an export has left out tell nothing of the answer.
    """
    search = None if record.error else SearchTrace.read(record.trace)
    if search is None or len(search.read_nodes) != len(record.context):
        return []
    unread = search.details.get("base") if search.details.get("confidence") == "over_nothing" else None
    gold = {evidence.document for evidence in example.evidence or ()}
    found, read, tokens, top = list[Case](), 0, 0, 0.0
    for step in search.steps:
        read += len(step.nodes)
        tokens += sum(int(node.details.get("tokens") or 0) for node in step.nodes)
        if step.p_yes is None:
            continue
        so_far = record.context[:read]
        if told_by == "answer":
            left_out = any(item.text == "" for item in so_far)
            held = None if left_out else retrieval_quality(so_far, example).get("answer_in_context")
        else:
            held = float(gold <= {item.document for item in so_far}) if gold else None
        if held is None:
            continue
        odds = log_odds(step.p_yes)
        top = top if found else odds
        rules = {"absolute": odds, "over_top": odds - top}
        rules |= {} if unread is None else {"over_nothing": odds - log_odds(unread)}
        rules["clock"] = float(len(found))
        documents = " ".join(record.document_ids)
        found.append(Case(record.example_id, documents, "", bool(held), tokens, rules, len(found)))
    return found


@main.command()
@click.argument("cells", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--data", default="sample", show_default=True, help="where the cells' data are")
def steps(cells: tuple[Path, ...], data: str) -> None:
    """Judge the rules on the steps of recorded searches, by length, pooled and within a question."""
    for cell in cells:
        about = read_description(cell)
        if about.config.get("answer_from") == "chunks":
            raise DataError(
                f"{cell}: its contexts are chunks, not the nodes that its searches read; expected a cell "
                "without answer_from=chunks."
            )
        examples = {e.id: e for e in load(card_for(about.dataset, data), data).examples}
        documents = {e.id: [document.id for document in e.documents.documents] for e in examples.values()}
        records = [r for r in load_records(cell) if documents.get(r.example_id) == r.document_ids]
        if not records:
            raise DataError(f"{data} has no question of {cell}; expected the data that it asked: --data.")
        click.echo(f"{cell.name}: {len(records)} questions")
        for told_by in ("answer", "evidence"):
            found = [step for r in records for step in steps_of(r, examples[r.example_id], told_by)]
            if not found:
                click.echo(f"AUROC: {told_by} read: no step has been recorded of which the data tell it")
                continue
            rules = list(found[0].odds)
            first = [next(group) for _, group in itertools.groupby(found, key=lambda step: step.question)]
            thirds = np.quantile([step.tokens for step in found], (1 / 3, 2 / 3))
            _print([(f"AUROC: {told_by} read", *rules)])
            _print([(f"first probe ({len(first)})", *(pooled(first, rule) for rule in rules))])
            _print([(f"all steps ({len(found)})", *(pooled(found, rule) for rule in rules))])
            same = (pooled(found, rule, at_one_step=True) for rule in rules)
            _print([("  against other searches at the same step", *same)])
            bounds = (0, *(int(third) for third in thirds), max(step.tokens for step in found))
            for low, high in itertools.pairwise(bounds):
                own = [step for step in found if low < step.tokens <= high]
                _print(
                    [(f"  {low + 1} to {high} tokens ({len(own)})", *(pooled(own, rule) for rule in rules))]
                )
            _print([("within one question", *(within(found, rule) for rule in rules))])


async def answers_of(cell: Cell, example: Example, lm: Any, ways: Sequence[str]) -> list[dict[str, Any]]:
    """The answers from all paragraphs of a question, one a way, with F1."""
    question, style = cell.question(example), cell.method.config.prompt
    texts = [document.full_text for document in example.documents.documents]
    points = [PECAN_NODE.format(text=fold(text)) for text in texts]
    found = []
    for way in ways:
        if way == TWO_TURNS:
            async with await lm.open(lm.geometry.input_limit) as context:
                for piece in (pecan_search_head(question.text), *points):
                    await context.extend(piece)
                await context.say(PECAN_CHOICES[0])
                await context.extend(pecan_turns("restated", question, style)[1])
                text = (await context.generate(question.max_new_tokens)).text.strip()
        else:
            items = [
                ContextItem(text, node=way) for text in (texts if way == PARAGRAPHS else ["".join(points)])
            ]
            text = (await read(items, question, lm, style)).text
        f1 = question_scores(text, example.answers, get_metrics(["f1"])).get("f1", 0.0)
        asked = {"question": example.id, "documents": example.documents.id, "way": way}
        found.append({**asked, "prediction": text, "f1": f1})
    return found


WAYS = PARAGRAPHS, LIST, TWO_TURNS = "paragraphs", "list", "two turns"


@main.command()
@click.option("--model", default="tiny", show_default=True)
@click.option("--data", default="sample", show_default=True)
@click.option("--dataset", default="hotpotqa", show_default=True)
@click.option("--prompt", type=click.Choice(("pecan", "longbench")), default="pecan", show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES))
@click.option("--way", "ways", type=click.Choice(WAYS), multiple=True, default=WAYS)
@click.option("--limit", type=click.IntRange(1), default=24, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="keep every answer; goes on with what is there")
def turns(
    model: str,
    data: str,
    dataset: str,
    prompt: str,
    dtype: DType | None,
    ways: tuple[str, ...],
    limit: int,
    out: Path | None,
) -> None:
    """Answer from all paragraphs in one prompt, as a list, and in the two turns of a search."""
    cell = plan_cell(
        CellRequest("full_context", dataset, model, data, {"prompt": prompt}, limit, dtype=dtype)
    )
    Threads.begin(None).settle(cell.roles.values(), alone=True)
    lm = LoadedModels(cell.roles).lm()
    kept = json.loads(out.read_text("utf-8")) if out and out.exists() else []
    run_of = [cell.reader.label, str(dtype), cell.data.label, cell.data.revision, prompt]
    done = {(answer["question"], answer["way"]) for answer in kept if answer.get("of") == run_of}

    async def run() -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(example: Example) -> None:
            async with slots:
                left = [way for way in ways if (example.id, way) not in done]
                kept.extend({**told, "of": run_of} for told in await answers_of(cell, example, lm, left))
            if out:
                out.write_text(json.dumps(kept, indent=1), "utf-8")

        await asyncio.gather(*map(one, cell.data.examples))

    asyncio.run(run())
    click.echo(f"{len(cell.data.examples)} questions of {cell.data.label}, read by {cell.reader.label}\n")
    f1 = {(a["question"], a["way"]): 100 * a["f1"] for a in kept if a.get("of") == run_of}
    clusters = [example.documents.id for example in cell.data.examples]
    for way in ways:
        own, first = ([f1[example.id, of] for example in cell.data.examples] for of in (way, ways[0]))
        against = f"  {_mean(np.subtract(own, first), clusters)} against {ways[0]}"
        _print([(way, _mean(own, clusters), "" if way == ways[0] else against)])


def _mean(values: ArrayLike, clusters: Sequence[str]) -> str:
    """With an interval that resamples documents, where there are enough of them."""
    return percent(clustered_bootstrap(values, clusters, rng=np.random.default_rng(0)), "")


if __name__ == "__main__":
    run_command(main, "performance.stop_signal")
