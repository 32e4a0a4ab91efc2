"""A seeded world: people, towns, objects and places, and facts about them that do not contradict each other.

Every fact is identified by its subject within its relation, and by each slot that the relation declares
unique, so that a question built from a fact has exactly one answer in any text that tells a subset of the
facts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Formatter

from training.generator import relations as rel
from training.generator.names import NameSource, draw_distinct
from training.generator.relations import RELATIONS, Relation


@dataclass(frozen=True)
class Fact:
    """One thing that is so: a relation and the values of its slots, in the order of ``Relation.slots``."""

    relation: str
    values: tuple[str, ...]

    @property
    def rel(self) -> Relation:
        """The relation's wordings."""
        return RELATIONS[self.relation]

    @property
    def subject(self) -> str:
        """The person or town that the fact is about."""
        return self.values[0]

    def slots(self) -> dict[str, str]:
        """Values by slot letter."""
        return dict(zip(self.rel.slots, self.values, strict=True))


@dataclass(frozen=True)
class QA:
    """A question, its answer and the facts that it takes to answer it."""

    question: str
    answer: str
    slot: str
    """Slot of the last fact that is asked for; "?" for yes/no."""
    facts: tuple[Fact, ...]

    @property
    def hops(self) -> int:
        """Facts that have to be combined."""
        return len(self.facts)


class World:
    """People, towns, things and places to tell about; a fact drawn fits those drawn before."""

    def __init__(
        self,
        rng: random.Random,
        names: NameSource,
        people: int,
        *,
        confusable: bool,
        towns: int | None = None,
    ) -> None:
        """Draws the inventory; in a confusable world first and last names, adjectives and nouns recur.

        Raises:
            ValueError: if people is not in 2..200.
        """
        if not 2 <= people <= 200:
            raise ValueError(f"a world has 2 to 200 people, {people} were asked for")
        self.rng, self.names, self.confusable = rng, names, confusable
        firsts = _pool(rng, names.first_name, max(2, int(people * (0.8 if confusable else 3))))
        lasts = _pool(rng, names.last_name, max(2, int(people * (0.75 if confusable else 3))))
        while len(set(firsts)) * len(set(lasts)) < 2 * people:
            lasts.append(names.last_name(rng))
        self.people = draw_distinct(lambda: f"{rng.choice(firsts)} {rng.choice(lasts)}", people)
        town_count = min(towns or max(3, people), len(names.towns) // 2)
        self.towns = draw_distinct(lambda: rng.choice(names.towns), town_count)
        self.counties = draw_distinct(lambda: rng.choice(names.counties), max(2, min(town_count, 10)))
        self.rivers = draw_distinct(
            lambda: "the river " + rng.choice(names.rivers), max(2, min(town_count, 12))
        )
        count = max(4, 2 * people)
        self.objects = self._things(rel.OBJECT_ADJECTIVES, rel.OBJECTS, count)
        self.places = self._things(rel.PLACE_ADJECTIVES, rel.PLACES, min(count, 300))
        self.facts: list[Fact] = []
        self._taken: set[tuple[str, ...]] = set()

    def _things(self, adjectives: Sequence[str], nouns: Sequence[str], count: int) -> list[str]:
        rng = self.rng
        if self.confusable:
            side = int(count**0.5) + 2
            adjectives = rng.sample(adjectives, min(len(adjectives), side))
            nouns = rng.sample(nouns, min(len(nouns), side))
        elif count <= len(nouns):
            return [f"the {rng.choice(adjectives)} {noun}" for noun in rng.sample(nouns, count)]
        grid = [f"the {adjective} {noun}" for adjective in adjectives for noun in nouns]
        return rng.sample(grid, min(count, len(grid)))

    def _value(self, slot: str, subject: str, relation: str) -> str:
        rng = self.rng
        match slot:
            case "p":
                return rng.choice([p for p in self.people if p != subject])
            case "o":
                return rng.choice(self.objects)
            case "l":
                return rng.choice(self.places)
            case "t":
                return rng.choice(self.towns)
            case "c":
                return rng.choice(self.counties)
            case "r":
                return rng.choice(self.rivers)
            case "n":
                return self.names.pet(rng)
            case "d":
                month = rng.choice(rel.MONTHS)
                return f"{month} 18{rng.randint(30, 79)}" if rng.random() < 0.5 else month
            case "y":
                return str(rng.randint(*YEARS[relation]))
            case "k":
                return rng.choice(rel.KINSHIP)[0 if self.names.is_woman(subject) else 1]
        return rng.choice(ATTRIBUTES[slot])

    def alternative(self, fact: Fact, slot: str) -> str:
        """A value that the slot does not have, of the same type."""
        while True:
            value = self._value(slot, fact.subject, fact.relation)
            if value != fact.slots()[slot]:
                return value

    def draw_fact(self, relation: Relation | None = None, subject: str | None = None) -> Fact | None:
        """A fact that contradicts none drawn before, not yet among ``facts``; None if 40 draws found none."""
        rng = self.rng
        for _ in range(40):
            if relation:
                chosen = relation
            elif subject is None:
                chosen = rng.choice(rel.TOWN_RELATIONS if rng.random() < 0.15 else rel.PERSON_RELATIONS)
            else:
                chosen = rng.choice(rel.TOWN_RELATIONS if subject in self.towns else rel.PERSON_RELATIONS)
            who = subject or rng.choice(self.towns if chosen.subject == "town" else self.people)
            values = (who, *(self._value(slot, who, chosen.name) for slot in chosen.slots[1:]))
            fact = Fact(chosen.name, values)
            keys = _keys(fact)
            if self._taken.isdisjoint(keys):
                self._taken.update(keys)
                return fact
        return None

    def add_fact(self, relation: Relation | None = None, subject: str | None = None) -> Fact | None:
        """Like ``draw_fact``, and the fact becomes one of ``facts``."""
        fact = self.draw_fact(relation, subject)
        if fact:
            self.facts.append(fact)
        return fact


ATTRIBUTES = {
    "j": rel.JOBS,
    "a": rel.ANIMALS,
    "x": rel.FEARS,
    "f": rel.FOODS,
    "i": rel.INSTRUMENTS,
    "g": rel.GOODS,
}


YEARS = {"born": (1720, 1799), "make": (1801, 1879), "founded": (1510, 1699)}


def _pool(rng: random.Random, draw: Callable[[random.Random], str], count: int) -> list[str]:
    return [draw(rng) for _ in range(count)]


def _keys(fact: Fact) -> list[tuple[str, ...]]:
    """What may occur only once: the subject, the unique slots, and (kinship word, person)."""
    slots = fact.slots()
    keys: list[tuple[str, ...]] = [(fact.relation, "s", fact.subject)]
    keys += [(fact.relation, slot, slots[slot]) for slot in fact.rel.unique]
    if fact.relation == "kin":
        keys.append(("kin", slots["k"], slots["p"]))
    if fact.relation == "marry":  # nobody marries twice, on either side
        keys += [("marry", "s", slots["p"]), ("marry", "p", fact.subject)]
    return keys


def make_world(
    rng: random.Random,
    names: NameSource,
    facts: int,
    *,
    share: float = 0.7,
    density: tuple[float, float] = (2.0, 5.0),
) -> World:
    """A world with the given number of facts; ``density`` is the range of facts per person.

    Raises:
        ValueError: if facts is not in 1..600 or share not in 0..1.
    """
    if not 1 <= facts <= 600:
        raise ValueError(f"a world has 1 to 600 facts, {facts} were asked for")
    if not 0 <= share <= 1:
        raise ValueError(f"share is a probability, got {share}")
    people = min(200, max(3, int(facts / rng.uniform(*density))))
    while True:
        world = World(rng, names, people, confusable=rng.random() < share)
        while len(world.facts) < facts and world.add_fact():
            pass
        if len(world.facts) == facts:
            return world
        people = min(200, people + 2)


def variables(template: str) -> list[str]:
    """Slot letters that a wording mentions, in order."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def ask(rng: random.Random, fact: Fact, slot: str | None = None) -> QA:
    """A question about one fact, for a drawn slot or the given one."""
    slots = list(fact.rel.questions)
    slot = slot or rng.choice(slots)
    return QA(rng.choice(fact.rel.questions[slot]).format(**fact.slots()), fact.slots()[slot], slot, (fact,))


def ask_check(rng: random.Random, world: World, fact: Fact, *, truth: bool) -> QA:
    """A yes/no question about one fact; to make it false, one value is replaced by another of its type."""
    slots = fact.slots()
    if not truth:
        slot = rng.choice([s for s in fact.rel.slots[1:] if s not in "k"])
        slots[slot] = world.alternative(fact, slot)
    return QA(fact.rel.check.format(**slots), "Yes" if truth else "No", "?", (fact,))


def ask_hops(rng: random.Random, facts: Sequence[Fact], hops: int) -> QA | None:
    """A question over exactly ``hops`` facts, who or what is on the way described, not named; or None."""
    describe: dict[str, list[tuple[Fact, str]]] = {}
    for fact in facts:
        for slot in fact.rel.clauses:
            describe.setdefault(fact.slots()[slot], []).append((fact, slot))
    for _ in range(12):
        last = rng.choice(facts)
        slot = rng.choice(list(last.rel.questions))
        wording = rng.choice(last.rel.questions[slot])
        answer = last.slots()[slot]
        chain = _describe(rng, describe, wording, last, [last], hops - 1, answer)
        if chain and answer not in chain[0]:
            return QA(chain[0], answer, slot, tuple(chain[1]))
    return None


def _describe(
    rng: random.Random,
    describe: dict[str, list[tuple[Fact, str]]],
    wording: str,
    fact: Fact,
    used: list[Fact],
    hops: int,
    answer: str,
) -> tuple[str, list[Fact]] | None:
    slots = fact.slots()
    if hops == 0:
        return wording.format(**slots), used
    named = [v for v in variables(wording) if v in "spt"]
    if not named:
        return None
    slot = rng.choice(named)
    options = [(f, s) for f, s in describe.get(slots[slot], []) if f not in used and answer not in f.values]
    if not options:
        return None
    bridge, bridge_slot = rng.choice(options)
    inner = _describe(
        rng, describe, bridge.rel.clauses[bridge_slot], bridge, [bridge, *used], hops - 1, answer
    )
    if inner is None:
        return None
    return wording.format(**{**slots, slot: inner[0]}), inner[1]


def running_sentences(facts: Sequence[Fact], most: int = 3) -> list[str]:
    """The facts as sentences in their order, those in a row about one subject merged, at most ``most``."""
    runs: list[list[Fact]] = []
    for fact in facts:
        if runs and runs[-1][0].subject == fact.subject and len(runs[-1]) < most:
            runs[-1].append(fact)
        else:
            runs.append([fact])
    return [sentence for run in runs for sentence in short_sentences(run, most)]


def short_sentences(facts: Sequence[Fact], most: int = 3) -> list[str]:
    """The facts as sentences by subject, in order of first appearance, at most ``most`` facts in each."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.subject, []).append(fact)
    sentences = []
    for subject, own in groups.items():
        for i in range(0, len(own), most):
            phrases = [f.rel.phrase.format(**f.slots()) for f in own[i : i + most]]
            predicate = phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " and " + phrases[-1]
            sentences.append(f"{subject} {predicate}.")
    return sentences
