from __future__ import annotations

import pytest

from bench.models.api import Generation
from methods.pecan.bullets import parse_bullets, whole_text
from tests.methods.pecan.scripted import ScriptedModel


def generated(text: str) -> Generation:
    tokenization = ScriptedModel().tokenize(text)
    return Generation(text, tokenization.ids, "stop", 0, tokenization.offsets)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("* Mara hid it.\n* Otto sold it.", [[" Mara", " hid", " it", "."], [" Otto", " sold", " it", "."]]),
        ("* one two\n  three\n* four", [[" one", " two", " three"], [" four"]]),  # of both lines
        ("* Mill Hill\n  * built late", [[" Mill", " Hill", " built", " late"]]),  # of the item above, too
    ],
)
def test_the_tokens_of_bullets_leave_markers_and_line_ends_out(text: str, tokens: list[list[str]]) -> None:
    offsets = generated(text).offsets
    bullets = parse_bullets(generated(text)).bullets
    assert [[text[slice(*offsets[at])] for at in bullet.tokens] for bullet in bullets] == tokens


@pytest.mark.parametrize(
    ("text", "texts", "marker", "outside"),
    [
        ("* one\n* two", ["one", "two"], "asterisk", False),
        ("Here it is:\n\n* one\n\n* two\n\nI hope this helps.", ["one", "two"], "asterisk", True),
        ("* one\n  goes on\n* two", ["one goes on", "two"], "asterisk", False),
        ("*one\n*two", ["one", "two"], "asterisk", False),
        ("* **Mara**: a baker", ["**Mara**: a baker"], "asterisk", False),
        ("- one\n- two", ["one", "two"], "other", False),
        ("• one\n• two", ["one", "two"], "other", False),
        ("1. one\n2) two\n(3) three", ["one", "two", "three"], "other", False),
        ("Points:\n- one", ["one"], "other", True),
        ("3.5 miles away.\nNo more.", ["3.5 miles away.", "No more."], "none", False),
        ("one\n\ntwo", ["one", "two"], "none", False),
        ("**Heading**\nMara hid it.", ["**Heading**", "Mara hid it."], "none", False),
        ("only this", ["only this"], "none", False),
        ("* \n*\n* one", ["one"], "asterisk", False),
        ("* \n* ...\n***", [], "none", False),
        ("* 1.\n* one in 1999\n* 2)\n* 1999", ["one in 1999", "1999"], "asterisk", False),
        ("1.\n2.", [], "none", False),
        ("", [], "none", False),
        ("…", [], "none", False),
    ],
)
def test_what_counts_as_a_bullet(text: str, texts: list[str], marker: str, outside: bool) -> None:
    parsed = parse_bullets(generated(text))
    assert [b.text for b in parsed.bullets] == texts
    assert (parsed.marker, parsed.outside) == (marker, outside)


def test_a_token_that_holds_the_end_of_a_bullet_and_more_belongs_to_it() -> None:
    """A tokenizer may write a full stop and the line end as one token."""
    text = "* a.\n* b"
    offsets = ((0, 1), (1, 3), (3, 5), (5, 6), (6, 8))
    parsed = parse_bullets(Generation(text, (0, 1, 2, 3, 4), "stop", 0, offsets))
    assert [b.tokens for b in parsed.bullets] == [(1, 2), (4,)]


def test_tokens_of_one_character_all_belong_to_its_bullet() -> None:
    text = "* 🧁"
    parsed = whole_text(Generation("🧁 x", (0, 1, 2), "stop", 0, ((0, 1), (0, 1), (1, 3))))
    assert parsed.bullets[0].tokens == (0, 1, 2)
    assert parse_bullets(Generation(text, (0, 1, 2), "stop", 0, ((0, 2), (2, 3), (2, 3)))).bullets == ()


def test_a_whole_text_is_one_bullet_on_one_line() -> None:
    text = "Mara hid it.\n\n* Otto sold it."
    parsed = whole_text(generated(text))
    assert [b.text for b in parsed.bullets] == ["Mara hid it. * Otto sold it."]
    assert whole_text(generated(" ...\n")).bullets == ()


def test_a_model_that_does_not_say_where_its_tokens_are_is_refused() -> None:
    with pytest.raises(RuntimeError, match="offsets"):
        parse_bullets(Generation("* one", (1, 2), "stop", 0))


@pytest.mark.parametrize(
    ("text", "texts", "headings"),
    [
        ("* LSU Honors College\n  * Founded in 1992", ["LSU Honors College: Founded in 1992"], 1),
        ("* **LSU:**\n    - Old.\n    - Large.\n* Mara", ["**LSU**: Old.", "**LSU**: Large.", "Mara"], 1),
        ("1. LSU:\n   * Founded\n2. Mill:\n\n   * Red", ["LSU: Founded", "Mill: Red"], 2),
        ("- A\n  - B\n    - C\n  - D", ["A: B: C", "A: D"], 2),
        ("* Mara hid it.\n  * In the mill.", ["Mara hid it.", "Mara hid it. In the mill."], 0),
        ("* one\n * two", ["one", "two"], 0),  # one column is no setting in
        ("* A:\n  goes on\n  * B", ["A: goes on: B"], 1),
        ("* \n  * one", ["one"], 0),
    ],
)
def test_an_item_below_another_takes_its_words_along(text: str, texts: list[str], headings: int) -> None:
    parsed = parse_bullets(generated(text))
    assert [b.text for b in parsed.bullets] == texts
    assert parsed.headings == headings
