from __future__ import annotations

import pytest

from bench.engine.heads import Heads, selected_heads


def test_a_list_of_heads_is_read_and_written_in_one_spelling() -> None:
    heads = Heads.parse("4.0+3.11+3.2+4.0")
    assert heads.pairs == ((3, 2), (3, 11), (4, 0)) and len(heads) == 3
    assert str(heads) == "3.2+3.11+4.0" and Heads.parse(str(heads)) == heads


@pytest.mark.parametrize("text", ["", "3", "3.1+", "3.1.2", "-1.0", "3.1,4.0", "a.b", "3.²"])
def test_a_text_that_lists_no_heads_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="layer.head, such as"):
        Heads.parse(text)


@pytest.mark.parametrize("pairs", [(), ((0, -1),), ((1, 0), (0, 1)), ((0, 1), (0, 1))])
def test_heads_are_distinct_in_order_and_at_least_one(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="heads|ascending"):
        Heads(pairs)


def test_a_layer_says_which_of_its_heads_count_and_nothing_if_all_do() -> None:
    heads = Heads(((1, 0), (1, 2), (2, 0), (2, 1), (2, 2)))
    assert [selected_heads(heads, layer, 3) for layer in range(4)] == [[], [0, 2], None, []]
    assert selected_heads(None, 1, 3) is None
    assert Heads.of_layers([2, 0], 2).pairs == ((0, 0), (0, 1), (2, 0), (2, 1))


def test_a_model_has_all_heads_or_they_do_not_fit() -> None:
    heads = Heads.parse("1.7+3.0")
    assert heads.fit(4, 8)
    assert not heads.fit(3, 8) and not heads.fit(4, 7)
