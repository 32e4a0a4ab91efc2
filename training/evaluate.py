"""What ``tiny`` can do, measured: ``python -m training.evaluate``, one JSON line per figure.

Worlds and names are unseen (the held-out half), there is one question per context, seven worlds in ten have
confusable names, and the prompts are those of the methods. An exact match is the reference and the end of
the turn,
token for token, by greedy decoding. Bars are those of the project's plan for training on two cores and on a
GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.files.paths import ASSETS
from bench.method.prompts import ANSWER_INSTRUCTION, join_passages, question_prompt
from methods.memwalker.prompts import memwalker_triage_prompt
from methods.pecan.prompts import PECAN_CHOICES, PECAN_NODE, pecan_search_head
from training.generator.names import NameSource
from training.generator.rendering import articles, chronicle, report, state, story
from training.generator.sets import SHAPES, sample_set
from training.generator.world import (
    QA,
    Fact,
    World,
    ask,
    ask_check,
    ask_hops,
    make_world,
    running_sentences,
    short_sentences,
)
from training.stream import Template
from training.tasks import DETAILS, UNANSWERABLE, deal, distractors, fold, pecan_graph_prompt

log = logging.getLogger(__name__)
RECORDS = Path(__file__).with_name("records")
"""A folder for each shipped model: its figures (``evaluation.jsonl``) and training log (``log.jsonl``)."""
SHARE = 0.7
SEED = 999
ONE_HOP_FACTS = {170: 9, 300: 19, 550: 38, 1000: 71, 2000: 147}
"""Facts in a chronicle so that the whole prompt has about that many tokens."""
ONE_HOP_BARS = {
    170: (0.97, 0.99),
    300: (0.95, 0.98),
    550: (0.88, 0.95),
    1000: (0.82, 0.90),
    2000: (0.60, 0.80),
}
BEHIND_BY = (0.05, 0.03)
"""How far the answers to a question before the text may lie below those to the same one behind it."""
NODE_WORDS = 48
"""Of a text's nodes in a search: about the 75 tokens of a chunk of the small models."""
GRAPH_WINDOW, GRAPH_SUMMARY = 2048, 512
"""Tokens of a graph prompt with its list, and of the list: the small models' geometry."""
CALIBRATION_BINS = 10
TOKENS_AT_ONCE = 16_000
PARTS = ("all", "figures", "reading", "samples")


@dataclass(frozen=True)
class Case:
    """A user turn and the reply that is right."""

    prompt: str
    reply: str
    earlier: tuple[tuple[str, str], ...] = ()
    """Turns before it: what the user said and what was replied."""


class Reader:
    """The exported model with greedy decoding."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        from tokenizers import Tokenizer
        from transformers import AutoModelForCausalLM

        self.device = torch.device(device)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().to(self.device)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.template = Template(self.tokenizer)

    def prompt_ids(self, prompt: str, earlier: Sequence[tuple[str, str]] = ()) -> list[int]:
        """Ids of a user turn, and of those before it, up to the assistant header."""
        t = self.template
        ids = list(t.bos)
        for user, replied in earlier:
            ids += [*t.user, *t.encode(user), t.eot, *t.assistant, *t.encode(replied), t.eot]
        return [*ids, *t.user, *t.encode(prompt), t.eot, *t.assistant]

    @torch.no_grad()
    def exact(self, cases: Sequence[Case]) -> tuple[list[bool], float]:
        """Whether greedy decoding gives the reply, and the mean length of prompt and reply in tokens.

        Greedy decoding gives the reply exactly if each of its tokens is the most likely one after those
        before it.
        """
        lines = []
        for case in cases:
            start = self.prompt_ids(case.prompt, case.earlier)
            lines.append((start, [*self.template.encode(case.reply), self.template.eot]))
        right = [False] * len(lines)
        for indices in batched_by_length([len(a) + len(b) for a, b in lines]):
            longest = max(len(lines[i][0]) + len(lines[i][1]) for i in indices)
            ids = torch.zeros(len(indices), longest, dtype=torch.long)
            for row, i in enumerate(indices):
                line = lines[i][0] + lines[i][1]
                ids[row, : len(line)] = torch.tensor(line)
            logits = self.model(ids.to(self.device)).logits
            for row, i in enumerate(indices):
                start, reply = lines[i]
                best = logits[row, len(start) - 1 : len(start) + len(reply) - 1].argmax(-1)
                right[i] = best.tolist() == reply
        return right, sum(len(a) + len(b) for a, b in lines) / len(lines)

    @torch.no_grad()
    def yes_probability(self, prompts_: Sequence[str]) -> list[float]:
        """p_yes of PECAN's probe: softmax over the first tokens of Yes and No."""
        yes, no = (self.template.encode(word)[0] for word in PECAN_CHOICES)
        probabilities = []
        for prompt in prompts_:
            ids = torch.tensor([self.prompt_ids(prompt)], device=self.device)
            logits = self.model(ids, logits_to_keep=1).logits[0, -1]
            probabilities.append(float(torch.softmax(logits[[yes, no]], -1)[0]))
        return probabilities

    def generate(self, prompt: str, most: int) -> str:
        """The greedy answer."""
        return str(self.tokenizer.decode(self._continued(prompt, most), skip_special_tokens=True))

    def ends(self, prompt: str, most: int) -> bool:
        """Whether the greedy answer ends within so many tokens."""
        return self._continued(prompt, most)[-1] == self.template.eot

    @torch.no_grad()
    def _continued(self, prompt: str, most: int) -> list[int]:
        ids = torch.tensor([self.prompt_ids(prompt)], device=self.device)
        made = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, do_sample=False, pad_token_id=0
        )
        return list(made[0, ids.shape[1] :].tolist())


def batched_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in groups of similar length that fit into memory together."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if group and lengths[i] * (len(group) + 1) > TOKENS_AT_ONCE:
            yield group
            group = []
        group.append(i)
    yield group


class Exam:
    """Draws the cases of every figure; the same for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        self.seed = seed
        self.names = NameSource("held_out")

    def rng(self, figure: str) -> random.Random:
        """A generator of its own for each figure, so that figures do not depend on each other."""
        return random.Random(f"{self.seed}:{figure}")

    def world(self, rng: random.Random, facts: int) -> World:
        """An unseen world."""
        return make_world(rng, self.names, facts, share=SHARE)

    def reading(self, rng: random.Random, facts: int, kind: str, style: str = "chronicle") -> Case:
        """One question about one document."""
        while True:
            world = self.world(rng, facts)
            context = render(rng, world, style)
            qa = question(rng, world, kind)
            if qa:
                return Case(question_prompt(context, qa.question), qa.answer)

    def searched(self, rng: random.Random, facts: int, kind: str = "one") -> Case:
        """The same question about the same document, put before it as PECAN's search does.

        The document is cut into nodes, the search ends with a Yes, and the answer is asked for.
        """
        while True:
            world = self.world(rng, facts)
            context = render(rng, world, "chronicle")
            qa = question(rng, world, kind)
            if qa:
                words = context.split()
                nodes = [" ".join(words[i : i + NODE_WORDS]) for i in range(0, len(words), NODE_WORDS)]
                listed = "".join(PECAN_NODE.format(text=n) for n in nodes)
                user = pecan_search_head(qa.question) + listed
                return Case(ANSWER_INSTRUCTION, qa.answer, ((user, PECAN_CHOICES[0]),))

    def batch(self, rng: random.Random, count_tokens: Callable[[str], int], *, upper: bool) -> str:
        """A graph prompt as full as PECAN fills it, over a story of the shape of NarrativeQA's sample set.

        Its nodes are passages of the story, or the bullets of earlier batches (``upper``).
        """
        people, towns = rng.randint(16, 26), 6
        world = World(rng, self.names, people, confusable=True, towns=towns)
        while len(world.facts) < 230 and world.add_fact():
            pass
        if upper:
            nodes = running_sentences([f for f in world.facts if f.rel.section not in DETAILS])
        else:
            words = story(rng, world, world.facts).text.split()
            nodes = [" ".join(words[i : i + NODE_WORDS]) for i in range(0, len(words), NODE_WORDS)]
        room = GRAPH_WINDOW - GRAPH_SUMMARY - count_tokens(pecan_graph_prompt([])) - 20
        taken: list[str] = []
        for node in nodes:
            room -= count_tokens(PECAN_NODE.format(text=node))
            if room < 0:
                break
            taken.append(node)
        return pecan_graph_prompt(taken)

    def sufficiency(self, rng: random.Random, bullets: int, hops: int, enough: bool) -> str:
        """A search prompt with exactly that many nodes, chosen to look as if they sufficed."""
        while True:
            world = self.world(rng, 2 * bullets + 6)
            qa = ask(rng, rng.choice(world.facts)) if hops == 1 else ask_hops(rng, world.facts, 2)
            if qa is None:
                continue
            merged = rng.random() < 0.5
            near = distractors(rng, world.facts, qa, len(world.facts), near=True)
            known = list(qa.facts) if enough else [rng.choice(qa.facts)] if hops == 2 else []
            nodes: list[str] = []
            for count in range(1, len(near) + 1):
                chosen = rng.sample([*known, *near[:count]], len(known) + count)
                nodes = short_sentences(chosen) if merged else [state(rng, fact) for fact in chosen]
                if len(nodes) >= bullets:
                    break
            if len(nodes) == bullets:
                listed = "".join(PECAN_NODE.format(text=n) for n in nodes)
                return pecan_search_head(qa.question) + listed

    def bullets(self, rng: random.Random, facts: int) -> tuple[str, list[Fact]]:
        """A graph prompt over nodes that tell so many facts: statements, passages or earlier bullets."""
        world = self.world(rng, facts)
        style = rng.randrange(3)
        if style == 0:
            nodes = [state(rng, fact) for fact in world.facts]
        elif style == 1:
            nodes = [fold(p) for p in chronicle(rng, world.facts, paragraph=3).text.split("\n")]
        else:
            nodes = [b for group in deal(rng, world.facts, 3) for b in short_sentences(group)]
        return pecan_graph_prompt(nodes), world.facts

    def choice(self, rng: random.Random, count: int) -> tuple[str, int]:
        """A triage prompt over so many summaries of three facts each, and the right number."""
        world = self.world(rng, 3 * count)
        groups = deal(rng, world.facts, count)
        right = rng.randrange(count)
        qa = ask(rng, rng.choice(groups[right]))
        summaries = [" ".join(short_sentences(group)) for group in groups]
        return memwalker_triage_prompt(summaries, qa.question), right


def render(rng: random.Random, world: World, style: str) -> str:
    """All facts of a world as a document."""
    match style:
        case "chronicle":
            return chronicle(rng, world.facts).text
        case "story":
            return story(rng, world, world.facts).text
        case "report":
            return report(rng, world.facts, f"Report on {world.towns[0]}").full_text
        case "articles":
            return join_passages([a.full_text for a in articles(rng, world.facts)])
    raise ValueError(f"unknown style {style!r}")


def question(rng: random.Random, world: World, kind: str) -> QA | None:
    """A question of a kind about the facts of a world; None if this world has none."""
    match kind:
        case "one":
            return ask(rng, rng.choice(world.facts))
        case "object":
            keyed = [f for f in world.facts if "o" in f.rel.unique and "s" in f.rel.questions]
            return ask(rng, rng.choice(keyed), "s") if keyed else None
        case "two":
            return ask_hops(rng, world.facts, 2)
        case "three":
            return ask_hops(rng, world.facts, 3)
        case "check":
            return ask_check(rng, world, rng.choice(world.facts), truth=rng.random() < 0.5)
        case "none":
            fact = world.draw_fact()
            return QA(ask(rng, fact).question, UNANSWERABLE, "", ()) if fact else None
    raise ValueError(f"unknown kind {kind!r}")


def bullet_figures(text: str, facts: Sequence[Fact]) -> tuple[int, int, int]:
    """Facts kept, bullets written, and bullets that state something which is no fact of the source."""
    known = {(f.subject, f.rel.phrase.format(**f.slots())) for f in facts}
    subjects = sorted({f.subject for f in facts}, key=len, reverse=True)
    kept: set[tuple[str, str]] = set()
    written = wrong = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        written += 1
        body = line.removeprefix("* ").removesuffix(".")
        subject = next((s for s in subjects if body.startswith(s + " ")), None)
        stated = (
            {(subject, p) for p in re.split(r", | and ", body[len(subject) + 1 :])} if subject else {("", "")}
        )
        kept.update(known & stated)  # type: ignore[arg-type]
        wrong += not stated <= known
    return len(kept), written, wrong


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Probability that a positive case scores above a negative one, ties counting half."""
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    return wins / (len(positive) * len(negative))


def figures(reader: Reader, exam: Exam, scale: float = 1.0) -> Iterator[dict[str, Any]]:
    """All figures, one after the other; ``scale`` shrinks the number of cases for a quick look."""

    def size(n: int) -> int:
        return max(4, int(n * scale))

    def reading(
        name: str, facts: int, kind: str, style: str, n: int, bars: tuple[Any, Any] = (None, None)
    ) -> dict[str, Any]:
        rng = exam.rng(f"{name}:{facts}:{kind}:{style}")
        right, tokens = reader.exact([exam.reading(rng, facts, kind, style) for _ in range(size(n))])
        share, mean = sum(right) / len(right), round(tokens)
        return line(name, share, len(right), bars, style=style, facts=facts, mean_tokens=mean)

    for tokens, facts in ONE_HOP_FACTS.items():
        n = {1000: 120, 2000: 60}.get(tokens, 300)
        behind = reading("one_hop_exact_match", facts, "one", "chronicle", n, ONE_HOP_BARS[tokens])
        yield behind | {"tokens": tokens}
        rng = exam.rng(f"one_hop_exact_match:{facts}:one:chronicle")
        right, mean = reader.exact([exam.searched(rng, facts) for _ in range(size(n))])
        bars = tuple(round(behind["value"] - gap, 4) for gap in BEHIND_BY)
        yield line("one_hop_question_first", sum(right) / len(right), len(right), (bars[0], bars[1]),
                   facts=facts, mean_tokens=round(mean), tokens=tokens)  # fmt: skip
    yield reading("two_hop_exact_match", 19, "two", "chronicle", 300, (0.85, 0.95)) | {"tokens": 300}
    yield reading("unanswerable_when_not_told", 19, "none", "chronicle", 300, (0.88, 0.95)) | {"tokens": 300}
    yield from _sufficiency(reader, exam, size)
    yield _calibration(reader, exam, size)
    yield from _bullets(reader, exam, size)
    yield from _lists(reader, exam, size)
    rng = exam.rng("choice")
    cases = [exam.choice(rng, 5) for _ in range(size(120))]
    hits = sum(chosen_number(reader.generate(prompt, 60)) == right for prompt, right in cases)
    yield line("choice_among_5_summaries", hits / len(cases), len(cases), (0.75, 0.92))
    yield reading("object_keyed_exact_match", 20, "object", "chronicle", 200)
    yield reading("three_hop_exact_match", 20, "three", "chronicle", 200, (0.85, 0.95))
    yield reading("yes_no_accuracy", 20, "check", "chronicle", 200)
    rng = exam.rng("yes_no_question_first")
    right, _ = reader.exact([exam.searched(rng, 20, "check") for _ in range(size(200))])
    yield line("yes_no_question_first", sum(right) / len(right), len(right), (None, None), facts=20)
    for style in ("story", "report", "articles"):
        yield reading("one_hop_exact_match", 20, "one", style, 200)


def _sufficiency(reader: Reader, exam: Exam, size: Callable[[int], int]) -> Iterator[dict[str, Any]]:
    plan = ((8, (0.85, 0.97), (None, None), 200), (32, (0.97, 0.99), (0.85, 0.95), 100))
    for bullets, one, two, n in plan:
        for hops, bars in ((1, one), (2, two)):
            rng = exam.rng(f"sufficiency:{bullets}:{hops}")
            yes, no = (
                reader.yes_probability([exam.sufficiency(rng, bullets, hops, enough) for _ in range(size(n))])
                for enough in (True, False)
            )
            accuracy = (sum(p > 0.5 for p in yes) + sum(p <= 0.5 for p in no)) / (len(yes) + len(no))
            yield line("sufficiency_auroc", auroc(yes, no), 2 * len(yes), bars, bullets=bullets, hops=hops,
                       accuracy_at_half=round(accuracy, 3))  # fmt: skip


def _bullets(reader: Reader, exam: Exam, size: Callable[[int], int]) -> Iterator[dict[str, Any]]:
    for facts, bars, n in ((6, (0.75, 0.95), 60), (20, (0.85, 0.95), 30)):
        rng = exam.rng(f"bullets:{facts}")
        kept = written = wrong = total = 0
        for _ in range(size(n)):
            prompt, source = exam.bullets(rng, facts)
            counts = bullet_figures(reader.generate(prompt, 24 * facts), source)
            kept, written, wrong = (a + b for a, b in zip((kept, written, wrong), counts, strict=True))
            total += len(source)
        yield line("bullets_facts_kept", kept / total, total, bars, facts=facts)
        most = (0.08, 0.03) if facts == 20 else (0.20, 0.03)
        yield line("bullets_wrong", wrong / max(1, written), written, most, facts=facts, at_most=True)


def _lists(reader: Reader, exam: Exam, size: Callable[[int], int]) -> Iterator[dict[str, Any]]:
    """How many lists of full batches do not end within the room that a graph gives them."""
    for level in ("passages", "bullets"):
        rng = exam.rng(f"lists:{level}")
        batches = [
            exam.batch(rng, lambda text: len(reader.template.encode(text)), upper=level == "bullets")
            for _ in range(size(24))
        ]
        cut = sum(not reader.ends(prompt, GRAPH_SUMMARY) for prompt in batches)
        yield line("lists_cut", cut / len(batches), len(batches), (0.10, 0.0), of=level, at_most=True)


def _calibration(reader: Reader, exam: Exam, size: Callable[[int], int]) -> dict[str, Any]:
    """p_yes against the share of Yes over easy and hard cases: expected calibration error, and the curve.

    curve: of each tenth of the range, mean p_yes, share of Yes and cases; accepted: share of the cases that
    suffice, and of those that do not, with p_yes above a threshold t_c.
    """
    rng = exam.rng("calibration")
    cases = [
        (exam.sufficiency(rng, bullets, hops, enough), enough)
        for bullets in (2, 8, 16, 32)
        for hops in (1, 2)
        for enough in (True, False)
        for _ in range(size(25))
    ]
    judgements = list(zip(reader.yes_probability([prompt for prompt, _ in cases]), cases, strict=True))
    pairs = [(p, enough) for p, (_, enough) in judgements]
    error, curve = calibration(pairs)
    accepted = {
        str(t): [round(_share([p > t for p, enough in pairs if enough == kind]), 3) for kind in (True, False)]
        for t in (0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
    }
    return line(
        "calibration_error", error, len(pairs), (None, None), at_most=True, curve=curve, accepted=accepted
    )


def calibration(pairs: Sequence[tuple[float, bool]]) -> tuple[float, list[list[float]]]:
    """Expected calibration error of (probability, outcome) pairs, and the curve behind it.

    Ten bins of equal width (Guo et al. 2017); curve: mean probability, share of true outcomes and number of
    each bin that has any.
    """
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(CALIBRATION_BINS)]
    for p, outcome in pairs:
        bins[min(int(p * CALIBRATION_BINS), CALIBRATION_BINS - 1)].append((p, outcome))
    curve, error = [], 0.0
    for members in bins:
        if members:
            mean, share = _share([p for p, _ in members]), _share([outcome for _, outcome in members])
            curve.append([round(mean, 3), round(share, 3), len(members)])
            error += abs(mean - share) * len(members) / len(pairs)
    return error, curve


def _share(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def chosen_number(reply: str) -> int | None:
    """The number after "Action:"."""
    match = re.search(r"Action: *(-?\d+)", reply)
    return int(match.group(1)) if match else None


def line(name: str, value: float, n: int, bars: tuple[Any, Any], **more: Any) -> dict[str, Any]:
    """One figure with its bars and whether it reaches the first."""
    cpu, gpu = bars
    at_most = bool(more.get("at_most"))
    reached = None if cpu is None else (value <= cpu if at_most else value >= cpu)
    shown = {
        "figure": name,
        "value": round(value, 4),
        "n": n,
        "bar_two_cores": cpu,
        "bar_gpu": gpu,
        "reached": reached,
    }
    return shown | more


def sample_figures(reader: Reader, datasets: Sequence[str] = tuple(SHAPES)) -> Iterator[dict[str, Any]]:
    """LongBench's F1 on the sample sets: closed book, full context, and the evidence's documents alone."""
    from bench.metrics.squad import f1

    for dataset in datasets:
        rows = sample_set(dataset)
        for setting in ("closed_book", "full_context", "evidence_documents"):
            scores = []
            for row in rows:
                chosen = _documents(row, setting)
                if chosen is None:
                    continue
                answer = reader.generate(question_prompt(join_passages(chosen), row["question"]), 32)
                scores.append(f1(answer, row["answers"]))
            if scores:
                yield line("sample_f1", sum(scores) / len(scores), len(scores), (None, None), dataset=dataset,
                           setting=setting)  # fmt: skip


def _documents(row: dict[str, Any], setting: str) -> list[str] | None:
    texts = [f"{d['title']}\n{d['text']}" if d["title"] else d["text"] for d in row["documents"]]
    if setting == "closed_book":
        return []
    if setting == "full_context":
        return texts
    return (
        [texts[i] for i in sorted({e["document"] for e in row["evidence"]})] if row.get("evidence") else None
    )


def main(arguments: list[str] | None = None) -> None:
    """Command line of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="a shipped model's name or a model folder")
    parser.add_argument(
        "--out", type=Path, help="default: evaluation.jsonl among the shipped model's records"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cases, for a quick look")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--part", choices=PARTS, default="all",
                        help="reading: the one-hop figures alone")  # fmt: skip
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.out is None and (options.scale != 1 or options.part != "all"):
        parser.error("--scale and --part give a part of the shipped figures: say with --out where they go")
    shipped = ASSETS / options.model
    out = options.out or RECORDS / options.model / "evaluation.jsonl"
    if options.out is None and not out.parent.is_dir():
        parser.error(f"--model {options.model} is not a shipped model: say with --out where the figures go")
    out.parent.mkdir(parents=True, exist_ok=True)
    reader = Reader(shipped if shipped.is_dir() else Path(options.model), options.device)
    measured = figures(reader, Exam(), options.scale) if options.part != "samples" else iter(())
    if options.part == "reading":
        measured = itertools.islice(measured, 2 * len(ONE_HOP_FACTS))
    wanted = itertools.chain(measured, sample_figures(reader) if options.part in ("all", "samples") else ())
    lines = []
    for figure in wanted:
        lines.append(json.dumps(figure))
        log.info("%s", lines[-1])
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
