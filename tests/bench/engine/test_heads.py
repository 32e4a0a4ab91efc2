from __future__ import annotations

import pytest

from bench.engine.heads import Heads


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
