import random

import pytest

from training.generator.names import NameSource
from training.generator.relations import RELATIONS
from training.generator.world import Fact, ask, ask_check, ask_hops, make_world, variables

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


def test_a_false_check_is_false() -> None:
    rng = random.Random(6)
    world = make_world(rng, NAMES, 40)
    true = {f.rel.check.format(**f.slots()) for f in world.facts}
    for fact in world.facts:
        assert ask_check(rng, world, fact, truth=True).question in true
        wrong = ask_check(rng, world, fact, truth=False)
        assert wrong.answer == "No" and wrong.question not in true


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
