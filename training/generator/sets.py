"""The four sample sets: the shapes of NarrativeQA, Qasper, HotpotQA and MuSiQue, a quarter as long."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import ConfigError
from training.generator.names import NameSource
from training.generator.rendering import Article, Sentence, articles, report, story
from training.generator.world import QA, Fact, World, ask, ask_check, ask_hops, short_sentences

GENERATOR_VERSION = "3"
DEFAULT_SEED = 2024
UNANSWERABLE = "Unanswerable"
LICENSE = "Apache-2.0"
MOST_OF_AN_ANSWER = 3
"""Questions of a set that may share an answer (yes, no and unanswerable apart)."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much a version of the sets has of each."""

    stories: int
    questions_of_a_story: int
    """Of six: three of one hop, two of two, one of three; which of them are left out differs by story."""
    reports: int
    bridges: int
    """HotpotQA's questions, each with documents of its own."""
    chains: int
    """MuSiQue's answerable questions, each with documents of its own."""
    twins: tuple[int, ...]
    """The chains that are asked once more of documents without one of their facts."""


SIZES = {
    "2": Sizes(stories=8, questions_of_a_story=6, reports=12, bridges=48, chains=40,
               twins=(1, 8, 14, 22, 29, 36)),
    "3": Sizes(stories=24, questions_of_a_story=5, reports=30, bridges=120, chains=105,
               twins=tuple(7 * i + i % 5 for i in range(15))),
}  # fmt: skip
"""By version of the sets; an earlier one stays to be written (``python -m training.generator --version``)."""


@dataclass
class _Draft:
    """Questions of one set as they are collected."""

    dataset: str
    seed: int
    version: str = GENERATOR_VERSION
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Sequence[Fact]] = field(default_factory=dict)
    """Id of a question -> what its documents tell."""
    answers: Counter[str] = field(default_factory=Counter)

    def fits(self, qa: QA) -> bool:
        """Whether the answer is not yet frequent in the set."""
        return self.answers[qa.answer] < MOST_OF_AN_ANSWER

    def add(
        self,
        documents: Sequence[Article],
        qa: QA,
        answers: list[str],
        *,
        kind: str,
        evidence: list[dict[str, Any]],
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Appends one question."""
        self.answers[qa.answer] += 1
        row: Row = {
            "id": f"{self.dataset}-sample-{len(self.rows):03d}",
            "dataset": self.dataset,
            "task": "qa",
            "question": qa.question,
            "answers": answers,
            "documents": [{"title": a.title, "text": a.text} for a in documents],
            "evidence": evidence,
        }
        facts = [s.fact for a in documents for s in a.sentences() if s.fact]
        self.facts[row["id"]] = facts
        row["summary"] = summary_of(facts)
        row["source"] = f"longdoc-bench generator {self.version} seed {self.seed}"
        row["license"] = LICENSE
        row["metadata"] = {"kind": kind, "hops": max(1, qa.hops), **(metadata or {})}
        self.rows.append(row)


def write_samples(out_dir: Path, seed: int = DEFAULT_SEED, version: str = GENERATOR_VERSION) -> list[Path]:
    """Writes the four sets as JSON lines, the same bytes for the same seed and version; returns their paths.

    Raises:
        ConfigError: if seed is negative, there is no such version, or out_dir is a file.
    """
    return write_sets(out_dir, seed, SHAPES, lambda dataset, seed: sample_set(dataset, seed, version))


def write_other_worlds(out_dir: Path, seeds: Sequence[int], version: str = GENERATOR_VERSION) -> list[Path]:
    """Writes sets of the samples' shapes about other worlds, one of each shape per seed; returns their paths.

    Raises:
        ConfigError: if a seed is negative, given twice or the samples' own, there is no such version, or
            out_dir is a file.
    """
    if DEFAULT_SEED in seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"seeds {', '.join(map(str, seeds))}: expected different ones, and not {DEFAULT_SEED}, which "
            "has the shipped sets."
        )

    def rows(dataset: str, first: int) -> list[Row]:
        return [
            {**row, "id": f"{dataset}-{seed}-{number:03d}"}
            for seed in seeds
            for number, row in enumerate(sample_set(dataset, seed, version))
        ]

    return write_sets(out_dir, min(seeds), SHAPES, rows)


def write_sets(
    out_dir: Path, seed: int, names: Iterable[str], rows_of: Callable[[str, int], Sequence[Row]]
) -> list[Path]:
    """Writes sets as JSON lines, one file each, named after it; returns their paths.

    Raises:
        ConfigError: if seed is negative or out_dir is a file.
    """
    if seed < 0:
        raise ConfigError(f"the seed of the sample sets must be 0 or more, got {seed}.")
    if out_dir.exists() and not out_dir.is_dir():
        raise ConfigError(f"{out_dir} is a file; give a directory for the sample sets.")
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        path = out_dir / f"{name}.jsonl"
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows_of(name, seed)]
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths


def sample_set(dataset: str, seed: int = DEFAULT_SEED, version: str = GENERATOR_VERSION) -> list[Row]:
    """The rows of one sample set, in the format of the project's data files.

    Raises:
        ConfigError: if there is no such set or version.
    """
    return _drafted(dataset, seed, version).rows


def facts_told(
    dataset: str, seed: int = DEFAULT_SEED, version: str = GENERATOR_VERSION
) -> dict[str, Sequence[Fact]]:
    """Id of a question of a sample set -> the facts that its documents tell, in their order.

    Raises:
        ConfigError: if there is no such set or version.
    """
    return _drafted(dataset, seed, version).facts


def _drafted(dataset: str, seed: int, version: str) -> _Draft:
    if version not in SIZES:
        raise ConfigError(
            f"There is no version {version!r} of the sample sets; there are: {', '.join(SIZES)}."
        )
    if dataset not in SHAPES:
        raise ConfigError(f"There is no sample set {dataset!r}; there are: {', '.join(SHAPES)}.")
    draft = _Draft(dataset, seed, version)
    SHAPES[dataset](draft, NameSource("held_out"), SIZES[version])
    return draft


def summary_of(facts: Sequence[Fact], subjects: int = 6) -> str:
    """Reference summary: what is told of the most prominent people and towns, at most three facts of each."""
    counts = Counter(f.subject for f in facts)
    first = {subject: i for i, subject in reversed(list(enumerate(f.subject for f in facts)))}
    chosen = set(sorted(counts, key=lambda s: (-counts[s], first[s]))[:subjects])
    kept: list[Fact] = []
    taken: Counter[str] = Counter()
    for fact in facts:
        if fact.subject in chosen and taken[fact.subject] < 3:
            kept.append(fact)
            taken[fact.subject] += 1
    return " ".join(short_sentences(kept))


def _narrativeqa(draft: _Draft, names: NameSource, sizes: Sizes) -> None:
    """Stories of 140 to 252 facts with questions of one to three hops each."""
    for number in range(sizes.stories):
        rng = _rng(draft, number)
        facts = 140 + 112 * number // (sizes.stories - 1)
        world = _crowded_world(rng, names, people=rng.randint(16, 26), towns=6, facts=facts)
        document = story(rng, world, world.facts)
        title = f"A Chronicle of {world.towns[0]} and {world.towns[1]}"
        document = Article(title, document.paragraphs)
        left_out = {(5 - number - i) % 6 for i in range(6 - sizes.questions_of_a_story)}
        for place, hops in enumerate((1, 1, 1, 2, 2, 3)):
            if place in left_out:
                continue
            qa = _draw(rng, draft, lambda r=rng, h=hops, w=world: _hop_question(r, w, h))  # type: ignore[misc]
            draft.add(
                [document], qa, _references(qa), kind=f"{hops}-hop", evidence=paragraphs_of(document, qa)
            )


def _qasper(draft: _Draft, names: NameSource, sizes: Sizes) -> None:
    """Reports with four questions each: extractive, yes/no and unanswerable."""
    for number in range(sizes.reports):
        rng = _rng(draft, number)
        world = _crowded_world(rng, names, people=rng.randint(12, 18), towns=5, facts=rng.randint(78, 90))
        document = report(rng, world.facts, f"Report on the district of {world.towns[0]}")
        for _ in range(2):
            qa = _draw(rng, draft, lambda r=rng, w=world: ask(r, r.choice(w.facts)))  # type: ignore[misc]
            draft.add(
                [document], qa, _references(qa), kind="extractive", evidence=paragraphs_of(document, qa)
            )
        check = ask_check(rng, world, rng.choice(world.facts), truth=number % 2 == 0)
        draft.add([document], check, [check.answer], kind="yes/no", evidence=paragraphs_of(document, check))
        if number % 5 not in (1, 3):
            qa = _draw(rng, draft, lambda r=rng, w=world: _hop_question(r, w, 2))  # type: ignore[misc]
            draft.add(
                [document], qa, _references(qa), kind="extractive", evidence=paragraphs_of(document, qa)
            )
        else:
            qa = _untold(rng, world)
            draft.add([document], qa, [UNANSWERABLE], kind="unanswerable", evidence=[])


def _hotpotqa(draft: _Draft, names: NameSource, sizes: Sizes) -> None:
    """Sets of ten short titled documents, one two-hop question each."""
    for number in range(sizes.bridges):
        rng = _rng(draft, number)
        documents, qa = _article_set(rng, draft, names, count=10, hops=2, facts=(2, 3))
        draft.add(documents, qa, [qa.answer], kind="bridge", evidence=evidence_of(documents, qa))


def _musique(draft: _Draft, names: NameSource, sizes: Sizes) -> None:
    """Sets of twenty short titled documents, 2-4 hops, and unanswerable twins of some."""
    twins: list[tuple[list[Article], QA]] = []
    for number in range(sizes.chains):
        rng = _rng(draft, number)
        hops = (2, 2, 3, 3, 4)[number % 5]
        documents, qa = _article_set(rng, draft, names, count=20, hops=hops, facts=(1, 3))
        draft.add(documents, qa, [qa.answer], kind=f"{hops}-hop", evidence=evidence_of(documents, qa),
                  metadata={"answerable": True})  # fmt: skip
        if number in sizes.twins:
            twins.append((_without(documents, rng.choice(qa.facts)), qa))
    for documents, qa in twins:
        asked = QA(qa.question, UNANSWERABLE, qa.slot, ())
        draft.add(documents, asked, [UNANSWERABLE], kind="unanswerable twin",
                  evidence=[], metadata={"answerable": False, "hops": qa.hops})  # fmt: skip


SHAPES: dict[str, Callable[[_Draft, NameSource, Sizes], None]] = {
    "narrativeqa": _narrativeqa,
    "qasper": _qasper,
    "hotpotqa": _hotpotqa,
    "musique": _musique,
}


def evidence_of(documents: Sequence[Article], qa: QA) -> list[dict[str, Any]]:
    """Where the facts of a question are told, in the order of the documents."""
    return [
        {"document": i, "sentence": j, "text": sentence.text}
        for i, article in enumerate(documents)
        for j, sentence in enumerate(article.sentences())
        if sentence.fact in qa.facts
    ]


def paragraphs_of(article: Article, qa: QA) -> list[dict[str, Any]]:
    """The paragraphs of one long document that tell a question's facts, as Qasper labels its evidence."""
    return [
        {"document": 0, "text": " ".join(sentence.text for sentence in paragraph)}
        for paragraph in article.paragraphs
        if any(sentence.fact in qa.facts for sentence in paragraph)
    ]


def _rng(draft: _Draft, number: int) -> random.Random:
    return random.Random(f"{draft.seed}:{draft.dataset}:{number}")


def _crowded_world(rng: random.Random, names: NameSource, *, people: int, towns: int, facts: int) -> World:
    """A confusable world with many facts about each person."""
    world = World(rng, names, people, confusable=True, towns=towns)
    while len(world.facts) < facts and world.add_fact():
        pass
    return world


def _article_set(
    rng: random.Random, draft: _Draft, names: NameSource, *, count: int, hops: int, facts: tuple[int, int]
) -> tuple[list[Article], QA]:
    """Short documents about ``count`` subjects, and a question with one of its facts in each of ``hops``."""
    while True:
        people = rng.randint(count * 6 // 10, count * 7 // 10)
        world = World(rng, names, people, confusable=True, towns=count - people)
        for subject in (*world.people, *world.towns):
            for _ in range(rng.randint(*facts)):
                world.add_fact(subject=subject)
        subjects = {f.subject for f in world.facts}
        if len(subjects) != count:
            continue
        for _ in range(20):
            qa = ask_hops(rng, world.facts, hops)
            if qa and len({f.subject for f in qa.facts}) == hops and draft.fits(qa):
                return articles(rng, world.facts), qa


def _without(documents: Sequence[Article], fact: Fact) -> list[Article]:
    """The documents with the sentence that tells a fact left out; a document that told nothing else goes."""
    kept = []
    for article in documents:
        sentences: tuple[Sentence, ...] = tuple(s for s in article.sentences() if s.fact != fact)
        if sentences:
            kept.append(Article(article.title, (sentences,)))
    return kept


def _draw(rng: random.Random, draft: _Draft, question: Callable[[], QA | None]) -> QA:
    """The first drawn question that is new to the set and whose answer is not too frequent."""
    asked = {row["question"] for row in draft.rows}
    while True:
        qa = question()
        if qa and qa.question not in asked and draft.fits(qa):
            return qa


def _hop_question(rng: random.Random, world: World, hops: int) -> QA | None:
    return ask(rng, rng.choice(world.facts)) if hops == 1 else ask_hops(rng, world.facts, hops)


def _untold(rng: random.Random, world: World) -> QA:
    while True:
        fact = world.draw_fact()
        if fact:
            qa = ask(rng, fact)
            return QA(qa.question, UNANSWERABLE, qa.slot, ())


def _references(qa: QA) -> list[str]:
    """The answer, and the way that a second annotator would put it."""
    last = qa.facts[-1]
    preposition = {"hide": "in", "find": "near", "home": "in", "trip": "to", "marry": "in"}.get(last.relation)
    if qa.slot in ("l", "t") and preposition:
        return [qa.answer, f"{preposition} {qa.answer}"]
    if qa.slot == "j":
        return [qa.answer, f"worked as a {qa.answer}"]
    if qa.slot == "y":
        return [qa.answer, f"in {qa.answer}"]
    if qa.slot in ("o", "n", "x", "f"):
        return [qa.answer, f"it was {qa.answer}"]
    return [qa.answer]
