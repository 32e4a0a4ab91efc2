"""What makes a cell another cell, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.files.hashing import stable_hash
from bench.run.identity import CellIdentity, hash_ids
from tests.stand_ins import examples, stand_in_cell


@pytest.fixture
def identity() -> CellIdentity:
    cell_identity: CellIdentity = stand_in_cell(examples(2)).identity
    return cell_identity


@pytest.mark.parametrize(
    "changes",
    [
        {"method_version": "2"},
        {"config": {"suffix": "!"}},
        {"data_revision": "1" * 64},
        {"examples": "other"},
        {"models": {"reader": {"name": "other"}}},
        {"geometry": {"window": 128}},
        {"prompts": "1"},
        {"max_new_tokens": 9},
        {"seed": 1},
        {"training": "other documents"},
        {"inner": ("ranker 2",)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_can_change_a_record_makes_another_cell(
    identity: CellIdentity, changes: dict[str, Any]
) -> None:
    assert replace(identity, **changes).cell_id != identity.cell_id


def test_documents_learned_from_tell_two_cells_apart(identity: CellIdentity) -> None:
    """The same options, and a file of training documents whose content has changed."""
    first, second = (replace(identity, training=stable_hash(content)) for content in ("a", "b"))
    assert len({identity.cell_id, first.cell_id, second.cell_id}) == 3


def test_a_renamed_data_file_leaves_the_cell_as_it_is(identity: CellIdentity) -> None:
    renamed = replace(identity, data_label="toy (renamed.json)")
    assert (renamed.cell_id, renamed.folder) == (identity.cell_id, identity.folder)


def test_the_order_of_the_examples_is_a_part_of_it() -> None:
    assert hash_ids(["q0", "q1"]) != hash_ids(["q1", "q0"])
