"""Facts as documents: chronicles, stories, reports with titled sections, short titled articles."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.generator.names import NameSource
from training.generator.world import Fact, World

FILLERS = (
    "The harvest was poor that year.", "Nobody in the village spoke of it again.",
    "The rain did not stop for a week.", "The bells rang twice that night.",
    "Snow covered the fields until spring.", "The river rose and fell again.", "Most people stayed at home.",
    "The parish book says little more.", "It was a long and quiet winter.",
    "The market was full of strangers.", "The roads were bad and few travellers came.",
    "In the evening the lamps were lit early.", "The summer was dry and the wells ran low.",
    "Children played in the street until dark.",
)  # fmt: skip
MOMENTS = (
    "That spring,", "One cold morning,", "After the fair,", "Before the harvest,", "Late that night,",
    "According to the parish book,", "As everyone remembers,", "In the same week,", "During the storm,",
    "Soon afterwards,",
)  # fmt: skip
EVENT_LINKS = ("Later,", "Some time afterwards,", "Meanwhile,", "Before long,")
STATE_LINKS = ("Besides,", "At that time,", "As people remember,", "In those days,")
EVENTS = frozenset({"hide", "buy", "find", "give", "fix", "steal", "marry", "teach", "paint", "argue"})
"""Relations that happen at a time which they do not state."""
LOWERED = ("The", "People", "Nobody", "Nothing", "It", "Merchants", "A")
"""First words of statements that begin with no name."""
SEASONS = ("spring", "summer", "autumn", "winter")
SECTION_TITLES = {
    "residents": ("Residents", "The people", "Households"),
    "property": ("Property", "Things made, sold and lost", "Belongings"),
    "journeys": ("Journeys", "Travel", "On the road"),
    "habits": ("Habits and pastimes", "Daily life", "Tastes and animals"),
    "families": ("Families and quarrels", "Kin and company", "Bonds between people"),
    "towns": ("Towns", "The towns of the district", "Places of the survey"),
}


@dataclass(frozen=True)
class Sentence:
    """One sentence, with the fact that it tells (None: it tells none)."""

    text: str
    fact: Fact | None = None


@dataclass(frozen=True)
class Article:
    """A rendered document: paragraphs of sentences; a single sentence without a full stop is a heading."""

    title: str
    paragraphs: tuple[tuple[Sentence, ...], ...]

    @property
    def text(self) -> str:
        """Paragraphs on lines of their own."""
        return "\n".join(" ".join(s.text for s in p) for p in self.paragraphs)

    @property
    def full_text(self) -> str:
        """Title line and text, as a reader sees the document."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    def sentences(self) -> list[Sentence]:
        """All sentences in order, headings included."""
        return [s for p in self.paragraphs for s in p]


def state(rng: random.Random, fact: Fact) -> str:
    """One of the relation's statements, its first letter in upper case."""
    text = rng.choice(fact.rel.statements).format(**fact.slots())
    return text[0].upper() + text[1:]


def chronicle(
    rng: random.Random,
    facts: Sequence[Fact],
    *,
    moments: float = 0.15,
    fillers: float = 0.04,
    paragraph: int = 0,
) -> Article:
    """The facts in the given order, cut into paragraphs."""
    size = paragraph or rng.choice((3, 5, 8, 12))
    sentences: list[Sentence] = []
    for fact in facts:
        sentences.append(_with_opening(rng, fact, rng.choice(MOMENTS) if rng.random() < moments else ""))
        if rng.random() < fillers:
            sentences.append(Sentence(rng.choice(FILLERS)))
    return Article("", _paragraphs(sentences, size))


def story(rng: random.Random, world: World, facts: Sequence[Fact], *, pronouns: float = 0.25) -> Article:
    """A story in order of time: each paragraph opens with a season and follows one or two people or towns.

    The facts of one subject are spread over several paragraphs, far apart.
    """
    visits = _visits(rng, facts)
    year = rng.randint(1780, 1850)
    order = 0
    paragraphs: list[tuple[Sentence, ...]] = []
    while visits:
        count = rng.choice((1, 2, 2, 3))
        batch, visits = visits[:count], visits[count:]
        batch.sort(key=lambda own: (is_dated(own[0]), own[0].relation not in EVENTS))
        order += rng.randint(1, 3)
        season = f"the {SEASONS[order % 4]} of {year + order // 4},"
        sentences: list[Sentence] = []
        for own in batch:
            for i, fact in enumerate(own):
                if i == 0:
                    sentences.append(_with_opening(rng, fact, _when(rng, fact, season)))
                    season = "" if not is_dated(fact) else season
                elif rng.random() < pronouns:
                    sentences.append(Sentence(_with_pronoun(rng, world.names, fact), fact))
                else:
                    sentences.append(_with_opening(rng, fact, _link(rng, fact) if rng.random() < 0.3 else ""))
        if rng.random() < 0.25:
            sentences.append(Sentence(rng.choice(FILLERS)))
        paragraphs.append(tuple(sentences))
    return Article("", tuple(paragraphs))


def report(rng: random.Random, facts: Sequence[Fact], title: str = "") -> Article:
    """A report: one titled section for each group of relations, its facts ordered by subject."""
    sections: dict[str, list[Fact]] = {}
    for fact in facts:
        sections.setdefault(fact.rel.section, []).append(fact)
    names = list(sections)
    rng.shuffle(names)
    paragraphs: list[tuple[Sentence, ...]] = []
    for number, name in enumerate(names, start=1):
        paragraphs.append((Sentence(f"{number}. {rng.choice(SECTION_TITLES[name])}"),))
        sentences = [
            _with_opening(rng, fact, _link(rng, fact) if rng.random() < 0.12 else "")
            for fact in sections[name]
        ]
        paragraphs.extend(_paragraphs(sentences, rng.choice((4, 6, 8))))
    return Article(title, tuple(paragraphs))


def articles(rng: random.Random, facts: Sequence[Fact], *, most: int = 3) -> list[Article]:
    """Short titled documents: one per subject, its facts in one paragraph, at most ``most`` in each.

    A subject with more facts gets a second document with the same title.
    """
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.subject, []).append(fact)
    documents = []
    for subject, own in groups.items():
        for i in range(0, len(own), most):
            sentences = tuple(Sentence(state(rng, fact), fact) for fact in own[i : i + most])
            documents.append(Article(subject, (sentences,)))
    rng.shuffle(documents)
    return documents


def _visits(rng: random.Random, facts: Sequence[Fact]) -> list[list[Fact]]:
    """Facts grouped by subject into visits of 1-3, the visits shuffled."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.subject, []).append(fact)
    visits = []
    for own in groups.values():
        while own:
            count = rng.randint(1, 3)
            visits.append(own[:count])
            own = own[count:]
    rng.shuffle(visits)
    return visits


def _with_opening(rng: random.Random, fact: Fact, opening: str) -> Sentence:
    """The fact's sentence after an opening such as "Meanwhile,"."""
    if not opening or is_dated(fact):
        return Sentence(state(rng, fact), fact)
    plain = [t for t in fact.rel.statements if not t.startswith(("In ", "Near "))]
    text = rng.choice(plain).format(**fact.slots())
    return Sentence(f"{opening} {_lower_first(text)}", fact)


def _with_pronoun(rng: random.Random, names: NameSource, fact: Fact) -> str:
    """The fact with its subject as a pronoun, if a statement begins with the subject."""
    direct = [t for t in fact.rel.statements if t.startswith("{s} ") and t.count("{s}") == 1]
    if not direct:
        return state(rng, fact)
    if fact.rel.subject == "town":
        pronoun = "It"
    else:
        pronoun = "She" if names.is_woman(fact.subject) else "He"
    return pronoun + rng.choice(direct).format(**fact.slots())[len(fact.subject) :]


def _when(rng: random.Random, fact: Fact, season: str) -> str:
    """How a paragraph's sentence places itself in time: by the season, or beside what was told before."""
    if season:
        return f"{'In' if fact.relation in EVENTS else 'By'} {season}"
    return (
        rng.choice(("Meanwhile,", "At the same time,", "In the same season,", ""))
        if fact.relation in EVENTS
        else ""
    )


def _link(rng: random.Random, fact: Fact) -> str:
    return rng.choice(EVENT_LINKS if fact.relation in EVENTS else STATE_LINKS)


def is_dated(fact: Fact) -> bool:
    """Whether the fact has a date of its own, so that no other time can stand before it."""
    return not {"y", "d"}.isdisjoint(fact.rel.slots)


def _lower_first(text: str) -> str:
    """Lower-cases the first word of a sentence that is no name."""
    return text[0].lower() + text[1:] if text.split(" ", 1)[0] in LOWERED else text


def _paragraphs(sentences: Sequence[Sentence], size: int) -> tuple[tuple[Sentence, ...], ...]:
    return tuple(tuple(sentences[i : i + size]) for i in range(0, len(sentences), size))
