"""``chronicles``: several documents on one made-up district, to be summarised as a whole.

The shape of the long-context summarisation sets, a quarter as long: a query about everything, and one to four
reference summaries that choose and order differently, as annotators do. What is to be learned from before
answering (``train_on=sample``) is a part of its own, on other districts.

No reference says what is not told, and every fact of it is told in one of the documents: references are made
of the facts, not of the text.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from training.generator.names import NameSource
from training.generator.rendering import EVENTS, Article, articles, report, story
from training.generator.sets import DEFAULT_SEED, LICENSE, Row, summary_of, write_sets
from training.generator.world import Fact, World, running_sentences

DATASET = "chronicles"
SUMMARIES_VERSION = "2"
"""Of this set: the version of the generator since which it has been the same."""
PARTS = {DATASET: 10, f"{DATASET}_train": 8}
"""File -> examples: what is asked about, and what may be learned from."""
FACTS = 180
"""Told in all documents of an example together: above the window at which the small shipped model is used, as
the papers' documents are above theirs."""
QUERY = "Write a fluent and complete summary of the text above."
"""The same for all, as in SQuALITY; in words in which the small shipped models were taught to summarise."""


def write_summary_samples(out_dir: Path, seed: int = DEFAULT_SEED) -> list[Path]:
    """Writes the set and what is learned from as JSON lines, the same bytes for the same seed.

    Raises:
        ConfigError: if seed is negative or out_dir is a file.
    """
    return write_sets(out_dir, seed, PARTS, summary_rows)


def summary_rows(part: str, seed: int = DEFAULT_SEED) -> list[Row]:
    """The rows of one file, in the format of the project's data files."""
    names = NameSource("held_out")
    return [_row(part, number, seed, names) for number in range(PARTS[part])]


def _row(part: str, number: int, seed: int, names: NameSource) -> Row:
    rng = random.Random(f"{seed}:{part}:{number}")
    world = World(rng, names, rng.randint(22, 28), confusable=True, towns=7)
    while len(world.facts) < FACTS and world.add_fact():
        pass
    documents, facts = _documents(rng, world)
    references = _references(facts)
    wanted = 1 + number % len(references)
    return {
        "id": f"{part}-sample-{number:03d}",
        "dataset": DATASET,
        "task": "summarization",
        "question": QUERY,
        "answers": references[:wanted],
        "documents": [{"title": a.title, "text": a.text} for a in documents],
        "source": f"longdoc-bench generator {SUMMARIES_VERSION} seed {seed}",
        "license": LICENSE,
        "metadata": {"facts": len(facts), "references": wanted},
    }


def _documents(rng: random.Random, world: World) -> tuple[list[Article], list[Fact]]:
    """A chronicle, a report and short notes, which share out the facts; and the facts as they are told."""
    subjects = list(dict.fromkeys(fact.subject for fact in world.facts))
    rng.shuffle(subjects)
    noted = set(subjects[: len(subjects) // 4])
    notes = [fact for fact in world.facts if fact.subject in noted]
    others = [fact for fact in world.facts if fact.subject not in noted]
    half = len(others) // 2
    first, second = world.towns[0], world.towns[1]
    documents = [
        Article(f"A Chronicle of {first}", story(rng, world, others[:half]).paragraphs),
        report(rng, others[half:], f"Report on the district of {second}"),
        *articles(rng, notes, most=6),
    ]
    return documents, [s.fact for a in documents for s in a.sentences() if s.fact]


def _references(facts: Sequence[Fact]) -> list[str]:
    """Four summaries: of the most prominent, of events, of the very most prominent, of people and places."""
    return [
        summary_of(facts),
        " ".join(running_sentences(_spread(facts, [f for f in facts if f.relation in EVENTS], 12))),
        summary_of(facts, subjects=3),
        " ".join(running_sentences(_spread(facts, [f for f in facts if f.relation not in EVENTS], 12))),
    ]


def _spread(facts: Sequence[Fact], chosen: Sequence[Fact], most: int) -> list[Fact]:
    """At most ``most`` of the facts, those of the most prominent subjects, at most two of each, in order."""
    weight = Counter(fact.subject for fact in facts)
    kept: list[Fact] = []
    taken: Counter[str] = Counter()
    for fact in sorted(chosen, key=lambda fact: -weight[fact.subject]):
        if len(kept) < most and taken[fact.subject] < 2:
            kept.append(fact)
            taken[fact.subject] += 1
    return [fact for fact in chosen if fact in kept]
