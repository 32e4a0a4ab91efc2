"""What makes a cell another cell, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bench.data import load
from bench.data.own import card_for
from bench.run.cell import CellRequest, plan_on
from bench.run.identity import CellIdentity


def test_the_order_of_the_examples_is_a_part_of_it() -> None:
    request, card = CellRequest("bm25", "qasper", limit=2), card_for("qasper", "sample")
    data = load(card, "sample", 2)
    turned = replace(data, examples=data.examples[::-1])
    one, other = (plan_on(request, card, ordered).identity for ordered in (data, turned))
    assert one.cell_id != other.cell_id


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
OPTIONS = st.dictionaries(st.text(max_size=8), SCALARS | st.dictionaries(st.text(max_size=3), SCALARS))
TEXTS = "method method_version dataset data_source data_label data_revision examples prompts training".split()
FIELDS = (
    dict.fromkeys(TEXTS, st.text())
    | dict.fromkeys(["n_examples", "max_new_tokens", "seed"], st.integers())
    | {"config": OPTIONS, "models": st.dictionaries(st.text(max_size=8), OPTIONS)}
    | {"geometry": st.dictionaries(st.text(max_size=8), st.integers())}
    | {"inner": st.lists(st.text(), max_size=3).map(tuple)}
)


def turned_round(value: Any) -> Any:
    """The same mappings with their keys in the other order, at every depth."""
    if not isinstance(value, dict):
        return value
    return {key: turned_round(inner) for key, inner in reversed(value.items())}


def written(value: Any) -> str:
    """As Python writes it, which tells 1, 1.0 and True apart; keys in order."""
    if not isinstance(value, dict):
        return repr(value)
    return repr([(key, written(inner)) for key, inner in sorted(value.items())])


@pytest.mark.parametrize("field", sorted(FIELDS))
@settings(max_examples=12, deadline=None)
@given(parts=st.fixed_dictionaries(FIELDS), data=st.data())
def test_the_id_follows_parts_not_their_order(field: str, parts: dict[str, Any], data: st.DataObject) -> None:
    cell_id = CellIdentity(**parts).cell_id
    assert CellIdentity(**{name: turned_round(part) for name, part in parts.items()}).cell_id == cell_id
    other = data.draw(FIELDS[field])
    same = field == "data_label" or written(other) == written(parts[field])
    assert (CellIdentity(**parts | {field: other}).cell_id == cell_id) is same
