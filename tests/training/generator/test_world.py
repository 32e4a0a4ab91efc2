import random
from collections import Counter

import pytest

from training.generator.names import NameSource
from training.generator.relations import RELATIONS
from training.generator.world import (
    Fact,
    World,
    ask,
    ask_check,
    ask_hops,
    make_world,
    running_sentences,
    short_sentences,
    variables,
)

NAMES = NameSource("train")


def matching(facts: list[Fact], question: str) -> list[tuple[str, str]]:
    """Every (answer, question) over the facts that reads exactly like the question."""
    pairs = []
    for fact in facts:
        for slot, wordings in fact.rel.questions.items():
            for wording in wordings:
                if wording.format(**fact.slots()) == question:
                    pairs.append((fact.slots()[slot], question))
    return pairs


@pytest.mark.parametrize("seed", range(6))
def test_every_one_hop_question_has_exactly_one_answer(seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(rng, NAMES, 60, share=1.0)

    for fact in world.facts:
        for slot in fact.rel.questions:
            qa = ask(rng, fact, slot)
            assert {answer for answer, _ in matching(world.facts, qa.question)} == {qa.answer}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hops", [2, 3, 4])
def test_the_facts_of_a_multi_hop_question_form_a_chain(seed: int, hops: int) -> None:
    rng = random.Random(seed)
    world = make_world(rng, NAMES, 120, share=0.5)
    questions = [qa for _ in range(30) if (qa := ask_hops(rng, world.facts, hops))]

    assert len(questions) > 4
    for qa in questions:
        assert qa.hops == hops == len(set(qa.facts))
        assert set(qa.facts) <= set(world.facts)
        assert qa.answer in qa.facts[-1].values
        assert qa.answer not in qa.question
        for first, second in zip(qa.facts, qa.facts[1:], strict=False):
            bridge = set(first.values) & set(second.values)
            assert bridge, f"{first} and {second} share nothing"
            assert not any(value in qa.question for value in bridge if value in world.people), qa.question


def test_described_people_are_unique() -> None:
    """A clause such as "the person who hid the red key" fits one person only."""
    world = make_world(random.Random(3), NAMES, 200, share=1.0)
    clauses = [
        (clause.format(**fact.slots()), fact.slots()[slot])
        for fact in world.facts
        for slot, clause in fact.rel.clauses.items()
    ]

    values: dict[str, set[str]] = {}
    for clause, value in clauses:
        values.setdefault(clause, set()).add(value)
    assert all(len(v) == 1 for v in values.values())


def test_an_untold_fact_answers_no_told_question() -> None:
    rng = random.Random(5)
    world = make_world(rng, NAMES, 40, share=1.0)

    for _ in range(20):
        untold = world.draw_fact()
        assert untold is not None
        assert matching(world.facts, ask(rng, untold).question) == []


def test_a_false_check_is_false() -> None:
    rng = random.Random(6)
    world = make_world(rng, NAMES, 40)
    true = {f.rel.check.format(**f.slots()) for f in world.facts}

    for fact in world.facts:
        assert ask_check(rng, world, fact, truth=True).question in true
        wrong = ask_check(rng, world, fact, truth=False)
        assert wrong.answer == "No" and wrong.question not in true


def test_confusable_worlds_reuse_names_and_others_hardly_do() -> None:
    def recurring(confusable: bool) -> float:
        world = World(random.Random(7), NAMES, 40, confusable=confusable)
        lasts = Counter(p.split()[1] for p in world.people)
        return sum(n for n in lasts.values() if n > 1) / 40

    assert recurring(True) > 1.5 * recurring(False)


def test_wordings_mention_only_slots_of_their_relation_and_never_the_answer() -> None:
    for relation in RELATIONS.values():
        for text in (*relation.statements, relation.phrase, relation.check):
            assert set(variables(text)) <= set(relation.slots), (relation.name, text)
        for statement in relation.statements:
            assert set(variables(statement)) == set(relation.slots), (relation.name, statement)
        for asked, wordings in relation.questions.items():
            for wording in wordings:
                assert asked not in variables(wording), (relation.name, wording)
        for described, clause in relation.clauses.items():
            assert described not in variables(clause)


def test_short_sentences_gather_by_subject_at_most_three() -> None:
    facts = [
        Fact("job", ("Mara Oakby", "baker")),
        Fact("fear", ("Otto Fenley", "bees")),
        Fact("home", ("Mara Oakby", "Dorwick")),
        Fact("play", ("Mara Oakby", "harp")),
        Fact("born", ("Mara Oakby", "1790")),
    ]

    assert short_sentences(facts) == [
        "Mara Oakby worked as a baker, lived in Dorwick and played the harp.",
        "Mara Oakby was born in 1790.",
        "Otto Fenley was afraid of bees.",
    ]


def test_running_sentences_keep_the_order_and_merge_what_stands_in_a_row() -> None:
    mara, otto = "Mara Oakby", "Otto Fenley"
    facts = [
        Fact("job", (mara, "baker")),
        Fact("fear", (otto, "bees")),
        Fact("home", (mara, "Dorwick")),
        Fact("play", (mara, "harp")),
        Fact("born", (mara, "1790")),
        Fact("food", (mara, "pea soup")),
    ]

    assert running_sentences(facts) == [
        "Mara Oakby worked as a baker.",
        "Otto Fenley was afraid of bees.",
        "Mara Oakby lived in Dorwick, played the harp and was born in 1790.",
        "Mara Oakby loved pea soup.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"facts": 0}, "1 to 600 facts, 0 were asked for"),
        ({"facts": 601}, "1 to 600 facts, 601"),
        ({"facts": 5, "share": 1.5}, "share is a probability, got 1.5"),
    ],
)
def test_parameters_out_of_range_say_what_is_expected(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_world(random.Random(1), NAMES, **arguments)  # type: ignore[arg-type]
