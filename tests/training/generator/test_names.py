import random

import pytest

from training.generator import names
from training.generator.names import NameSource, draw_distinct, half_of


def test_the_halves_share_no_name() -> None:
    train, held_out = NameSource("train").all_names(), NameSource("held_out").all_names()

    assert train.isdisjoint(held_out)
    assert 0.2 < len(held_out) / (len(train) + len(held_out)) < 0.3


def test_held_out_first_names_are_composed_and_known_by_gender() -> None:
    source, rng = NameSource("held_out"), random.Random(1)
    drawn = {source.first_name(rng) for _ in range(300)}

    assert drawn.isdisjoint(names.COMMON_WOMEN + names.COMMON_MEN)
    for name in drawn:
        assert half_of(name) == "held_out"
        assert source.is_woman(f"{name} Oakwood") == name.endswith(names.WOMEN_ENDINGS)


def test_no_name_is_composed_in_two_ways_that_differ_in_gender() -> None:
    stems = names.FIRST_STEMS
    women = {s + e for s in stems for e in names.WOMEN_ENDINGS}
    men = {s + e for s in stems for e in names.MEN_ENDINGS}

    assert women.isdisjoint(men)


def test_asking_for_more_names_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="asked for 3 different names, found 2"):
        draw_distinct(iter("ab" * 1000).__next__, 3)
