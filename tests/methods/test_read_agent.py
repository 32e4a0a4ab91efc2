"""ReadAgent: pages end where the model pauses, and the pages that it names are read in full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.errors import ConfigError
from bench.method import restored
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from methods.read_agent import ReadAgent, ReadAgentConfig, named_pages
from tests.stand_ins import GEOMETRY, Replying, WordModels

# A piece is a sentence of 7 words, whose first the stand-in's tokenizer counts to the sentence before.
TEXT = " ".join(f"Mara walked past house number {n} today." for n in range(25))
DOCUMENTS = DocumentSet((Document("", TEXT), Document("", "Otto saw it.")))


def asked(
    pause: str, look_up: str = "[2]", more: str = "", **options: Any
) -> tuple[Index, Prediction, Replying]:
    """The reader pauses as it is told, shortens to one word and more, and looks up what it is told to."""

    def reply(prompt: str) -> str:
        gists = sum("shortened version" in one for one in reader.prompts)
        said = {"pause reading": pause, "shortened version": f"gist{gists}{more}", "read again": look_up}
        return next((text for cue, text in said.items() if cue in prompt), "the answer")

    reader = Replying(reply)
    models: Any = WordModels(reader)
    method = ReadAgent(ReadAgentConfig(**{"page_tokens": 61, **options}), GEOMETRY)

    async def both() -> tuple[Index, Prediction]:
        index = await method.index(DOCUMENTS, models)
        return index, await method.answer(index, Question("Who saw it?", DOCUMENTS, 8), models)

    return *asyncio.run(both()), reader


def pages(index: Index) -> list[str]:
    spans = (page.spans for page in restored(index.data["pages"], DOCUMENTS))
    return [" ".join(DOCUMENTS.documents[d].full_text[a:b] for d, a, b in page) for page in spans]


def test_pages_of_which_the_reader_cannot_read_two_are_refused() -> None:
    with pytest.raises(ConfigError, match="page_tokens=125: two are read at once; give 124 or fewer"):
        ReadAgent(ReadAgentConfig(page_tokens=125), GEOMETRY)


@pytest.mark.parametrize(("pause", "missed"), [("I pause at <5>", 0), ("<99>", 1), ("nowhere", 1)])
def test_pages_end_where_the_model_pauses_else_at_their_limit(pause: str, missed: int) -> None:
    index, _, reader = asked(pause)
    chosen, joined = [len(page.split()) for page in pages(index)], " ".join(pages(index))
    assert joined == f"{TEXT} Otto saw it."
    assert chosen == ([70, 70, 38] if missed else [35, 35, 35, 35, 38])  # five pieces, or the ten that fit
    assert ("no_pause_named" in index.data["events"]) == bool(missed)
    first = next(prompt for prompt in reader.prompts if "pause reading" in prompt)
    assert "<5>" in first and "<1>" not in first  # not before 280/600 of a page


def test_a_pause_prompt_that_the_model_cannot_hold_is_not_asked() -> None:
    reader = asked("<5>", page_tokens=124)[2]
    assert max(len(reader.tokenize(prompt).ids) for prompt in reader.prompts) + 16 <= GEOMETRY.input_limit


def test_pages_of_a_fixed_length_ask_nobody() -> None:
    index, _, reader = asked("", pages="fixed")
    assert not any("pause reading" in prompt for prompt in reader.prompts)
    assert [len(page.split()) for page in pages(index)][:2] == [70, 70]


def test_the_pages_that_are_named_are_read_in_full_and_the_others_as_gists() -> None:
    index, prediction, reader = asked("", look_up="pages [3, 1, 2, 77]", pages="fixed")
    whole = pages(index)
    assert prediction.trace["looked_up"] == [2, 0] and "<Page 2>\ngist2" in reader.prompts[-2]
    context = [(item.node, item.document) for item in prediction.context]
    assert context[:2] == [(None, 0), ("page 2", None)] and context[2] == (None, 0)
    assert whole[0] in reader.prompts[-1] and whole[1] not in reader.prompts[-1]


def test_without_look_ups_the_gists_alone_are_read() -> None:
    _, prediction, reader = asked("", pages="fixed", look_ups=0)
    assert {item.document for item in prediction.context} == {None}
    assert not any("read again" in prompt for prompt in reader.prompts)


def test_gists_that_do_not_fit_are_not_shown_and_the_last_are_dropped_before_a_page() -> None:
    _, prediction, reader = asked("", "[1]", " so" * 18, pages="fixed", page_tokens=16)
    assert reader.prompts[-2].count("<Page") == 8  # of 13; 21 tokens each, 10 are left
    assert [item.node for item in prediction.context] == [None, *(f"page {n}" for n in range(2, 13))]
    assert prediction.truncated and prediction.flags == ()


@pytest.mark.parametrize(
    ("reply", "named"),
    [("I want Page [2, 1]", [1, 0]), ("page 3, of 5", [2]), ("[0, 9]", []), ("none", []), ("[1, 1]", [0])],
)
def test_numbers_in_the_first_brackets_name_pages(reply: str, named: list[int]) -> None:
    assert named_pages(reply, 4) == named
