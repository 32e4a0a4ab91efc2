import random
from collections.abc import Callable

import pytest

from training.generator.names import NameSource
from training.generator.rendering import EVENTS, Article, articles, chronicle, is_dated, report, story
from training.generator.world import World, make_world

NAMES = NameSource("train")
STYLES: dict[str, Callable[[random.Random, World], list[Article]]] = {
    "chronicle": lambda rng, world: [chronicle(rng, world.facts)],
    "story": lambda rng, world: [story(rng, world, world.facts)],
    "report": lambda rng, world: [report(rng, world.facts, "Report")],
    "articles": lambda rng, world: articles(rng, world.facts),
}


@pytest.mark.parametrize("style", STYLES)
def test_every_fact_is_told_exactly_once(style: str) -> None:
    rng = random.Random(2)
    world = make_world(rng, NAMES, 50)

    facts = [s.fact for article in STYLES[style](rng, world) for s in article.sentences() if s.fact]

    assert sorted(facts, key=repr) == sorted(world.facts, key=repr)


@pytest.mark.parametrize("style", STYLES)
def test_a_sentence_holds_every_value_of_its_fact(style: str) -> None:
    """All but the subject, which may be a pronoun right after a sentence about the same subject."""
    rng = random.Random(3)
    world = make_world(rng, NAMES, 80)

    for article in STYLES[style](rng, world):
        before = None
        for sentence in article.sentences():
            if sentence.fact:
                text = sentence.text.lower()
                assert all(value.lower() in text for value in sentence.fact.values[1:])
                if sentence.fact.subject.lower() not in text:
                    assert text.split()[0] in ("she", "he", "it")
                    assert before == sentence.fact.subject
                before = sentence.fact.subject


@pytest.mark.parametrize("style", STYLES)
def test_sentences_begin_with_a_capital_and_end_with_a_full_stop(style: str) -> None:
    rng = random.Random(4)
    world = make_world(rng, NAMES, 60)

    for article in STYLES[style](rng, world):
        for sentence in article.sentences():
            assert sentence.text[0].isupper() or sentence.text[0].isdigit(), sentence.text
            assert sentence.text.endswith(".") == (
                sentence.fact is not None or not sentence.text[0].isdigit()
            )


def test_pronouns_agree_with_the_person() -> None:
    rng = random.Random(8)
    world = make_world(rng, NAMES, 200)
    article = story(rng, world, world.facts, pronouns=1.0)
    sentences = [s for s in article.sentences() if s.fact and s.text.split()[0] in ("She", "He")]

    assert len(sentences) > 20
    for sentence in sentences:
        assert sentence.fact is not None
        woman = NAMES.is_woman(sentence.fact.subject)
        assert sentence.text.split()[0] == ("She" if woman else "He")


def test_a_dated_fact_gets_no_second_date_and_a_state_no_moment() -> None:
    rng = random.Random(9)
    world = make_world(rng, NAMES, 200)

    for sentence in story(rng, world, world.facts).sentences():
        if sentence.fact and is_dated(sentence.fact):
            assert not sentence.text.startswith(("In the ", "By the ", "Meanwhile", "Later"))
        if sentence.fact and sentence.text.startswith("In the "):
            assert sentence.fact.relation in EVENTS


def test_articles_are_titled_by_their_subject_and_short() -> None:
    rng = random.Random(10)
    world = make_world(rng, NAMES, 60)

    for article in articles(rng, world.facts, most=2):
        facts = [s.fact for s in article.sentences() if s.fact]
        assert 1 <= len(facts) <= 2
        assert {f.subject for f in facts} == {article.title}
        assert article.full_text == f"{article.title}\n{article.text}"


def test_report_sections_are_numbered_and_hold_what_their_title_says() -> None:
    rng = random.Random(11)
    world = make_world(rng, NAMES, 60)
    article = report(rng, world.facts)
    sections: list[set[str]] = []
    for paragraph in article.paragraphs:
        if paragraph[0].fact is None and paragraph[0].text[0].isdigit():
            assert paragraph[0].text.startswith(f"{len(sections) + 1}. ")
            sections.append(set())
        else:
            sections[-1].update(s.fact.rel.section for s in paragraph if s.fact)

    assert all(len(kinds) == 1 for kinds in sections)
